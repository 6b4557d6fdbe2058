/**
 * Prometheus' HTTP API, and its answers as Grafana's data frames.
 *
 * Grafana makes these frames in its server (pkg/promlib, Go) and in @grafana/prometheus, whose published versions
 * want a React and peers that @grafana/ui of the same day does not; this follows both.
 */
import { type DataFrame, DataFrameType, type Field, FieldType, type TimeRange, createDataFrame, rangeUtil } from "@grafana/data";

export interface Target {
  refId: string;
  expr: string;
  legendFormat?: string;
  format?: "time_series" | "table" | "heatmap";
  instant?: boolean;
  range?: boolean;
  interval?: string;
  intervalFactor?: number;
  hide?: boolean;
}
type Labels = Record<string, string>;
interface Series {
  metric: Labels;
  values?: Array<[number, string]>;
  value?: [number, string];
}
interface Answer {
  resultType: "matrix" | "vector" | "scalar" | "string";
  result: Series[] | [number, string];
}

const BASE = "/prometheus/api/v1/";
/** Prometheus refuses more points than this for a series; Grafana widens the step to have fewer. */
const MOST_POINTS = 11000;

export async function call<T>(path: string, parameters: Record<string, string> = {}, post = false): Promise<T> {
  const body = new URLSearchParams(parameters);
  const response = post ? await fetch(BASE + path, { method: "POST", body }) : await fetch(`${BASE}${path}?${body}`);
  const text = await response.text();
  let answer: { status: string; error?: string; data: T };
  try {
    answer = JSON.parse(text);
  } catch {
    throw new Error(`Prometheus answered ${response.status}: ${text.slice(0, 200)}`);
  }
  if (answer.status !== "success") throw new Error(`${answer.error}`);
  return answer.data;
}

const SPECIAL: Record<string, number> = { "+Inf": Infinity, Inf: Infinity, "-Inf": -Infinity, NaN: NaN };
const number = (text: string) => SPECIAL[text] ?? Number(text);

function seriesText({ __name__: name = "", ...labels }: Labels): string {
  const pairs = Object.keys(labels).sort().map((label) => `${label}="${labels[label]}"`);
  return pairs.length || !name ? `${name}{${pairs.join(", ")}}` : name;
}

/** What the server calls a series; undefined where Grafana makes a name of the labels that differ. */
function legend(labels: Labels, target: Target, expr: string): string | undefined {
  const format = target.legendFormat ?? "";
  if (format === "__auto") return Object.keys(labels).length ? undefined : expr;
  const text = format ? format.replace(/\{\{\s*(.+?)\s*\}\}/g, (_, label) => labels[label] ?? "") : seriesText(labels);
  return text === "{}" ? expr : text;
}

/** Milliseconds between two points of a query, and its $__rate_interval (promlib/models/query.go). */
export function timing(target: Target, range: TimeRange, points: number, panelMin: string | undefined, scrapeInterval: string, minInterval?: string) {
  const scrape = rangeUtil.intervalToMs(minInterval || panelMin || scrapeInterval);
  const interval = rangeUtil.calculateInterval(range, points, minInterval || panelMin || scrapeInterval).intervalMs;
  const safe = Math.ceil((range.to.valueOf() - range.from.valueOf()) / MOST_POINTS / 1000) * 1000;
  const step = Math.max(interval * (target.intervalFactor || 1), safe);
  return { step, rateInterval: Math.max(step + scrape, 4 * scrape) };
}

async function ask(target: Target, expr: string, range: TimeRange, step: number, instant: boolean): Promise<DataFrame[]> {
  const to = range.to.valueOf();
  const aligned = (time: number) => `${(Math.floor(time / step) * step) / 1000}`;
  const data = instant
    ? await call<Answer>("query", { query: expr, time: `${to / 1000}` }, true)
    : await call<Answer>("query_range", { query: expr, start: aligned(range.from.valueOf()), end: aligned(to), step: `${step / 1000}` }, true);
  if (data.resultType === "string") throw new Error("the answer is a string");
  const series = data.resultType === "scalar" ? [{ metric: {}, value: data.result as [number, string] }] : (data.result as Series[]);
  return series.map(({ metric, values, value }) => {
    const samples = values ?? (value ? [value] : []);
    const name = legend(metric, target, expr);
    const display = name === undefined ? {} : { displayNameFromDS: name };
    return createDataFrame({
      refId: target.refId,
      name,
      meta: { type: instant ? DataFrameType.NumericMulti : DataFrameType.TimeSeriesMulti, executedQueryString: expr },
      fields: [
        { name: "Time", type: FieldType.time, config: instant ? {} : { interval: step }, values: samples.map((sample) => sample[0] * 1000) },
        { name: "Value", type: FieldType.number, labels: metric, config: display, values: samples.map((sample) => number(sample[1])) },
      ],
    });
  });
}

/** One table per query, with a column per label (@grafana/prometheus, transformDFToTable). */
function table(frames: DataFrame[], valueName: string): DataFrame {
  const names = [...new Set(frames.flatMap((frame) => Object.keys(frame.fields[1]!.labels ?? {})))].sort();
  const rows = frames.flatMap((frame) => frame.fields[0]!.values.map((time, row) => ({ time, value: frame.fields[1]!.values[row], labels: frame.fields[1]!.labels ?? {} })));
  const fields: Array<Partial<Field> & { name: string }> = [
    { name: "Time", type: FieldType.time, config: {}, values: rows.map((row) => row.time) },
    ...names.map((name) => {
      const texts = rows.map((row) => row.labels[name] ?? "");
      return name === "le"
        ? { name, type: FieldType.number, config: { filterable: true }, values: texts.map(number) }
        : { name, type: FieldType.string, config: { filterable: true }, values: texts };
    }),
    { name: valueName, type: FieldType.number, config: {}, values: rows.map((row) => row.value) },
  ];
  return createDataFrame({ refId: frames[0]!.refId, meta: { ...frames[0]!.meta, preferredVisualisationType: "table" }, fields });
}

/** Cumulative buckets as one frame of counts per bucket, the lowest first (transformToHistogramOverTime). */
function heatmap(frames: DataFrame[]): DataFrame {
  const bound = (frame: DataFrame) => number(frame.fields[1]!.labels?.le ?? frame.name ?? "");
  const sorted = [...frames].sort((a, b) => bound(a) - bound(b));
  const times = [...new Set(sorted.flatMap((frame) => frame.fields[0]!.values as number[]))].sort((a, b) => a - b);
  const cumulative = sorted.map((frame) => {
    const at = new Map(frame.fields[0]!.values.map((time, row) => [time, frame.fields[1]!.values[row] as number]));
    return times.map((time) => at.get(time) ?? 0);
  });
  return createDataFrame({
    refId: frames[0]!.refId,
    meta: { ...frames[0]!.meta, type: DataFrameType.HeatmapRows },
    fields: [
      { ...frames[0]!.fields[0]!, values: times },
      ...sorted.map((frame, row) => ({
        ...frame.fields[1]!,
        name: frame.fields[1]!.config.displayNameFromDS ?? frame.fields[1]!.labels?.le ?? "",
        values: cumulative[row]!.map((count, column) => (row ? Math.max(count - cumulative[row - 1]![column]!, 0) : count)),
      })),
    ],
  });
}

export interface Ask {
  target: Target;
  expr: string;
  step: number;
}

/** The frames of a panel's queries. */
export async function query(asks: Ask[], range: TimeRange): Promise<DataFrame[]> {
  const answers = await Promise.all(
    asks.map(async ({ target, expr, step }) => {
      const both = target.instant && target.range;
      const parts = await Promise.all([
        ...(both || !target.instant ? [ask(target, expr, range, step, false)] : []),
        ...(target.instant ? [ask(target, expr, range, step, true)] : []),
      ]).catch((error: Error) => Promise.reject(new Error(`query ${target.refId}: ${error.message}\n${expr}`)));
      return { target, frames: parts.flat() };
    }),
  );
  const tables = answers.filter(({ target, frames }) => target.format === "table" && frames.length).length;
  return answers.flatMap(({ target, frames }) => {
    if (!frames.length) return [];
    if (target.format === "table") return [table(frames, tables > 1 ? `Value #${target.refId}` : "Value")];
    if (target.format === "heatmap") return [heatmap(frames)];
    return frames;
  });
}
