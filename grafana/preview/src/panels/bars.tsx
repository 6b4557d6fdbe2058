/** Bar chart and pie chart. Their panels are inside Grafana; these are drawn with its axes, legends and displays. */
import { type Field, FieldType, colorManipulator, formattedValueToString, getFieldDisplayName, getFieldSeriesColor } from "@grafana/data";
import { LegendDisplayMode } from "@grafana/schema";
import { VizLayout, VizLegend, type VizLegendItem } from "@grafana/ui";
import { useCallback } from "react";
import type uPlot from "uplot";
import { NoData } from "./nodata";
import { Plot, extent } from "./plot";
import { displays } from "./single";
import { type PanelProps } from "./types";

/** An element of VizLayout's own kind, since that looks at its placement. */
function legend(options: any, items: VizLegendItem[]) {
  if (options.legend?.showLegend === false) return null;
  const placement = options.legend?.placement ?? "bottom";
  const displayMode = options.legend?.displayMode === "table" ? LegendDisplayMode.Table : LegendDisplayMode.List;
  return <VizLayout.Legend placement={placement}><VizLegend placement={placement} items={items} displayMode={displayMode} /></VizLayout.Legend>;
}

interface Bar {
  from: number;
  to: number;
  row: number;
  slot: number;
  field: Field;
  value: number;
}

export function BarChartPanel({ frames, options, width, height, theme, fieldConfig, gap }: PanelProps) {
  const frame = frames.find(({ fields }) => fields.some(({ type }) => type === FieldType.string || type === FieldType.time));
  const named = frame?.fields.find((field) => (options.xField ? getFieldDisplayName(field, frame, frames) === options.xField : field.type === FieldType.string)) ?? frame?.fields.find((field) => field.type === FieldType.time);
  const series = frame?.fields.filter((field) => field.type === FieldType.number && field !== named && !field.config.custom?.hideFrom?.viz) ?? [];
  const length = frame?.length ?? 0;
  const stacking = options.stacking ?? "none";
  const upright = options.orientation === "vertical" || (options.orientation !== "horizontal" && width >= height);
  const sums = Array.from({ length }, (_, row) => series.reduce((sum, field) => sum + Math.abs(field.values[row] ?? 0), 0));
  const bars: Bar[] = Array.from({ length }).flatMap((_, row) => {
    let base = 0;
    return series.flatMap((field, index) => {
      const raw = field.values[row];
      if (raw === null || raw === undefined) return [];
      const value = stacking === "percent" ? raw / (sums[row] || 1) : raw;
      const from = stacking === "none" ? 0 : base;
      base += value;
      return [{ from, to: from + value, row, slot: stacking === "none" ? index : 0, field, value: raw }];
    });
  });
  const draw = useCallback(
    (plot: uPlot, ctx: CanvasRenderingContext2D) => {
      const slots = stacking === "none" ? series.length : 1;
      const group = options.groupWidth ?? 0.7;
      ctx.font = `${12 * devicePixelRatio}px ${theme.typography.fontFamily}`;
      for (const { from, to, row, slot, field, value } of bars) {
        const along = upright ? row : length - row - 1;
        const middle = along + 0.5 - group / 2 + (group / slots) * (slot + 0.5);
        const half = (group / slots) * (options.barWidth ?? 0.97) * 0.5;
        const [c1, c2] = [plot.valToPos(middle - half, upright ? "x" : "y", true), plot.valToPos(middle + half, upright ? "x" : "y", true)];
        const [v1, v2] = [plot.valToPos(from, upright ? "y" : "x", true), plot.valToPos(to, upright ? "y" : "x", true)];
        const color = (field.config.color?.mode === "thresholds" ? field.display?.(value).color : undefined) ?? getFieldSeriesColor(field, theme).color ?? "#808080";
        const { fillOpacity = 80, lineWidth = 1 } = field.config.custom ?? {};
        const box: [number, number, number, number] = upright ? [c1, v2, c2 - c1, v1 - v2] : [v1, c2, v2 - v1, c1 - c2];
        ctx.fillStyle = colorManipulator.alpha(color, fillOpacity / 100);
        ctx.strokeStyle = color;
        ctx.lineWidth = lineWidth * devicePixelRatio;
        ctx.fillRect(...box);
        if (lineWidth) ctx.strokeRect(...box);
        const text = formattedValueToString(field.display!(value));
        if (options.showValue === "never" || (options.showValue !== "always" && ctx.measureText(text).width > (upright ? c2 - c1 : Infinity)) || stacking !== "none") continue;
        ctx.fillStyle = theme.colors.text.primary;
        ctx.textAlign = upright ? "center" : "left";
        ctx.textBaseline = upright ? "bottom" : "middle";
        ctx.fillText(text, upright ? (c1 + c2) / 2 : v2 + 4 * devicePixelRatio, upright ? v2 - 2 * devicePixelRatio : (c1 + c2) / 2);
      }
    },
    [frames],
  );
  if (!frame || !named || !series.length) return <NoData frames={frames} fieldConfig={fieldConfig} need="a name and a number" />;
  if (options.colorByField) gap("bars coloured by another field");
  if (options.xTickLabelRotation) gap("turned names of bars");
  const first = series[0]!;
  const [low, high] = stacking === "percent" ? [0, 1] : extent([0, ...bars.map(({ to }) => to)], undefined, first.config.min, first.config.max);
  const format = (value: number) => (stacking === "percent" ? `${Math.round(value * 100)}%` : formattedValueToString(first.display!(value)));
  const measure = { min: low, max: high, format, label: first.config.custom?.axisLabel || undefined };
  const names = Array.from({ length }, (_, row) => formattedValueToString(named.display!(named.values[row])));
  const category = { min: 0, max: length, splits: names.map((_, row) => row + 0.5), names: upright ? names : [...names].reverse(), grid: false };
  const items = series.map((field) => ({ label: getFieldDisplayName(field, frame, frames), color: getFieldSeriesColor(field, theme).color, yAxis: 1 }));
  return (
    <VizLayout width={width} height={height} legend={legend(options, items)}>
      {(inner, innerHeight) => <Plot width={inner} height={innerHeight} theme={theme} draw={draw} x={upright ? category : measure} y={upright ? measure : category} />}
    </VizLayout>
  );
}

export function PiePanel(props: PanelProps) {
  const { options, width, height, theme, frames, fieldConfig } = props;
  const values = displays(props, false).filter(({ display }) => Number.isFinite(display.numeric));
  if (!values.length) return <NoData frames={frames} fieldConfig={fieldConfig} />;
  const total = values.reduce((sum, { display }) => sum + Math.max(display.numeric, 0), 0);
  const percent = (value: number) => `${((value / (total || 1)) * 100).toFixed(0)}%`;
  const parts: string[] = options.displayLabels ?? [];
  const wanted: string[] = options.legend?.values ?? [];
  const items = values.map(({ display }) => ({
    label: display.title ?? "", color: display.color, yAxis: 1,
    getDisplayValues: () => [...(wanted.includes("value") ? [{ ...display, title: "Value" }] : []), ...(wanted.includes("percent") ? [{ numeric: display.numeric, text: percent(display.numeric), title: "Percent" }] : [])],
  }));
  let before = 0;
  const slices = values.map(({ display }) => {
    const share = Math.max(display.numeric, 0) / (total || 1);
    const [from, to] = [before, (before += share)];
    const label = [parts.includes("name") && display.title, parts.includes("percent") && percent(display.numeric), parts.includes("value") && formattedValueToString(display)].filter(Boolean).join(" ");
    return { from, to, color: display.color, label };
  });
  const point = (part: number, radius: number) => `${(radius * Math.sin(part * 2 * Math.PI)).toFixed(2)} ${(-radius * Math.cos(part * 2 * Math.PI)).toFixed(2)}`;
  return (
    <VizLayout width={width} height={height} legend={legend(options, items)}>
      {(inner, innerHeight) => {
        const radius = Math.max(Math.min(inner, innerHeight) / 2 - 8, 10);
        const hole = options.pieType === "donut" ? radius * 0.6 : 0;
        return (
          <svg width={inner} height={innerHeight} viewBox={`${-inner / 2} ${-innerHeight / 2} ${inner} ${innerHeight}`}>
            {slices.map(({ from, to, color, label }, index) => {
              const far = Math.min(to, from + 0.99999);
              const large = far - from > 0.5 ? 1 : 0;
              const [x, y] = point((from + to) / 2, hole ? (radius + hole) / 2 : radius * 0.65).split(" ");
              return (
                <g key={index}>
                  <path d={`M ${point(from, radius)} A ${radius} ${radius} 0 ${large} 1 ${point(far, radius)} L ${point(far, hole)} A ${hole} ${hole} 0 ${large} 0 ${point(from, hole)} Z`} fill={color} stroke={theme.colors.background.primary} />
                  {label && to - from > 0.04 && <text x={x} y={y} textAnchor="middle" dominantBaseline="middle" fontSize={12} fill={theme.colors.getContrastText(color ?? "#808080")}>{label}</text>}
                </g>
              );
            })}
          </svg>
        );
      }}
    </VizLayout>
  );
}
