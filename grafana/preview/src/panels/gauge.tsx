/** Gauge: since Grafana 13 its drawing is inside Grafana; values, colours and places are @grafana/data's and @grafana/ui's. */
import { FieldColorModeId, type FieldDisplay, VizOrientation, formattedValueToString, getDisplayValueAlignmentFactors } from "@grafana/data";
import { VizRepeater } from "@grafana/ui";
import { NoData } from "./nodata";
import { displays } from "./single";
import { type PanelProps } from "./types";

/** Degrees of the arc, symmetric about the top. */
const SPAN = 240;

function arc(radius: number, from: number, to: number): string {
  const at = (part: number) => {
    const angle = ((part * SPAN - SPAN / 2 - 90) * Math.PI) / 180;
    return `${(radius * Math.cos(angle)).toFixed(2)} ${(radius * Math.sin(angle)).toFixed(2)}`;
  };
  return `M ${at(from)} A ${radius} ${radius} 0 ${(to - from) * SPAN > 180 ? 1 : 0} 1 ${at(to)}`;
}

function Dial({ value: { display, field }, width, height, props }: { value: FieldDisplay; width: number; height: number; props: PanelProps }) {
  const { options, theme } = props;
  const min = field.min ?? 0;
  const max = field.max ?? 100;
  const part = Math.min(Math.max((display.numeric - min) / (max - min || 1), 0), 1);
  const title = display.title ? 22 : 0;
  const radius = Math.max(Math.min(width / 2, (height - title) / 1.6) - 6, 10);
  const thick = Math.max(radius * 0.22, 4);
  const steps = field.thresholds?.steps ?? [];
  const share = (value: number) => Math.min(Math.max(field.thresholds?.mode === "percentage" ? value / 100 : (value - min) / (max - min || 1), 0), 1);
  const markers = (options.showThresholdMarkers ?? true) && field.color?.mode !== FieldColorModeId.Fixed;
  const size = options.text?.valueSize ?? Math.min(radius * 0.42, (radius * 2.4) / Math.max(formattedValueToString(display).length, 3));
  return (
    <div style={{ width, height, textAlign: "center" }}>
      <svg width={width} height={height - title} viewBox={`${-width / 2} ${-radius - 4} ${width} ${height - title}`}>
        <path d={arc(radius - thick / 2 - 5, 0, 1)} stroke={theme.colors.background.secondary} strokeWidth={thick} fill="none" />
        {Number.isFinite(part) && part > 0 && <path d={arc(radius - thick / 2 - 5, 0, part)} stroke={display.color} strokeWidth={thick} fill="none" />}
        {markers && steps.map((step, index) => {
          const [from, to] = [index ? share(step.value) : 0, index + 1 < steps.length ? share(steps[index + 1]!.value) : 1];
          return to > from && <path key={index} d={arc(radius, from, to)} stroke={theme.visualization.getColorByName(step.color)} strokeWidth={4} fill="none" />;
        })}
        <text textAnchor="middle" y={size * 0.2} fontSize={size} fontWeight={500} fill={display.color}>{formattedValueToString(display)}</text>
      </svg>
      {title > 0 && <div style={{ height: title, overflow: "hidden" }}>{display.title}</div>}
    </div>
  );
}

export function GaugePanel(props: PanelProps) {
  const { options, width, height, frames, fieldConfig, gap } = props;
  const values = displays(props, false);
  if (options.showThresholdLabels) gap("names of thresholds on a gauge");
  if (!values.length) return <NoData frames={frames} fieldConfig={fieldConfig} />;
  return (
    <VizRepeater
      source={values} getValues={() => values} getAlignmentFactors={getDisplayValueAlignmentFactors} width={width} height={height} renderCounter={1} orientation={options.orientation ?? VizOrientation.Auto} autoGrid
      renderValue={({ value, width: itemWidth, height: itemHeight }) => <Dial value={value} width={itemWidth} height={itemHeight} props={props} />}
    />
  );
}
