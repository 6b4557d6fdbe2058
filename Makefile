# One entry point: what CI runs is what a contributor runs.

EXPORTER = target/release/jobledger-exporter
CLI = target/release/jobledger
SIMULATED = target/release/jobledger-demo
CARGO ?= cargo
# What tests are built from (tests/e2e/testbed/built.py has the same). A package alone gets other features of what it depends on, and
# all of that is built once more.
TESTED = --workspace --locked --features jobledger/testing
# CI builds once. What would save time in a second build costs time and disk in the first.
ifdef CI
export CARGO_INCREMENTAL ?= 0
endif

.PHONY: help build build-cli build-demo run demo demo-node check test test-quick lint lint-code deny unit unit-rust unit-python unit-report unit-helm unit-alone pmu-idle after-unit e2e e2e-each e2e-26.05 e2e-packages fuzz fuzz-build pmu bench bench-energy bench-formats bench-peers bench-report abuse soak docs expectations previews previews-test chart scale scale-dashboards scale-victoria rules-live report-live report-elsewhere rules-elsewhere agents-elsewhere prometheus-3 packages mixin image image-push test-packages thresholds dashboards dashboards-live install-test-packages install-demo-packages test-fresh test-release tested-programs demo-fresh

help: ## this list
	@grep -hE '^[a-z0-9.-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/	/' | expand -t 24

build: ## the release binary, target/release/jobledger-exporter
	$(CARGO) build --release --locked -p jobledger-exporter

build-cli: ## reports at the shell, target/release/jobledger
	$(CARGO) build --release --locked -p jobledger

build-demo: ## the exporter over a simulated node, target/release/jobledger-demo
	$(CARGO) build --release --locked -p jobledger-demo

run: build ## the exporter on this node, http://127.0.0.1:9810
	$(EXPORTER) --web.listen-address=127.0.0.1:9810

demo: install-demo-packages build-cli $(if $(findstring --simulated,$(DEMO)),build-demo,build) ## real SLURM (in a virtual machine), the exporter, Prometheus with the rules, Alertmanager, and jobs; as root
	python3 demo/run.py $(DEMO)

demo-node: build-demo ## the exporter alone over a simulated node, http://127.0.0.1:9810
	$(SIMULATED) --collector.perf --collector.perf.plan=full --web.listen-address=127.0.0.1:9810

check: build ## what works on this node, and what would change it
	$(EXPORTER) --check

# What compiles much is built while the tests of `unit` wait for their clocks, and rules-live and report-live wait for their own beside them.
test: BESIDE = deny fuzz-build rules-live report-live
test: IDLE = pmu-idle
test: install-test-packages lint-code unit after-unit e2e ## everything CI runs; as root, installs Debian packages by name

test-fresh: ## `make test` in a bare Debian 12 with an empty cache, as on a new machine; as root
	tests/tools/fresh.sh test

demo-fresh: ## one round of `make demo` there
	tests/tools/fresh.sh demo DEMO="--rounds 1"

test-quick: ## lints and the tests that need neither root nor packages beyond Rust
	$(MAKE) lint unit

lint: lint-code deny

lint-code:
	$(CARGO) fmt --all --check
	$(CARGO) clippy $(TESTED) --all-targets -- -D warnings
	python3 tests/tools/words.py
	python3 tests/tools/crates.py --check
	python3 tests/tools/directions.py
	python3 tests/tools/closure.py
	rules/generate.py --check

deny:
	tests/tools/deny.sh

# What was late gets a second attempt, and is named.
ATTEMPTS = python3 tests/tools/attempts.py

# Most of these tests wait for clocks and processes: many at a time, those of Rust beside those of Python; but
# the simulated node is compared with its simulation second by second, and the chart's pod shows this machine's jobs,
# which those of Rust make.
unit:
	$(CARGO) test $(TESTED) --no-run
	@echo "the tests of Rust and of Python run side by side; each is shown when it is over"
	$(MAKE) -j 4 --output-sync=target unit-rust unit-python unit-report unit-helm $(BESIDE)
	$(MAKE) -j 2 --output-sync=target unit-alone $(IDLE)

unit-alone:
	RUST_TEST_THREADS=6 $(ATTEMPTS) rust $(TESTED) --bin jobledger-demo --test simulated_node
	$(ATTEMPTS) python tests/helm 'alone_*.py'

# In the CPU time that tests of `unit-alone` leave, so that they are not disturbed.
pmu-idle:
	chrt --idle 0 $(MAKE) pmu

# The first of them waits most of its time.
after-unit: tested-programs
	$(MAKE) -j 2 --output-sync=target dashboards-live test-packages fuzz

unit-rust: export RUST_TEST_THREADS ?= 6
unit-rust:
	$(ATTEMPTS) rust $(TESTED) --exclude jobledger-demo

unit-python:
	python3 -m unittest discover -s tests/tools
	$(ATTEMPTS) python tests/slurm_snippets
	$(ATTEMPTS) python tests/e2e
	$(ATTEMPTS) python tests/pmu_oracle
	$(ATTEMPTS) python tests/gpu
	$(ATTEMPTS) python tests/rules
	$(ATTEMPTS) python tests/demo_stack
	$(ATTEMPTS) python tests/abuse
	$(ATTEMPTS) python tests/grafana_preview
	$(ATTEMPTS) python tests/agents
	$(ATTEMPTS) python tests/scale
	$(ATTEMPTS) python tests/peers

# Beside `unit-python`, which would be the last to end with these.
unit-report:
	$(ATTEMPTS) python tests/report
	$(ATTEMPTS) python tests/grafana 'test_dashboards.py'
	$(ATTEMPTS) python tests/grafana 'test_*numbers.py'

# Takes the place of those of reports when they are over.
unit-helm: unit-report
	$(ATTEMPTS) python tests/helm

# Once with the vectors of SVE and once without SVE.
pmu: ## counters of jobs on an emulated ARM machine with a hardware PMU (PMU=NAME for tests of that name)
	tests/pmu/run.py $(PMU)

fuzz: ## every fuzz target for a few seconds (FUZZ_SECONDS)
	exporter/fuzz/run.sh $(or $(FUZZ_SECONDS),3)

fuzz-build:
	exporter/fuzz/run.sh build

export JOBLEDGER_CACHE ?= $(HOME)/.cache/jobledger

packages: ## deb, rpm, binaries and SBOMs in target/packages, for glibc 2.28 and later (docs/install.md)
	packaging/build.sh

mixin: ## rules, alerts and dashboards in a tarball of plain YAML and JSON, in target/packages (docs/install.md)
	packaging/mixin.sh

image: ## the container image for amd64 and arm64, an OCI archive in target/packages (docs/install.md); as root, IMAGE="--binary FILE" for a binary that is there
	packaging/container/build.sh $(IMAGE)

image-push: ## that image to a registry: REGISTRY=registry.example.org/hpc
	packaging/container/push.sh $(REGISTRY)

# Programs as the tests have them, for packages and machines: to build releases of both takes as long as most of the tests. What a
# scrape spends its time in is optimized (Cargo.toml). `make test-release` looks at what a release alone has.
TESTED_EXPORTER = target/tested/jobledger-exporter
TESTED_CLI = target/tested/jobledger

tested-programs:
	$(CARGO) test $(TESTED) --no-run
	mkdir -p target/tested
	strip -o $(TESTED_EXPORTER) target/debug/jobledger-exporter
	strip -o $(TESTED_CLI) target/debug/jobledger

test-packages: tested-programs ## the packages, the systemd unit and its drop-ins
	JOBLEDGER_EXPORTER=$(abspath $(TESTED_EXPORTER)) JOBLEDGER_CLI=$(abspath $(TESTED_CLI)) $(ATTEMPTS) python tests/packaging

test-release: build ## size and memory of the release exporter, before a release
	$(CARGO) test $(TESTED) --test footprint release

e2e: tested-programs ## real SLURM: on this host (v1) and in virtual machines (v1 and v2; 22.05 and 24.11), each scenario where it may differ
	python3 tests/e2e/run.py --exporter $(TESTED_EXPORTER) --cli $(TESTED_CLI)

e2e-each: build ## each scenario on each of these that can run it: not in CI, it takes an hour
	python3 tests/e2e/run.py --exporter $(EXPORTER) --each

e2e-26.05: build ## the same on Debian sid's SLURM and Prometheus 3, which move: not in CI
	python3 tests/e2e/run.py --exporter $(EXPORTER) --bed vm-26.05-v2 --prometheus 3

e2e-packages: build ## the Debian package with all drop-ins and beside a dead NFS server, in a virtual machine: not in CI, it takes long
	python3 tests/e2e/run.py --exporter $(EXPORTER) --bed vm-22.05-v2 package package_drop_ins package_dead_server

bench: ## the cost of a scrape against the bare system calls; BENCH=real, v1, recorded, binary, meters, network, counters, hand-over, job-runs, profiles or gpu for a part
	$(CARGO) bench --locked -p jobledger-exporter --bench scrape_cost -- $(BENCH)

bench-formats: ## what each format of the page costs for a sample
	$(CARGO) bench --locked -p exposition --bench formats

bench-energy: ## what jobs are charged with beside what they truly spent, on sockets whose power is known
	$(CARGO) test --locked -p attribution --lib truth -- --nocapture --test-threads=1

bench-peers: ## the cost of a scrape beside other exporters, those that can be installed by name, on the same jobs; as root, PEERS of tests/peers/measure.py
	python3 tests/peers/measure.py $(PEERS)

scale: build-demo ## what many nodes cost a Prometheus with all rules (docs/scale.md); NODES="10 100", SCALE_FLAGS of tests/scale/measure.py
	python3 tests/scale/measure.py $(or $(NODES),100) --demo $(SIMULATED) $(SCALE_FLAGS)

scale-dashboards: build-demo ## what it costs Prometheus to open every dashboard, by panel; NODES="20 60", SCALE_FLAGS of tests/scale/dashboards.py
	python3 tests/scale/dashboards.py $(or $(NODES),20 60) --demo $(SIMULATED) $(SCALE_FLAGS)

scale-victoria: build-demo ## what VictoriaMetrics and vmalert (Debian sid's, which move) make of the rules, beside Prometheus
	python3 tests/scale/victoria.py --demo $(SIMULATED) $(SCALE_FLAGS)

prometheus-3: ## counters of short jobs in Prometheus 3 (Debian sid's, which moves: not in CI)
	JOBLEDGER_PROMETHEUS_3="$$(cd tests/e2e && python3 -c 'from testbed import prometheus as p; print(p.programs("3")[0])' | tail -1)" \
	    $(CARGO) test --locked -p jobledger-exporter --test start_times -- --ignored

rules-live: ## owners, nodes and ended jobs add up, in a real Prometheus over demo nodes with short jobs; JOBLEDGER_PROMETHEUS=3 or victoria for others (Debian sid's)
	$(ATTEMPTS) python tests/rules 'live_*.py'

report-live: ## reports, lists and waste beside the pages of demo nodes, through a real Prometheus
	$(ATTEMPTS) python tests/report 'live_*.py'

agents-elsewhere: build ## agents/ by Debian sid's Prometheus 3 and vmagent, which move: not in CI
	JOBLEDGER_AGENTS=sid JOBLEDGER_EXPORTER=$(abspath $(EXPORTER)) $(ATTEMPTS) python tests/agents

report-elsewhere: build-cli ## what `jobledger` shows from VictoriaMetrics and Prometheus 3 (Debian sid's, which move: not in CI), Thanos, Cortex and Mimir beside Prometheus 2
	JOBLEDGER_CLI=$(abspath $(CLI)) python3 tests/report/elsewhere.py

rules-elsewhere: ## the rules' unit tests by Prometheus 3's promtool (Debian sid's, which moves: not in CI)
	python3 tests/rules/elsewhere.py promtool

bench-report: build-cli ## what `jobledger` takes for large jobs and for many, beside the same requests alone, and what it takes to record a job, beside the bare calls; as root, REPORT_CASES of tests/report/bench.py
	JOBLEDGER_CLI=$(abspath $(CLI)) python3 tests/report/bench.py $(REPORT_CASES)

abuse: build-demo ## hostile clients against the exporter, side by side with node_exporter; a table of what a scraper suffers
	JOBLEDGER_DEMO=$(abspath $(SIMULATED)) python3 tests/abuse/cases.py $(ABUSE)

soak: ## churn for minutes, with processes in the jobs too, and for an hour each scraped and never scraped; JOBLEDGER_SOAK_MINUTES=20 for less
	$(CARGO) test --release --locked -p jobledger-exporter --test soak -- --ignored --nocapture --test-threads=1

docs: ## docs/flags.md, docs/cli-flags.md, docs/metrics.md, man pages, completions and the drawing of the crates, from the programs themselves
	JOBLEDGER_BLESS=1 $(CARGO) test --locked -p jobledger-exporter -p jobledger --test documents
	tests/tools/crates.py

thresholds: ## thresholds and texts of alerts and advice, from rules/thresholds.yaml
	rules/generate.py

chart: ## the chart's copies of rules and dashboards, the names in its schema, its README
	helm/sync.py
	cd tests/helm && python3 -c 'import tools; tools.write_readme()'

dashboards: ## grafana/dashboards/*.json, from grafana/src
	"$$(grafana/environment.sh)" grafana/generate.py

gpu-check: build ## known work on an NVIDIA GPU beside the exporter, as root on a node whose GPU nobody uses, with cupy, torch and nvidia-ml-py: what was done, what was counted, in target/gpu-check
	python3 tests/gpu/run.py --exporter $(EXPORTER) target/gpu-check

dashboards-live: ## every query of the dashboards against a real Prometheus over demo nodes and recorded machines; the job report behind a label proxy
	$(ATTEMPTS) python tests/grafana 'test_queries.py'
	$(ATTEMPTS) python tests/grafana 'test_proxy.py'

expectations: ## rewrites what the fixture machines are expected to give; review the diff
	JOBLEDGER_BLESS=1 $(CARGO) test --locked -p jobledger-exporter --test machines

PREVIEW = grafana/preview
PREVIEW_PACKAGES = $(PREVIEW)/node_modules/.package-lock.json

$(PREVIEW_PACKAGES): $(PREVIEW)/package-lock.json
	tests/tools/install-packages.sh previews
	npm ci --prefix $(PREVIEW) --ignore-scripts --no-audit --no-fund
	touch $@

previews: build-demo $(PREVIEW_PACKAGES) ## pictures of the dashboards over demo nodes, docs/img; eleven minutes, fetches 450 MB of Grafana's packages
	node $(PREVIEW)/shoot.mjs --demo $(SIMULATED) --as-opened $(PREVIEW_OPTIONS)
	python3 $(PREVIEW)/training.py node $(PREVIEW)/shoot.mjs --dashboard jobledger-job-report --as-opened --height 990 $(PREVIEW_OPTIONS)

previews-test: $(PREVIEW_PACKAGES) ## the preview of the dashboards itself, on one with every type of panel
	cd $(PREVIEW) && node_modules/.bin/tsc
	$(ATTEMPTS) python tests/grafana_preview

install-test-packages:
	tests/tools/install-packages.sh

install-demo-packages:
	tests/tools/install-packages.sh machine modules servers rules
