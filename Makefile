# One entry point: what CI runs is what a contributor runs.

EXPORTER = target/release/jobledger-exporter
CARGO ?= cargo

.PHONY: help build run demo check test test-quick lint unit e2e e2e-26.05 fuzz bench soak docs dashboards dashboards-live expectations install-test-packages

help: ## this list
	@grep -hE '^[a-z0-9.-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/	/' | expand -t 24

build: ## the release binary, target/release/jobledger-exporter
	$(CARGO) build --release --locked -p jobledger-exporter

run: build ## the exporter on this node, http://127.0.0.1:9810
	$(EXPORTER) --web.listen-address=127.0.0.1:9810

demo: build ## the exporter over a simulated node, http://127.0.0.1:9810
	$(EXPORTER) --demo --collector.perf --web.listen-address=127.0.0.1:9810

check: build ## what works on this node, and what would change it
	$(EXPORTER) --check

test: install-test-packages lint unit fuzz dashboards-live e2e ## everything CI runs; as root, installs Debian packages by name

test-quick: ## lints and the tests that need neither root nor packages beyond Rust
	$(MAKE) lint unit

lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

unit:
	$(CARGO) test --workspace --locked
	python3 -m unittest discover -s tests/slurm_snippets
	python3 -m unittest discover -s tests/e2e
	python3 -m unittest discover -s tests/pmu_oracle
	python3 -m unittest discover -s tests/rules
	python3 -m unittest discover -s tests/grafana -p 'test_dashboards.py'

fuzz: ## every fuzz target for a few seconds (FUZZ_SECONDS)
	exporter/fuzz/run.sh $(or $(FUZZ_SECONDS),3)

export JOBLEDGER_CACHE ?= $(HOME)/.cache/jobledger

e2e: build ## real SLURM: on this host (v1) and in virtual machines (v1 and v2; 22.05 and 24.11)
	python3 tests/e2e/run.py --exporter $(EXPORTER)

e2e-26.05: build ## the same on Debian sid's SLURM and Prometheus 3, which move: not in CI
	python3 tests/e2e/run.py --exporter $(EXPORTER) --bed vm-26.05-v2 --prometheus 3

bench: ## the cost of a scrape against the bare system calls; BENCH=real, recorded, binary, network, counters, life or gpu for a part
	$(CARGO) bench --locked -p jobledger-exporter --bench scrape_cost -- $(BENCH)

soak: ## five minutes of 50 jobs a second
	$(CARGO) test --release --locked -p jobledger-exporter --test soak -- --ignored --nocapture

docs: ## docs/flags.md, docs/metrics.md, the man page and completions, from the program itself
	JOBLEDGER_BLESS=1 $(CARGO) test --locked -p jobledger-exporter --test documents

dashboards: ## grafana/dashboards/*.json, from grafana/src
	"$$(grafana/environment.sh)" grafana/generate.py

dashboards-live: build ## every query of the dashboards against a real Prometheus over demo nodes and recorded machines
	JOBLEDGER_EXPORTER=$(abspath $(EXPORTER)) python3 -m unittest discover -s tests/grafana -p 'test_queries.py'

expectations: ## rewrites what the fixture machines are expected to give; review the diff
	JOBLEDGER_BLESS=1 $(CARGO) test --locked -p jobledger-exporter --test machines

install-test-packages:
	tests/tools/install-packages.sh
