/** The page: a dashboard with its variables, links, rows and panels, all of it at once and at full height. */
import "@fontsource/inter/400.css";
import "@fontsource/inter/500.css";
import "@fontsource/roboto-mono/400.css";
import "./page.css";
import { EventBusSrv, type TimeRange, createTheme, dateTimeFormat, rangeUtil } from "@grafana/data";
import { GlobalStyles, PanelContextProvider, ThemeContext } from "@grafana/ui";
import { createRoot } from "react-dom/client";
import { marksOf } from "./annotations";
import { type PanelModel, layout } from "./layout";
import { type Context, Panel } from "./panel";
import { type VariableModel, Variables } from "./variables";

/** What the driver gives, as JSON at /settings.json. */
interface Settings {
  dashboard: { uid?: string; title: string; panels: PanelModel[]; templating?: { list: VariableModel[] }; annotations?: { list: any[] }; links?: any[]; time?: { from: string; to: string } };
  variables: Record<string, string[]>;
  from?: string;
  to?: string;
  theme: "dark" | "light";
  width: number;
  open: boolean;
  scrapeInterval: string;
}
/** What the driver reads: it is done when all panels are. */
interface Report {
  error?: string;
  gaps: string[];
  panels: Record<string, { type: string; title: string; error?: string; gaps: string[]; done: boolean }>;
  ready: boolean;
}
const CELL = 30;
const GAP = 8;
const PADDING = 16;

const report: Report = ((window as any).preview = { gaps: [], panels: {}, ready: false });
(window as any).__grafana_public_path__ = "/public/";

function Head({ settings, variables, range }: { settings: Settings; variables: Variables; range: TimeRange }) {
  const format = (time: TimeRange["from"]) => dateTimeFormat(time, { format: "YYYY-MM-DD HH:mm:ss" });
  const shown = [...variables.all.values()].filter(({ model }) => model.hide !== 2);
  return (
    <header>
      <h1>{settings.dashboard.title}</h1>
      <div className="range">{`${format(range.from)} to ${format(range.to)}`}</div>
      <div className="controls">
        {shown.map(({ model, chosen }) => (
          <span key={model.name} className="variable" data-variable={model.name}>
            {model.hide !== 1 && <b>{model.label || model.name}</b>}
            <i>{chosen.map((option) => option.text).join(" + ") || "None"}</i>
          </span>
        ))}
        <span className="space" />
        {(settings.dashboard.links ?? []).map((link, index) => (
          <a key={index} className="link" href={link.type === "link" ? variables.interpolate(link.url ?? "") : undefined}>
            {link.type === "dashboards" && !link.title ? `dashboards tagged ${link.tags}` : variables.interpolate(link.title ?? "", {}, "text")}
          </a>
        ))}
      </div>
      {report.gaps.length > 0 && <div className="panel-gap">Not in this preview: {report.gaps.join("; ")}</div>}
    </header>
  );
}

async function start() {
  const settings: Settings = await (await fetch("/settings.json")).json();
  const { dashboard } = settings;
  const theme = createTheme({ colors: { mode: settings.theme } });
  const raw = { from: settings.from ?? dashboard.time?.from ?? "now-1h", to: settings.to ?? dashboard.time?.to ?? "now" };
  const numeric = (time: string) => (/^\d+$/.test(time) ? new Date(Number(time)).toISOString() : time);
  const range = rangeUtil.convertRawToRange({ from: numeric(raw.from), to: numeric(raw.to) });
  const variables = new Variables(dashboard, range);
  await Promise.all(["14px Inter", "500 14px Inter", "14px 'Roboto Mono'"].map((font) => document.fonts.load(font)));
  await variables.load(dashboard.templating?.list ?? [], settings.variables);
  const marks = await marksOf(dashboard.annotations?.list ?? [], variables, range, theme);
  const placed = layout(dashboard.panels ?? [], variables, settings.open);
  for (const { key, panel, scope } of placed) {
    if (panel.type !== "row") report.panels[key] = { type: panel.type, title: variables.interpolate(panel.title ?? "", scope as any, "text"), gaps: [], done: false };
  }
  report.gaps = [...marks.gaps, ...variables.gaps];
  const context: Context = {
    variables, range, theme, scrapeInterval: settings.scrapeInterval, marks: marks.of,
    report: (key, state) => {
      report.panels[key] = { ...report.panels[key]!, ...state };
      report.ready = Object.values(report.panels).every((panel) => panel.done);
    },
  };
  report.ready = Object.keys(report.panels).length === 0;
  const column = (settings.width - 2 * PADDING + GAP) / 24;
  const rowsBottom = placed.reduce((most, each) => Math.max(most, each.y + each.h), 0);
  const eventBus = new EventBusSrv();
  document.body.className = `theme-${settings.theme}`;
  createRoot(document.getElementById("root")!).render(
    <ThemeContext.Provider value={theme}>
      <GlobalStyles />
      <PanelContextProvider value={{ eventsScope: "global", eventBus }}>
        <Head settings={settings} variables={variables} range={range} />
        <main style={{ height: rowsBottom * (CELL + GAP) + PADDING }}>
          {placed.map((each) => {
            const width = each.w * column - GAP;
            const height = each.h * (CELL + GAP) - GAP;
            const style = { left: PADDING + each.x * column, top: each.y * (CELL + GAP), width, height };
            return (
              <div key={each.key} className="place" style={style}>
                {each.panel.type === "row" ? (
                  <h2 data-row={each.key}>{`${each.panel.collapsed && !settings.open ? "▸" : "▾"} ${variables.interpolate(each.panel.title ?? "", each.scope as any, "text")}`}</h2>
                ) : (
                  <Panel placed={each} context={context} width={width} height={height} />
                )}
              </div>
            );
          })}
        </main>
      </PanelContextProvider>
    </ThemeContext.Provider>,
  );
}

start().catch((error: Error) => {
  report.error = error.stack ?? error.message;
  document.body.textContent = report.error;
});
