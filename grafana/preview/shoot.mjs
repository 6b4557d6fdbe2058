/**
 * Pictures of the dashboards: builds the page, gives it each dashboard and a Prometheus, and has Chromium draw it.
 * See README.md. Exits with 1 if a panel or a query failed; what the preview cannot draw it lists and does not count as failure.
 */
import { existsSync, mkdirSync, readFileSync, readdirSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { basename, extname, join, normalize, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import esbuild from "esbuild";
import puppeteer from "puppeteer-core";
import { startStack } from "./stack.mjs";

const HERE = resolve(fileURLToPath(import.meta.url), "..");
const ROOT = resolve(HERE, "../..");
const TYPES = { ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".html": "text/html", ".woff2": "font/woff2", ".woff": "font/woff" };
/** Grafana's fonts are not in its packages; these are the same. */
const FONTS = {
  "Inter-Regular.woff2": "inter/files/inter-latin-400-normal.woff2", "Inter-Medium.woff2": "inter/files/inter-latin-500-normal.woff2",
  "Inter-Italic.woff2": "inter/files/inter-latin-400-italic.woff2", "Inter-MediumItalic.woff2": "inter/files/inter-latin-500-italic.woff2",
  "L0xTDF4xlVMF-BfR8bXMIhJHg45mwgGEFl0_3vrtSM1J-gEPT5Ese6hmHSh0mQ.woff2": "roboto-mono/files/roboto-mono-latin-400-normal.woff2",
};
/** By the file name of the dashboard: names of its pictures, queries for variables, times. */
const PRESETS = JSON.parse(readFileSync(join(HERE, "previews.json"), "utf8"));
const HELP = `node shoot.mjs [options]
  --dashboards DIR    folder of dashboards, each *.json of it (grafana/dashboards)
  --dashboard NAME    only this one, a file's name or its uid; may be repeated
  --out DIR           where the pictures go (docs/img)
  --var NAME=VALUE    value of a variable, where a dashboard has it; repeat it for several values; All
  --pick NAME=PROMQL  the variable is the label of its name of the query's first result: --pick 'jobid=jobledger_job_info{name="llm-train"}'
  --from, --to TIME   in place of the dashboard's time range: now-15m, or milliseconds (of demo nodes all that there is)
  --prometheus URL    an existing Prometheus; without it demo nodes and one are started
  --demo FILE         the program of the demo nodes (target/release/jobledger-demo)
  --rules DIR         the rules of that Prometheus (rules)
  --warm-up SECONDS   how long the demo nodes run before the pictures (600)
  --scrape-interval T what the data source is told of Prometheus (15s)
  --width PIXELS      of the page (1600)      --theme dark|light
  --height PIXELS     only the top of the page (all of it)
  --scale N           device pixels per pixel (1)
  --as-opened         leave closed rows closed
  --panels            a picture of each panel, too
  --dom FILE          what was drawn, as JSON: of each panel its text, errors, gaps, links
  --serve             serve the page and stay, to be looked at with a browser`;

const { values: options } = parseArgs({
  options: {
    ...Object.fromEntries(["dashboards", "out", "from", "to", "prometheus", "demo", "rules", "warm-up", "scrape-interval", "width", "height", "theme", "scale", "dom"].map((name) => [name, { type: "string" }])),
    ...Object.fromEntries(["var", "pick", "dashboard"].map((name) => [name, { type: "string", multiple: true }])),
    ...Object.fromEntries(["as-opened", "panels", "serve", "help"].map((name) => [name, { type: "boolean" }])),
  },
});

const warmUp = Number(options["warm-up"] ?? 600);

function dashboards() {
  const folder = resolve(options.dashboards ?? join(ROOT, "grafana/dashboards"));
  const all = readdirSync(folder).filter((name) => name.endsWith(".json")).sort().map((file) => ({ name: file.slice(0, -5), json: JSON.parse(readFileSync(join(folder, file), "utf8")) }));
  const wanted = options.dashboard;
  const chosen = wanted ? all.filter(({ name, json }) => wanted.some((each) => each === name || each === `${name}.json` || each === json.uid)) : all;
  if (!chosen.length) throw new Error(`no dashboard ${wanted ?? ""} in ${folder}`);
  return chosen;
}

/** The pictures of a dashboard: those of previews.json; one where it is not there, or the command line says which. */
function shots(name) {
  const presets = PRESETS[name] ?? [{ picture: name }];
  return options.var || options.pick ? presets.slice(0, 1) : presets;
}

async function build() {
  const built = await esbuild.build({
    entryPoints: [join(HERE, "src/main.tsx")], bundle: true, write: false, outdir: "/", format: "esm", splitting: true, minify: true, jsx: "automatic", logLevel: "error", target: "chrome120",
    define: { "process.env.NODE_ENV": '"production"', global: "window" }, loader: { ".woff": "file", ".woff2": "file", ".svg": "file", ".ttf": "file" },
  });
  return new Map(built.outputFiles.map((file) => [file.path, file.contents]));
}

/** The built page, Grafana's icons, what is to be drawn, and Prometheus behind the same address. */
async function serve(files, prometheus, current) {
  const icons = join(HERE, "node_modules/@grafana/ui/dist/public");
  const page = '<!doctype html><meta charset="utf-8"><title>preview</title><link rel="icon" href="data:,"><link rel="stylesheet" href="/main.css"><div id="root"></div><script type="module" src="/main.js"></script>';
  const server = createServer(async (request, response) => {
    const path = normalize(decodeURIComponent(new URL(request.url, "http://x").pathname));
    const send = (status, type, body) => response.writeHead(status, { "content-type": type }).end(body);
    try {
      if (path === "/") return send(200, "text/html", page);
      if (path === "/settings.json") return send(200, "application/json", JSON.stringify(current()));
      if (files.has(path)) return send(200, TYPES[extname(path)] ?? "application/octet-stream", files.get(path));
      if (path.startsWith("/prometheus/")) {
        const body = request.method === "POST" ? Buffer.concat(await request.toArray()) : undefined;
        const answer = await fetch(prometheus + request.url.slice("/prometheus".length), { method: request.method, body, headers: body && { "content-type": request.headers["content-type"] } });
        return send(answer.status, "application/json", Buffer.from(await answer.arrayBuffer()));
      }
      const font = path.startsWith("/public/fonts/") && FONTS[basename(path)];
      if (font) return send(200, TYPES[".woff2"], readFileSync(join(HERE, "node_modules/@fontsource", font)));
      const icon = path.replace(/^\/public\/(build\/)?/, "/");
      if (existsSync(join(icons, icon)) && extname(icon)) return send(200, TYPES[extname(icon)] ?? "application/octet-stream", readFileSync(join(icons, icon)));
      return send(404, "text/plain", `no ${path}`);
    } catch (error) {
      return send(502, "text/plain", `${prometheus}: ${error.cause?.message ?? error.message}`);
    }
  });
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  return { address: `http://127.0.0.1:${server.address().port}`, close: () => server.close() };
}

/** NAME=VALUE of the variables that a dashboard has. */
function pairs(list, json) {
  const names = new Set((json.templating?.list ?? []).map((variable) => variable.name));
  return (list ?? []).map((pair) => [pair.slice(0, pair.indexOf("=")), pair.slice(pair.indexOf("=") + 1)]).filter(([name]) => names.has(name));
}

/** The label of the first series of the first query that has one. */
async function label(name, queries, prometheus) {
  for (const query of [queries].flat()) {
    const response = await fetch(`${prometheus}/api/v1/query?${new URLSearchParams({ query })}`).catch((error) => Promise.reject(new Error(`${prometheus}: ${error.cause?.message ?? error.message}`)));
    const answer = await response.json();
    if (answer.status !== "success") throw new Error(`${query}: ${answer.error}`);
    const value = answer.data.result[0]?.metric?.[name];
    if (value !== undefined) return value;
  }
  throw new Error(`there is no ${name} in ${[queries].flat().join(" nor in ")}`);
}

/** What the page is given. A variable's value is the command line's, else the preset's, else the dashboard's. */
async function settings(json, preset, prometheus) {
  const given = {};
  const named = new Set([...pairs(options.var, json), ...pairs(options.pick, json)].map(([name]) => name));
  const preferred = Object.entries(preset.pick ?? {}).filter(([name]) => !named.has(name));
  for (const [name, queries] of [...pairs(options.pick, json), ...preferred]) given[name] = [await label(name, queries, prometheus)];
  for (const [name, value] of pairs(options.var, json)) (given[name] ??= []).push(value);
  return {
    dashboard: json, variables: given, from: options.from ?? preset.from ?? (options.prometheus ? undefined : `now-${warmUp}s`), to: options.to, theme: options.theme ?? "dark", width: Number(options.width ?? 1600),
    open: !options["as-opened"], scrapeInterval: options["scrape-interval"] ?? "15s",
  };
}

/** Until nothing is fetched, and the page is the same four times in a row: tables and legends are measured, then drawn again. */
async function settled(page) {
  await page.waitForNetworkIdle({ idleTime: 300, timeout: 60_000 });
  let before = "";
  for (let same = 0, tries = 0; same < 3; tries++) {
    if (tries > 200) throw new Error("never at rest");
    await new Promise((done) => setTimeout(done, 150));
    const now = await page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(document.body.innerHTML))))");
    same = now === before ? same + 1 : 0;
    before = now;
  }
}

/** In the page: what is to be read in each panel, and the colours of what is drawn, with the number of their pixels. */
function read(sections) {
  const hex = (bytes) => `#${bytes.map((byte) => byte.toString(16).padStart(2, "0")).join("")}`;
  const colours = (section) => {
    const counts = new Map();
    for (const canvas of section.querySelectorAll("canvas")) {
      if (!canvas.width || !canvas.height) continue;
      const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
      for (let at = 0; at < data.length; at += 4) {
        if (data[at + 3] < 40) continue;
        const colour = hex([...data.slice(at, at + 3)]);
        counts.set(colour, (counts.get(colour) ?? 0) + 1);
      }
    }
    return Object.fromEntries([...counts].filter(([, pixels]) => pixels > 20));
  };
  return sections.map((section) => {
    const { x, y, width, height } = section.getBoundingClientRect();
    const links = [...section.querySelectorAll("a[href]")].map((link) => link.getAttribute("href"));
    return { key: section.dataset.panel, text: section.innerText, links, colours: colours(section), place: [x, y, width, height].map(Math.round) };
  });
}

async function draw(browser, address, name, out) {
  const page = await browser.newPage();
  const errors = [];
  page.on("response", (response) => response.status() === 404 && errors.push(`page: ${response.url()} is not there`));
  page.on("pageerror", (error) => errors.push(`page: ${error.message}`));
  await page.setViewport({ width: Number(options.width ?? 1600), height: 1000, deviceScaleFactor: Number(options.scale ?? 1) });
  await page.goto(address);
  await page.waitForFunction("window.preview && (window.preview.ready || window.preview.error)", { timeout: 120_000 }).catch(() => errors.push("not ready after two minutes"));
  const height = Math.ceil(await page.evaluate("document.getElementById('root')?.getBoundingClientRect().bottom ?? 1000"));
  await page.setViewport({ width: Number(options.width ?? 1600), height, deviceScaleFactor: Number(options.scale ?? 1) });
  await settled(page).catch(() => errors.push("the page did not come to rest"));
  const report = await page.evaluate("window.preview");
  if (!report) throw new Error(errors.join("\n"));
  if (report.error) errors.push(report.error);
  const panels = await page.$$eval("section[data-panel]", read);
  const head = await page.$eval("header", (header) => header.innerText).catch(() => "");
  for (const panel of Object.values(report.panels)) if (panel.error) errors.push(`${panel.title || panel.type}: ${panel.error}`);
  const top = options.height && { x: 0, y: 0, width: Number(options.width ?? 1600), height: Math.min(height, Number(options.height)) };
  await page.screenshot({ path: join(out, `${name}.png`), ...(top ? { clip: top } : { fullPage: true }) });
  if (options.panels) for (const section of await page.$$("section[data-panel]")) await section.screenshot({ path: join(out, `${name}-panel-${(await section.evaluate((node) => node.dataset.panel)).replace(/[^\w.-]+/g, "_")}.png`) });
  const gaps = [...report.gaps, ...Object.values(report.panels).flatMap((panel) => panel.gaps.map((gap) => `${panel.title || panel.type}: ${gap}`))];
  console.log(`${name}: ${panels.length} panels, ${Number(options.width ?? 1600)}x${height}, ${errors.length} errors, ${gaps.length} gaps`);
  for (const gap of gaps) console.log(`  not in the preview: ${gap}`);
  for (const error of errors) console.log(`  ERROR ${error.replaceAll("\n", "\n    ")}`);
  await page.close();
  return { head, errors, gaps, panels: panels.map((panel) => ({ ...panel, ...report.panels[panel.key] })) };
}

async function main() {
  if (options.help) return console.log(HELP);
  const chosen = dashboards();
  const out = resolve(options.out ?? join(ROOT, "docs/img"));
  const chromium = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"].find(existsSync);
  if (!chromium) throw new Error("no Chromium; as root: apt-get install --no-install-recommends chromium");
  mkdirSync(out, { recursive: true });
  const stack = options.prometheus
    ? { prometheus: options.prometheus.replace(/\/$/, ""), stop: async () => {} }
    : await startStack({ demo: resolve(options.demo ?? join(ROOT, "target/release/jobledger-demo")), rules: options.rules && resolve(options.rules) });
  let browser;
  let server;
  const end = async () => {
    await browser?.close();
    server?.close();
    await stack.stop();
  };
  for (const signal of ["SIGINT", "SIGTERM"]) process.once(signal, () => end().then(() => process.exit(1)));
  try {
    const files = await build();
    if (!options.prometheus) {
      console.log(`demo nodes run for ${warmUp} s`);
      await new Promise((done) => setTimeout(done, warmUp * 1000));
    }
    let current = await settings(chosen[0].json, shots(chosen[0].name)[0], stack.prometheus);
    server = await serve(files, stack.prometheus, () => current);
    if (options.serve) {
      console.log(`${chosen[0].name}: ${server.address}`);
      await new Promise(() => {});
    }
    // Over a pipe: the browser ends when that closes, also if this program is killed.
    browser = await puppeteer.launch({ executablePath: chromium, pipe: true, args: ["--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--font-render-hinting=none", "--disable-dev-shm-usage"], env: { ...process.env, TZ: "UTC" } });
    const drawn = [];
    for (const dashboard of chosen) {
      for (const preset of shots(dashboard.name)) {
        current = await settings(dashboard.json, preset, stack.prometheus);
        drawn.push({ name: preset.picture, variables: current.variables, ...(await draw(browser, server.address, preset.picture, out)) });
      }
    }
    if (options.dom) writeFileSync(options.dom, JSON.stringify(drawn, null, 1));
    if (drawn.some((each) => each.errors.length)) process.exitCode = 1;
  } finally {
    await end();
  }
}

await main().catch((error) => {
  console.error(error.message);
  process.exitCode = 1;
});
