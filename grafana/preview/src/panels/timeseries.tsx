/** Time series: @grafana/ui's. What its panel inside Grafana does to frames before, and annotations, are here. */
import { type DataFrame, FieldType } from "@grafana/data";
import { TimeSeries, type UPlotConfigBuilder } from "@grafana/ui";
import { NoData } from "./nodata";
import { type Mark, type PanelProps } from "./types";

/** Numbers over time only; booleans as 0 and 1 (graph/utils, prepareGraphableFields). */
function graphable(frames: DataFrame[]): DataFrame[] {
  return frames.flatMap((frame) => {
    if (!frame.fields.some((field) => field.type === FieldType.time)) return [];
    const fields = frame.fields.flatMap((field) => {
      if (field.type === FieldType.boolean) return [{ ...field, type: FieldType.number, values: field.values.map((value) => (value === null ? null : Number(value))) }];
      if (field.type === FieldType.number) return [{ ...field, values: field.values.map((value) => (value === undefined || Number.isNaN(value) || !Number.isFinite(value ?? 0) ? null : value)) }];
      return field.type === FieldType.time ? [field] : [];
    });
    return fields.length > 1 ? [{ ...frame, fields }] : [];
  });
}

export function drawMarks(config: UPlotConfigBuilder, marks: Mark[]): null {
  config.addHook("draw", (plot) => {
    const { ctx, bbox } = plot;
    ctx.save();
    for (const { time, end, color } of marks) {
      const place = (at: number) => Math.round(plot.valToPos(at, "x", true)) + 0.5; // in the middle of a pixel, to be sharp
      const x = place(time);
      const right = end === undefined ? x : place(end);
      if (right < bbox.left || x > bbox.left + bbox.width) continue;
      ctx.strokeStyle = ctx.fillStyle = color;
      ctx.lineWidth = devicePixelRatio;
      ctx.setLineDash([5 * devicePixelRatio, 5 * devicePixelRatio]);
      for (const at of new Set([x, right])) {
        ctx.beginPath();
        ctx.moveTo(at, bbox.top);
        ctx.lineTo(at, bbox.top + bbox.height);
        ctx.stroke();
      }
      if (right > x) {
        ctx.globalAlpha = 0.1;
        ctx.fillRect(x, bbox.top, right - x, bbox.height);
        ctx.globalAlpha = 1;
        ctx.fillRect(x, bbox.top + bbox.height, right - x, 5 * devicePixelRatio);
      } else {
        ctx.beginPath();
        ctx.moveTo(x, bbox.top + bbox.height);
        ctx.lineTo(x - 4 * devicePixelRatio, bbox.top + bbox.height + 5 * devicePixelRatio);
        ctx.lineTo(x + 4 * devicePixelRatio, bbox.top + bbox.height + 5 * devicePixelRatio);
        ctx.fill();
      }
    }
    ctx.restore();
  });
  return null;
}

export function TimeSeriesPanel({ frames, options, width, height, range, marks, fieldConfig }: PanelProps) {
  const shown = graphable(frames);
  if (!shown.length) return <NoData frames={frames} fieldConfig={fieldConfig} need="a time and a number" />;
  const legend = { showLegend: true, displayMode: "list", placement: "bottom", calcs: [], ...options.legend };
  return (
    <TimeSeries frames={shown} structureRev={1} width={width} height={height} timeRange={range} timeZone="browser" legend={legend} options={options}>
      {(config) => drawMarks(config, marks)}
    </TimeSeries>
  );
}
