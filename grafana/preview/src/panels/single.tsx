/** Stat, bar gauge and gauge: one display per reduced value. */
import { type FieldDisplay, VizOrientation, getDisplayValueAlignmentFactors, getFieldDisplayValues } from "@grafana/data";
import { BarGauge, BigValue, VizRepeater } from "@grafana/ui";
import { NoData } from "./nodata";
import { type PanelProps } from "./types";

export function displays(props: PanelProps, sparkline: boolean, percentChange = false): FieldDisplay[] {
  const reduceOptions = { values: false, calcs: ["lastNotNull"], fields: "", ...props.options.reduceOptions };
  const { frames: data, fieldConfig, theme, replaceVariables } = props;
  return getFieldDisplayValues({ data, fieldConfig, theme, replaceVariables, reduceOptions, sparkline, percentChange, timeZone: "browser" });
}

export function StatPanel(props: PanelProps) {
  const { options, theme, width, height, range } = props;
  const graphMode = options.graphMode ?? "area";
  const values = displays(props, graphMode !== "none", options.showPercentChange);
  const orientation = options.orientation ?? VizOrientation.Auto;
  return (
    <VizRepeater
      source={values} getValues={() => values} getAlignmentFactors={getDisplayValueAlignmentFactors} width={width} height={height} itemSpacing={3} renderCounter={1} autoGrid orientation={orientation}
      renderValue={({ value, alignmentFactors, width: itemWidth, height: itemHeight, count }) => {
        const sparkline = value.sparkline && { ...value.sparkline, timeRange: range };
        return (
          <BigValue
            value={value.display} count={count} sparkline={sparkline} colorMode={options.colorMode ?? "value"} graphMode={graphMode} justifyMode={options.justifyMode ?? "auto"} text={options.text} width={itemWidth} height={itemHeight}
            textMode={options.textMode ?? "auto"} alignmentFactors={alignmentFactors} theme={theme} hasLinks={value.hasLinks} percentChangeColorMode={options.percentChangeColorMode ?? "standard"} disableWideLayout={options.wideLayout === false}
          />
        );
      }}
    />
  );
}

export function BarGaugePanel(props: PanelProps) {
  const { options, theme, width, height, fieldConfig, frames } = props;
  const values = displays(props, false);
  if (!values.length) return <NoData frames={frames} fieldConfig={fieldConfig} />;
  const orientation = options.orientation && options.orientation !== "auto" ? options.orientation : width > height ? VizOrientation.Vertical : VizOrientation.Horizontal;
  return (
    <VizRepeater
      source={values} getValues={() => values} getAlignmentFactors={getDisplayValueAlignmentFactors} width={width} height={height} itemSpacing={options.displayMode === "lcd" ? 2 : 10} renderCounter={1} orientation={orientation}
      minVizWidth={options.sizing === "manual" ? options.minVizWidth : 8} minVizHeight={options.sizing === "manual" ? options.minVizHeight : 16} maxVizHeight={options.maxVizHeight ?? 300}
      renderValue={({ value, alignmentFactors, width: itemWidth, height: itemHeight }) => (
        <BarGauge
          value={value.display} field={value.field} display={value.view?.getFieldDisplayProcessor(value.colIndex ?? 0)} text={options.text} width={itemWidth} height={itemHeight} orientation={orientation} theme={theme} itemSpacing={options.displayMode === "lcd" ? 2 : 10} lcdCellWidth={12}
          alignmentFactors={alignmentFactors} displayMode={options.displayMode ?? "gradient"} showUnfilled={options.showUnfilled ?? true} valueDisplayMode={options.valueMode ?? "color"} namePlacement={options.namePlacement ?? "auto"}
        />
      )}
    />
  );
}
