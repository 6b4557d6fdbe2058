/** One panel: its queries, transformations, field configuration, frame and drawing. */
import { type DataFrame, type GrafanaTheme2, type InterpolateFunction, type ScopedVars, type TimeRange, renderTextPanelMarkdown, textUtil } from "@grafana/data";
import { Icon, PanelChrome } from "@grafana/ui";
import { Component, type ComponentType, type ReactNode, useEffect, useState } from "react";
import { completed, transformed, withFieldConfig } from "./fields";
import { type Placed } from "./layout";
import { BarChartPanel, PiePanel } from "./panels/bars";
import { GaugePanel } from "./panels/gauge";
import { HeatmapPanel } from "./panels/heatmap";
import { BarGaugePanel, StatPanel } from "./panels/single";
import { StatePanel } from "./panels/state";
import { TablePanel } from "./panels/table";
import { TimeSeriesPanel } from "./panels/timeseries";
import { type Mark, type PanelProps } from "./panels/types";
import { XYPanel } from "./panels/xychart";
import { type Ask, type Target, query, timing } from "./prometheus";
import { type Variables } from "./variables";

const PANELS: Record<string, ComponentType<PanelProps>> = {
  timeseries: TimeSeriesPanel,
  stat: StatPanel,
  bargauge: BarGaugePanel,
  table: TablePanel,
  "state-timeline": (props) => <StatePanel {...props} history={false} />,
  "status-history": (props) => <StatePanel {...props} history />,
  heatmap: HeatmapPanel,
  xychart: XYPanel,
  gauge: GaugePanel,
  piechart: PiePanel,
  barchart: BarChartPanel,
};
const seconds = (ms: number) => (ms % 1000 ? `${ms}ms` : `${ms / 1000}s`);

export interface Context {
  variables: Variables;
  range: TimeRange;
  theme: GrafanaTheme2;
  marks: (panelId: number) => Mark[];
  scrapeInterval: string;
  /** What the page reports to the program that drives it. */
  report: (key: string, state: { error?: string; gaps: string[]; done: boolean }) => void;
}

/** What throws while it is drawn is said in its panel, and reported. */
class Boundary extends Component<{ children: ReactNode; failed: (error: Error) => void }, { error?: Error }> {
  override state: { error?: Error } = {};
  static getDerivedStateFromError = (error: Error) => ({ error });
  override componentDidCatch = (error: Error) => this.props.failed(error);
  override render = () => (this.state.error ? <Failure text={`${this.state.error.message}`} /> : this.props.children);
}

const Failure = ({ text }: { text: string }) => <pre className="panel-error">{text}</pre>;

function interpolator(placed: Placed, { variables }: Context, extra: ScopedVars = {}): InterpolateFunction {
  return (text, scoped, format) => variables.interpolate(text ?? "", { ...placed.scope, ...extra, ...scoped } as any, typeof format === "string" ? format : undefined);
}

async function data(placed: Placed, context: Context, width: number, gaps: Set<string>): Promise<DataFrame[]> {
  const { panel } = placed;
  for (const key of ["timeFrom", "timeShift", "libraryPanel"]) if (panel[key]) gaps.add(`the panel's ${key}`);
  const asks: Ask[] = ((panel.targets ?? []) as Target[]).filter((target) => !target.hide && target.expr).map((target) => {
    const panelMin = panel.interval && interpolator(placed, context)(panel.interval);
    const { step, rateInterval } = timing(target, context.range, panel.maxDataPoints ?? width, panelMin, context.scrapeInterval, target.interval && interpolator(placed, context)(target.interval));
    const scoped = (text: string) => ({ text, value: text });
    const extra = { __interval: scoped(seconds(step)), __interval_ms: scoped(`${step}`), __rate_interval: scoped(seconds(rateInterval)), __rate_interval_ms: scoped(`${rateInterval}`) };
    return { target, step, expr: interpolator(placed, context, extra)(target.expr, undefined, "prometheus") };
  });
  for (const target of panel.targets ?? []) {
    const source = target.datasource ?? panel.datasource;
    const type = source?.type ?? "prometheus";
    if (type !== "prometheus") gaps.add(`query ${target.refId} to a data source of type ${type}`);
  }
  const frames = await query(asks, context.range);
  return transformed(panel.transformations ?? [], frames, interpolator(placed, context), gaps);
}

function Text({ placed, context }: { placed: Placed; context: Context }) {
  const { mode = "markdown", content = "" } = placed.panel.options ?? {};
  const text = interpolator(placed, context)(content, undefined, "text");
  return <div className="markdown-html text-panel" dangerouslySetInnerHTML={{ __html: mode === "markdown" ? renderTextPanelMarkdown(text) : textUtil.sanitizeTextPanelContent(text) }} />;
}

export function Panel({ placed, context, width, height }: { placed: Placed; context: Context; width: number; height: number }) {
  const { panel, key } = placed;
  const [state, setState] = useState<{ frames?: DataFrame[]; error?: string }>({});
  const [gaps] = useState(() => new Set<string>());
  const [, redraw] = useState(0);
  const Drawing = PANELS[panel.type];
  const unknown = panel.type !== "text" && !Drawing;

  useEffect(() => {
    if (unknown) gaps.add(`panels of type ${panel.type}`);
    const load = panel.type === "text" || unknown ? Promise.resolve([]) : data(placed, context, width, gaps);
    load.then(
      (frames) => setState({ frames }),
      (error: Error) => setState({ error: error.message }),
    );
  }, []);
  useEffect(() => {
    if (!state.frames && !state.error) return;
    redraw((n) => n + 1); // with the gaps that drawing met
    context.report(key, { error: state.error, gaps: [...gaps], done: true });
  }, [state, gaps.size]);

  const replaceVariables = interpolator(placed, context);
  const text = (value: string | undefined) => replaceVariables(value ?? "", undefined, "text");
  const links = (panel.links ?? []) as Array<{ title: string; url: string }>;
  const draw = (inner: number, innerHeight: number) => {
    const shown = innerHeight - (gaps.size ? 22 : 0);
    if (state.error) return <Failure text={state.error} />;
    if (unknown || !state.frames) return null;
    if (panel.type === "text") return <Text placed={placed} context={context} />;
    return <Drawn Drawing={Drawing!} panel={panel} frames={state.frames} width={inner} height={shown} context={context} replaceVariables={replaceVariables} gaps={gaps} />;
  };
  const failed = (error: Error) => setState({ error: error.message });
  return (
    <section data-panel={key} data-type={panel.type} style={{ width, height }}>
      <PanelChrome
        width={width} height={height} title={text(panel.title)} description={panel.description && (() => renderTextPanelMarkdown(text(panel.description)))} displayMode={panel.transparent ? "transparent" : "default"} padding={panel.type === "table" ? "none" : "md"}
        titleItems={links.length ? links.map((link) => <a key={link.title} title={text(link.title)} href={replaceVariables(link.url)}><Icon name="external-link-alt" /></a>) : undefined}
      >
        {(inner, innerHeight) => (
          <>
            <Boundary failed={failed}>{draw(inner, innerHeight)}</Boundary>
            {gaps.size > 0 && <div className="panel-gap">Not in this preview: {[...gaps].join("; ")}</div>}
          </>
        )}
      </PanelChrome>
    </section>
  );
}

interface DrawnProps {
  Drawing: ComponentType<PanelProps>;
  panel: Placed["panel"];
  frames: DataFrame[];
  width: number;
  height: number;
  context: Context;
  replaceVariables: InterpolateFunction;
  gaps: Set<string>;
}
/** Fields are configured here, in the drawing, so that what throws meets the boundary. */
function Drawn({ Drawing, panel, frames, width, height, context, replaceVariables, gaps }: DrawnProps) {
  const [{ fieldConfig, configured }] = useState(() => {
    const complete = completed(panel.type, panel.fieldConfig);
    return { fieldConfig: complete, configured: withFieldConfig(frames, complete, context.theme, replaceVariables, gaps) };
  });
  return (
    <Drawing
      frames={configured} options={panel.options ?? {}} fieldConfig={fieldConfig} width={width} height={height} range={context.range} theme={context.theme} marks={context.marks(panel.id)} replaceVariables={replaceVariables}
      gap={(what) => gaps.add(what)}
    />
  );
}
