/** State timeline and status history. Their panels are inside Grafana; this draws rows of boxes as they do. */
import { type DataFrame, type Field, FieldColorModeId, FieldType, colorManipulator, formattedValueToString, getFieldColorModeForField, getFieldDisplayName } from "@grafana/data";
import { LegendDisplayMode } from "@grafana/schema";
import { VizLayout, VizLegend } from "@grafana/ui";
import { useCallback, useMemo } from "react";
import type uPlot from "uplot";
import { NoData } from "./nodata";
import { Plot, inkFor } from "./plot";
import { type PanelProps } from "./types";

interface Box {
  from: number;
  to: number;
  text: string;
  color: string;
}
interface Row {
  name: string;
  field: Field;
  boxes: Box[];
}

/** A state lasts until the next sample, or for an interval where there is none. */
function boxesOf(time: Field, field: Field, end: number, merge: boolean, centred: boolean): Box[] {
  const times = time.values as number[];
  const interval = time.config.interval ?? Math.min(...times.slice(1).map((at, index) => at - times[index]!), end - times[0]!);
  const spans = field.config.custom?.spanNulls;
  const longest = spans === true ? Infinity : typeof spans === "number" ? spans : interval * 1.5;
  const boxes: Box[] = [];
  let open = false;
  times.forEach((at, index) => {
    const value = field.values[index];
    if (value === null || value === undefined) {
      open = open && spans === true;
      return;
    }
    const { color = "#808080", ...display } = field.display!(value);
    const text = formattedValueToString(display);
    if (centred) {
      boxes.push({ from: at - interval / 2, to: at + interval / 2, text, color });
      return;
    }
    const next = times[index + 1] ?? Infinity;
    const to = next - at <= longest ? Math.min(next, end) : next === Infinity && end - at <= interval ? end : Math.min(at + interval, end);
    const last = boxes.at(-1);
    const joined = open && last && at - last.to <= (spans === true ? Infinity : 0);
    if (joined) last.to = at;
    if (joined && merge && last.text === text && last.color === color) last.to = to;
    else boxes.push({ from: at, to, text, color });
    open = true;
  });
  return boxes;
}

function rowsOf(frames: DataFrame[], end: number, merge: boolean, centred: boolean): Row[] {
  return frames.flatMap((frame) => {
    const time = frame.fields.find((field) => field.type === FieldType.time);
    if (!time?.values.length) return [];
    return frame.fields.filter((field) => field.type !== FieldType.time && !field.config.custom?.hideFrom?.viz)
      .map((field) => ({ name: getFieldDisplayName(field, frame, frames), field, boxes: boxesOf(time, field, end, merge, centred) }));
  });
}

function legendItems(rows: Row[]) {
  if (rows.some(({ field }) => getFieldColorModeForField(field).isContinuous)) return [];
  const items = new Map(rows.flatMap(({ boxes }) => boxes).map(({ text, color }) => [`${text}${color}`, { label: text, color, yAxis: 1 }]));
  const field = rows[0]!.field;
  if (field.config.color?.mode === FieldColorModeId.Thresholds && !field.config.mappings?.length) {
    const steps = field.config.thresholds?.steps ?? [];
    return steps.map((step, index) => ({ label: `${index ? formattedValueToString(field.display!(step.value)) : "<"}${index ? "+" : ` ${steps[1] ? formattedValueToString(field.display!(steps[1].value)) : ""}`}`, color: step.color, yAxis: 1 }));
  }
  return [...items.values()];
}

export function StatePanel({ history, ...props }: PanelProps & { history: boolean }) {
  const { frames, options, width, height, range, theme, fieldConfig, gap } = props;
  const all = useMemo(() => rowsOf(frames, range.to.valueOf(), options.mergeValues ?? true, history), [frames]);
  const perPage = options.perPage || 20;
  const rows = useMemo(() => all.slice(0, perPage), [all]);
  const showValue = options.showValue ?? "auto";
  const draw = useCallback(
    (plot: uPlot, ctx: CanvasRenderingContext2D) => {
      const ratio = devicePixelRatio;
      const full = plot.bbox.height / rows.length;
      const tall = full * (options.rowHeight ?? 0.9);
      ctx.font = `${12 * ratio}px ${theme.typography.fontFamily}`;
      ctx.textBaseline = "middle";
      rows.forEach(({ field, boxes }, row) => {
        const top = plot.bbox.top + row * full + (full - tall) / 2;
        const { fillOpacity = 70, lineWidth = 0 } = field.config.custom ?? {};
        for (const box of boxes) {
          const wide = history ? (plot.valToPos(box.to, "x", true) - plot.valToPos(box.from, "x", true)) * (options.colWidth ?? 0.9) : plot.valToPos(box.to, "x", true) - plot.valToPos(box.from, "x", true);
          const left = history ? plot.valToPos((box.from + box.to) / 2, "x", true) - wide / 2 : plot.valToPos(box.from, "x", true);
          ctx.fillStyle = colorManipulator.alpha(box.color, fillOpacity / 100);
          ctx.fillRect(left, top, wide, tall);
          if (lineWidth) {
            ctx.strokeStyle = box.color;
            ctx.lineWidth = lineWidth * ratio;
            ctx.strokeRect(left, top, wide, tall);
          }
          const room = Math.min(wide, plot.bbox.left + plot.bbox.width - left) - 6 * ratio;
          if (showValue === "never" || (showValue === "auto" && ctx.measureText(box.text).width > room)) continue;
          const align = history ? "center" : (options.alignValue ?? "left");
          ctx.fillStyle = fillOpacity > 50 ? inkFor(theme, box.color) : theme.colors.text.primary;
          ctx.textAlign = align;
          ctx.fillText(box.text, align === "left" ? left + 4 * ratio : align === "right" ? left + wide - 4 * ratio : left + wide / 2, top + tall / 2);
        }
      });
    },
    [rows],
  );
  if (!rows.length) return <NoData frames={frames} fieldConfig={fieldConfig} need="a time field" />;
  if (all.length > perPage) gap(`the pages after the first, of ${perPage} rows each: there are ${all.length} rows`);
  const names = rows.map(({ name }) => name);
  const items = options.legend?.showLegend === false ? [] : legendItems(rows);
  const legend = items.length ? <VizLayout.Legend placement={options.legend?.placement ?? "bottom"}><VizLegend placement={options.legend?.placement ?? "bottom"} items={items} displayMode={LegendDisplayMode.List} /></VizLayout.Legend> : null;
  const hide = rows[0]!.field.config.custom?.axisPlacement === "hidden";
  return (
    <VizLayout width={width} height={height} legend={legend}>
      {(inner, innerHeight) => (
        <Plot
          width={inner} height={innerHeight} theme={theme} draw={draw} x={{ min: range.from.valueOf(), max: range.to.valueOf(), time: true }}
          y={{ min: 0, max: rows.length, splits: rows.map((_, row) => rows.length - row - 0.5).reverse(), names: [...names].reverse(), grid: false, hide }}
        />
      )}
    </VizLayout>
  );
}
