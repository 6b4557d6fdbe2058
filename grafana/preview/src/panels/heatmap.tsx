/** Heatmap of rows: buckets of a histogram, or one series per row. Its panel is inside Grafana; colours and axes follow it. */
import { type DataFrame, DataFrameType, FieldType, colorManipulator, formattedValueToString, getDisplayProcessor, getFieldDisplayName } from "@grafana/data";
import * as schemes from "d3-scale-chromatic";
import { useCallback, useMemo } from "react";
import type uPlot from "uplot";
import { NoData } from "./nodata";
import { Plot } from "./plot";
import { type PanelProps } from "./types";

interface Cells {
  rows: Array<{ name: string; times: number[]; values: Array<number | null> }>;
  interval: number;
}

function cellsOf(frames: DataFrame[]): Cells {
  const rows = frames.flatMap((frame) => {
    const time = frame.fields.find((field) => field.type === FieldType.time);
    return !time ? [] : frame.fields.filter((field) => field.type === FieldType.number && !field.config.custom?.hideFrom?.viz).map((field) => ({ name: getFieldDisplayName(field, frame, frames), times: time.values, values: field.values }));
  });
  const gaps = rows.flatMap(({ times }) => times.slice(1).map((at, index) => at - times[index]!));
  const given = frames[0]?.fields.find((field) => field.type === FieldType.time)?.config.interval;
  return { rows: rows.filter(({ times }) => times.length), interval: given ?? gaps.reduce((least, gap) => Math.min(least, gap), 60_000) };
}

// Which of d3's schemes begin with their dark end; the others are turned on a dark page, these on a light one (heatmap/palettes.ts).
const DARK_AT_ZERO = new Set(["Turbo", "Cividis", "Viridis", "Magma", "Inferno", "Plasma", "Warm", "Cool", "CubehelixDefault"]);
const DIVERGING = new Set(["BrBG", "PiYG", "PRGn", "PuOr", "RdBu", "RdGy", "RdYlBu", "RdYlGn", "Spectral"]);

function palette({ mode = "scheme", scheme = "Oranges", steps = 64, reverse = false, fill = "dark-orange", exponent = 0.5, scale = "exponential" }: any, dark: boolean, byName: (name: string) => string): string[] {
  const at = Array.from({ length: steps }, (_, step) => step / (steps - 1 || 1));
  if (mode === "opacity") return at.map((part) => colorManipulator.alpha(byName(fill), scale === "linear" ? part : part ** exponent));
  const interpolate = (schemes as any)[`interpolate${scheme}`] as ((part: number) => string) | undefined;
  if (!interpolate) throw new Error(`a heatmap's scheme that is not known: ${scheme}`);
  const turned = DIVERGING.has(scheme) || dark !== DARK_AT_ZERO.has(scheme);
  return at.map((part) => interpolate(turned !== reverse ? 1 - part : part));
}

export function HeatmapPanel({ frames, options, width, height, range, theme, fieldConfig, gap }: PanelProps) {
  const color = options.color ?? {};
  const { rows, interval } = useMemo(() => cellsOf(frames), [frames]);
  const limits = useMemo(() => {
    const shown = rows.flatMap(({ values }) => values).filter((value): value is number => value !== null && Number.isFinite(value) && value > (options.filterValues?.le ?? 1e-9));
    return [color.min ?? shown.reduce((least, value) => Math.min(least, value), Infinity), color.max ?? shown.reduce((most, value) => Math.max(most, value), -Infinity)];
  }, [rows]);
  const [low, high] = limits as [number, number];
  const colors = useMemo(() => palette(color, theme.isDark, (name) => theme.visualization.getColorByName(name)), []);
  const draw = useCallback(
    (plot: uPlot, ctx: CanvasRenderingContext2D) => {
      const gapPx = (options.cellGap ?? 1) * devicePixelRatio;
      rows.forEach(({ times, values }, row) => {
        const top = plot.valToPos(row + 1, "y", true);
        const tall = plot.valToPos(row, "y", true) - top;
        times.forEach((at, index) => {
          const value = values[index];
          if (value === null || value === undefined || !Number.isFinite(value) || value <= (options.filterValues?.le ?? 1e-9) || value > (options.filterValues?.ge ?? Infinity)) return;
          const part = high > low ? (value - low) / (high - low) : 1;
          ctx.fillStyle = colors[Math.round(Math.min(Math.max(part, 0), 1) * (colors.length - 1))]!;
          const left = plot.valToPos(at - interval / 2, "x", true);
          const wide = plot.valToPos(at + interval / 2, "x", true) - left;
          ctx.fillRect(left, top, Math.max(wide - gapPx, 1), Math.max(tall - gapPx, 1));
        });
      });
    },
    [rows, low, high],
  );
  if (options.calculate) {
    gap("a heatmap that is calculated from values");
    return null;
  }
  if (!rows.length) return <NoData frames={frames} fieldConfig={fieldConfig} need="a time and a number" />;
  const display = getDisplayProcessor({ field: { type: FieldType.number, config: options.cellValues ?? {} }, theme });
  // A bucket's name is its upper bound, so it is written at its upper end; a series' name in the middle.
  const layout = options.rowsFrame?.layout && options.rowsFrame.layout !== "auto" ? options.rowsFrame.layout : frames[0]?.meta?.type === DataFrameType.HeatmapRows ? "le" : "unknown";
  const offset = layout === "le" ? 1 : layout === "ge" ? 0 : 0.5;
  const names = rows.map(({ name }) => name);
  const bar = options.legend?.show === false ? 0 : 34;
  return (
    <>
      <Plot
        width={width} height={height - bar} theme={theme} draw={draw} x={{ min: range.from.valueOf(), max: range.to.valueOf(), time: true, grid: false }}
        y={{ min: 0, max: rows.length, splits: rows.map((_, row) => row + offset), names, grid: false, hide: options.yAxis?.axisPlacement === "hidden", label: options.yAxis?.axisLabel }}
      />
      {bar > 0 && Number.isFinite(low) && (
        <div className="scale">
          <div style={{ background: `linear-gradient(90deg, ${colors.join(", ")})` }} />
          <span>{formattedValueToString(display(low))}</span>
          <span>{formattedValueToString(display(high))}</span>
        </div>
      )}
    </>
  );
}
