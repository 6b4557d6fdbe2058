/**
 * Demo nodes and a Prometheus over them, with the rules of this project: what the dashboards are drawn from.
 * Everything listens on loopback, on free ports, has its files below one temporary directory, and ends with this process.
 *
 * Of its own, until interrupted: node stack.mjs --demo FILE [--nodes 3] [--port 9090]
 */
import { spawn } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";

const ROOT = resolve(fileURLToPath(import.meta.url), "../../..");
const SCRAPE_INTERVAL_S = 15;

export async function freePort() {
  const server = createServer();
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  const { port } = server.address();
  await new Promise((done) => server.close(done));
  return port;
}

/** A child that the kernel ends when this process is gone, however it went (setpriv is in Debian's util-linux). */
function start(name, command, args, log) {
  const child = spawn("setpriv", ["--pdeathsig", "TERM", "--", command, ...args], { stdio: ["ignore", "ignore", "pipe"] });
  let tail = "";
  child.stderr.on("data", (text) => (tail = (tail + text).slice(-2000)));
  child.on("error", (error) => log(`${name}: ${error.message}`));
  child.on("exit", (code) => child.ending || log(`${name} ended with ${code}:\n${tail}`));
  return child;
}

async function until(what, url, seconds) {
  for (let tries = 0; tries < seconds * 5; tries++) {
    if (await fetch(url).then((answer) => answer.ok, () => false)) return;
    await new Promise((done) => setTimeout(done, 200));
  }
  throw new Error(`${what} did not answer at ${url} for ${seconds} s`);
}

/** Starts it all; gives the address of Prometheus and what ends it. */
export async function startStack({ demo, nodes = 3, rules = join(ROOT, "rules"), port, log = console.error }) {
  const directory = mkdtempSync(join(tmpdir(), "jobledger-preview-"));
  const children = [];
  const stop = async () => {
    for (const child of children) {
      child.ending = true;
      child.kill();
    }
    await Promise.all(children.map((child) => child.exitCode !== null || child.signalCode || new Promise((done) => child.once("exit", done))));
    rmSync(directory, { recursive: true, force: true });
  };
  try {
    const targets = [];
    for (let seed = 1; seed <= nodes; seed++) {
      const address = `127.0.0.1:${await freePort()}`;
      children.push(start(`node ${seed}`, demo, ["--collector.perf", "--web.scrapers=127.0.0.1", `--demo.seed=${seed}`, `--web.listen-address=${address}`], log));
      await until(`node ${seed}`, `http://${address}/metrics`, 30);
      targets.push({ targets: [address], labels: { instance: `node${seed}` } });
    }
    const yaml = (folder) => readdirSync(join(rules, folder)).filter((name) => name.endsWith(".yaml")).map((name) => join(rules, folder, name));
    const config = {
      global: { scrape_interval: `${SCRAPE_INTERVAL_S}s`, scrape_timeout: `${SCRAPE_INTERVAL_S}s`, evaluation_interval: "15s" },
      rule_files: [join(ROOT, "demo/site.yaml"), ...yaml("recording"), ...yaml("alerts")],
      scrape_configs: [{ job_name: "jobledger", static_configs: targets }],
    };
    const file = join(directory, "prometheus.yml"); // JSON is YAML
    writeFileSync(file, JSON.stringify(config));
    const address = `127.0.0.1:${port ?? (await freePort())}`;
    const flags = [`--config.file=${file}`, `--storage.tsdb.path=${join(directory, "data")}`, `--web.listen-address=${address}`];
    children.push(start("prometheus", "prometheus", flags, log));
    await until("prometheus", `http://${address}/-/ready`, 30);
    return { prometheus: `http://${address}`, stop };
  } catch (error) {
    await stop();
    throw error;
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const { values } = parseArgs({ options: { demo: { type: "string" }, nodes: { type: "string" }, port: { type: "string" }, rules: { type: "string" } } });
  const stack = await startStack({
    demo: values.demo ?? join(ROOT, "target/release/jobledger-demo"),
    nodes: Number(values.nodes ?? 3),
    port: values.port,
    rules: values.rules && resolve(values.rules),
  });
  console.log(`Prometheus: ${stack.prometheus}`);
  for (const signal of ["SIGINT", "SIGTERM"]) process.once(signal, () => stack.stop());
}
