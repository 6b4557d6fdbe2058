/** Annotation queries of Prometheus, as its data source in Grafana makes events of them (@grafana/prometheus, annotations.ts). */
import { type DataFrame, type GrafanaTheme2, type TimeRange, rangeUtil } from "@grafana/data";
import { type Mark } from "./panels/types";
import { type Target, query } from "./prometheus";
import { type Variables } from "./variables";

interface AnnotationModel {
  name: string;
  enable?: boolean;
  builtIn?: number;
  type?: string;
  iconColor?: string;
  expr?: string;
  target?: Partial<Target>;
  step?: string;
  titleFormat?: string;
  textFormat?: string;
  useValueForTime?: boolean | string;
  filter?: { exclude?: boolean; ids?: number[] };
}
const DEFAULT_STEP = "60s";

function marks(frame: DataFrame, model: AnnotationModel, step: number, color: string): Mark[] {
  const [times, values] = frame.fields.map((field) => field.values as number[]);
  const labels = frame.fields[1]!.labels ?? {};
  const text = (model.titleFormat || "{{alertname}}").replace(/\{\{\s*(.+?)\s*\}\}/g, (_, label) => labels[label] ?? "") || model.name;
  if (model.useValueForTime === true || model.useValueForTime === "on") {
    return [...new Set(values)].filter(Number.isFinite).map((time) => ({ time, color, text }));
  }
  const active = times!.filter((_, index) => values![index]);
  const found: Mark[] = [];
  for (const time of active) {
    const last = found.at(-1);
    // Samples a step apart are one event.
    if (last && time - (last.end ?? last.time) <= step) last.end = time;
    else found.push({ time, color, text });
  }
  return found;
}

export async function marksOf(models: AnnotationModel[], variables: Variables, range: TimeRange, theme: GrafanaTheme2) {
  const gaps: string[] = [];
  const sets = await Promise.all(
    models.filter((model) => model.enable !== false && !model.builtIn).map(async (model) => {
      const expr = model.target?.expr ?? model.expr;
      if (!expr) {
        gaps.push(`annotation ${model.name}, which has no query to Prometheus`);
        return { model, found: [] };
      }
      const step = rangeUtil.intervalToMs(variables.interpolate((model.target as any)?.interval || model.step || DEFAULT_STEP));
      const frames = await query([{ target: { refId: model.name, expr, legendFormat: "__auto" }, expr: variables.interpolate(expr, { __interval: { text: "", value: `${step / 1000}s` } }, "prometheus"), step }], range);
      return { model, found: frames.flatMap((frame) => marks(frame, model, step, theme.visualization.getColorByName(model.iconColor ?? "blue"))) };
    }),
  );
  const of = (panel: number) => sets.filter(({ model }) => !model.filter?.ids?.length || model.filter.ids.includes(panel) !== Boolean(model.filter.exclude)).flatMap(({ found }) => found);
  return { of, gaps };
}
