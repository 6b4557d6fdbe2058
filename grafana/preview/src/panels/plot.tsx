/** A pair of axes of Grafana's own, and a canvas to draw on: for the panels whose drawing Grafana does not publish. */
import { type GrafanaTheme2 } from "@grafana/data";
import { AxisPlacement, ScaleDirection, ScaleDistribution, ScaleOrientation } from "@grafana/schema";
import { UPlotChart, UPlotConfigBuilder } from "@grafana/ui";
import { useMemo } from "react";
import uPlot from "uplot";

export interface Axis {
  min: number;
  max: number;
  time?: boolean;
  /** Base, of a logarithmic axis. */
  log?: number;
  label?: string;
  format?: (value: number) => string;
  /** Ticks and their names, of an axis that is no measure. */
  splits?: number[];
  names?: string[];
  grid?: boolean;
  hide?: boolean;
}
interface Props {
  width: number;
  height: number;
  theme: GrafanaTheme2;
  x: Axis;
  y: Axis;
  /** Coordinates are device pixels: of a value plot.valToPos(value, "x" or "y", true). */
  draw: (plot: uPlot, ctx: CanvasRenderingContext2D) => void;
}

export function Plot({ width, height, theme, x, y, draw }: Props) {
  const config = useMemo(() => {
    const builder = new UPlotConfigBuilder("browser");
    const add = (scaleKey: string, axis: Axis, horizontal: boolean) => {
      builder.addScale({
        scaleKey, isTime: axis.time ?? false, orientation: horizontal ? ScaleOrientation.Horizontal : ScaleOrientation.Vertical, direction: horizontal ? ScaleDirection.Right : ScaleDirection.Up,
        distribution: axis.log ? ScaleDistribution.Log : ScaleDistribution.Linear, log: axis.log, range: () => [axis.min, axis.max],
      });
      if (axis.hide) return;
      builder.addAxis({
        scaleKey, theme, isTime: axis.time ?? false, timeZone: "browser", placement: horizontal ? AxisPlacement.Bottom : AxisPlacement.Left, label: axis.label, grid: { show: axis.grid ?? true }, ticks: { show: false },
        distr: axis.log ? ScaleDistribution.Log : ScaleDistribution.Linear, formatValue: axis.format, splits: axis.splits, values: axis.names,
      });
    };
    add("x", x, true);
    add("y", y, false);
    builder.addSeries({ scaleKey: "y", theme, pathBuilder: () => null, pointsBuilder: () => false });
    builder.addHook("draw", (plot) => {
      const { ctx, bbox } = plot;
      ctx.save();
      ctx.beginPath();
      ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
      ctx.clip();
      draw(plot, ctx);
      ctx.restore();
    });
    return builder;
  }, [draw, theme, JSON.stringify([x, y])]);
  return <UPlotChart config={config} width={width} height={height} data={[[x.min, x.max], [y.min, y.max]]} />;
}

/** The range of an axis as Grafana takes it: what is configured, else a tenth more than the values, or whole powers. */
export function extent(values: number[], log: number | undefined, min?: number | null, max?: number | null): [number, number] {
  const usable = values.filter((value) => Number.isFinite(value) && (!log || value > 0));
  if (log) {
    const logarithm = log === 2 ? Math.log2 : Math.log10;
    const power = (value: number, round: (x: number) => number) => log ** round(logarithm(value));
    const low = power(min || Math.min(...usable, Infinity), Math.floor);
    const high = power(max || Math.max(...usable, 0), Math.ceil);
    return Number.isFinite(low) && high > 0 ? [low, high === low ? low * log : high] : [1, log];
  }
  const [low, high] = usable.length ? uPlot.rangeNum(Math.min(...usable), Math.max(...usable), 0.1, true) : [0, 100];
  return [min ?? low ?? 0, max ?? high ?? 100];
}

export function inkFor(theme: GrafanaTheme2, color: string): string {
  try {
    return theme.colors.getContrastText(color);
  } catch {
    return theme.colors.text.primary;
  }
}
