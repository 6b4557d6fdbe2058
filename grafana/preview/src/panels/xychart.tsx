/** XY chart: points and lines of a number over a number. Its panel is inside Grafana; this follows its options since Grafana 11.3. */
import { type DataFrame, type Field, FieldType, colorManipulator, formattedValueToString, getFieldDisplayName, getFieldMatcher, getFieldSeriesColor } from "@grafana/data";
import { LegendDisplayMode } from "@grafana/schema";
import { VizLayout, VizLegend } from "@grafana/ui";
import { useCallback, useMemo } from "react";
import type uPlot from "uplot";
import { NoData } from "./nodata";
import { Plot, extent } from "./plot";
import { type PanelProps } from "./types";

interface Series {
  name: string;
  x: Field;
  y: Field;
  color: string;
  colors?: Field;
  sizes?: Field;
}

function seriesOf(frames: DataFrame[], options: any, theme: PanelProps["theme"]): Series[] {
  const configs: any[] = options.series?.length ? options.series : [{}];
  const manual = options.mapping === "manual";
  const found = configs.flatMap((config) =>
    frames.flatMap((frame, frameIndex) => {
      if (config.frame?.matcher && (config.frame.matcher.options ?? 0) !== frameIndex) return [];
      const pick = (part: any, otherwise?: (field: Field) => boolean) => {
        const matches = part?.matcher ? getFieldMatcher(part.matcher) : undefined;
        return frame.fields.filter((field) => (matches ? matches(field, frame, frames) : otherwise?.(field)));
      };
      const isNumber = (field: Field) => field.type === FieldType.number;
      const x = pick(config.x, isNumber)[0];
      if (!x) return [];
      const reserved = [x, ...pick(config.size), ...pick(config.color)];
      const ys = pick(config.y, (field) => isNumber(field) && !reserved.includes(field));
      return (manual ? ys.slice(0, 1) : ys).filter((y) => y !== x && !y.config.custom?.hideFrom?.viz).map((y) => ({
        name: config.name?.fixed ?? getFieldDisplayName(y, frame, frames), x, y, colors: pick(config.color)[0], sizes: pick(config.size)[0],
        color: config.color?.fixed ? theme.visualization.getColorByName(config.color.fixed) : (getFieldSeriesColor(y, theme).color ?? "#808080"),
      }));
    }),
  );
  return found;
}

const logOf = (field: Field): number | undefined => (field.config.custom?.scaleDistribution?.type === "log" ? (field.config.custom.scaleDistribution.log ?? 2) : undefined);

function shape(ctx: CanvasRenderingContext2D, kind: string, x: number, y: number, size: number) {
  ctx.beginPath();
  if (kind === "square") ctx.rect(x - size / 2, y - size / 2, size, size);
  else ctx.arc(x, y, size / 2, 0, 2 * Math.PI);
}

export function XYPanel({ frames, options, width, height, theme, fieldConfig, gap }: PanelProps) {
  const series = useMemo(() => seriesOf(frames, options, theme), [frames]);
  const draw = useCallback(
    (plot: uPlot, ctx: CanvasRenderingContext2D) => {
      for (const { x, y, color, colors, sizes } of series) {
        const { show = "points", lineWidth = 1, lineStyle, pointSize, pointShape = "circle", pointStrokeWidth = 1, fillOpacity = 50 } = y.config.custom ?? {};
        const points = x.values.flatMap((at: number, index) => {
          const value = y.values[index] as number | null;
          if (!Number.isFinite(at) || value === null || !Number.isFinite(value) || (logOf(x) && at <= 0) || (logOf(y) && value <= 0)) return [];
          return [{ index, left: plot.valToPos(at, "x", true), top: plot.valToPos(value, "y", true) }];
        });
        ctx.strokeStyle = color;
        if (show !== "points") {
          ctx.lineWidth = lineWidth * devicePixelRatio;
          ctx.setLineDash(lineStyle?.fill === "dash" || lineStyle?.fill === "dot" ? (lineStyle.dash ?? (lineStyle.fill === "dot" ? [0, 10] : [10, 10])).map((part: number) => part * devicePixelRatio) : []);
          ctx.beginPath();
          points.forEach(({ left, top }, index) => (index ? ctx.lineTo(left, top) : ctx.moveTo(left, top)));
          ctx.stroke();
          ctx.setLineDash([]);
        }
        if (show === "lines") continue;
        const { min = 5, max = 100, fixed = 5 } = pointSize ?? {};
        const [low, high] = sizes ? [Math.min(...sizes.values), Math.max(...sizes.values)] : [0, 0];
        for (const { index, left, top } of points) {
          const size = sizes && high > low ? min + ((sizes.values[index] - low) / (high - low)) * (max - min) : fixed;
          const own = colors ? (colors.display!(colors.values[index]).color ?? color) : y.config.color?.mode === "thresholds" ? (y.display!(y.values[index]).color ?? color) : color;
          shape(ctx, pointShape, left, top, size * devicePixelRatio);
          ctx.fillStyle = colorManipulator.alpha(own, fillOpacity / 100);
          ctx.fill();
          ctx.strokeStyle = own;
          ctx.lineWidth = pointStrokeWidth * devicePixelRatio;
          if (pointStrokeWidth) ctx.stroke();
        }
      }
    },
    [series],
  );
  if (options.seriesMapping || options.dims) gap("options of an XY chart before Grafana 11.3");
  if (!series.length) return <NoData frames={frames} fieldConfig={fieldConfig} need="two numbers" />;
  const { x, y } = series[0]!;
  if (series.some((each) => each.y.config.unit !== y.config.unit)) gap("a second y axis");
  const axis = (field: Field, all: Field[]) => {
    const log = logOf(field);
    const ends = extent(all.flatMap((each) => each.values as number[]), log, field.config.min, field.config.max);
    const label = field.config.custom?.axisLabel || (field === x ? field.config.displayName : undefined);
    return { min: ends[0], max: ends[1], log, label, format: (value: number) => formattedValueToString(field.display!(value)), hide: field.config.custom?.axisPlacement === "hidden" };
  };
  const placement = options.legend?.placement ?? "bottom";
  const items = series.filter((each) => !each.y.config.custom?.hideFrom?.legend).map(({ name, color }) => ({ label: name, color, yAxis: 1 }));
  const legend = options.legend?.showLegend === false ? null : <VizLayout.Legend placement={placement}><VizLegend placement={placement} items={items} displayMode={LegendDisplayMode.List} /></VizLayout.Legend>;
  return (
    <VizLayout width={width} height={height} legend={legend}>
      {(inner, innerHeight) => <Plot width={inner} height={innerHeight} theme={theme} draw={draw} x={axis(x, series.map((each) => each.x))} y={axis(y, series.map((each) => each.y))} />}
    </VizLayout>
  );
}
