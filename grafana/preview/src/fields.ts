/** Field configuration as Grafana applies it: defaults of the panel type, of the panel, overrides. */
import {
  type DataFrame, type FieldConfigSource, FieldConfigOptionsRegistry, type GrafanaTheme2, type InterpolateFunction, applyFieldOverrides, booleanOverrideProcessor,
  dataLinksOverrideProcessor, displayNameOverrideProcessor, identityOverrideProcessor, numberOverrideProcessor, standardTransformers, standardTransformersRegistry,
  stringOverrideProcessor, thresholdsOverrideProcessor, transformDataFrame, unitOverrideProcessor, valueMappingsOverrideProcessor,
} from "@grafana/data";
import { firstValueFrom } from "rxjs";

type Item = ReturnType<FieldConfigOptionsRegistry["list"]>[number];
type Process = Item["process"];
// The options of each field, which Grafana keeps in its application (public/app/core/components/OptionsUI/registry).
const STANDARD: Record<string, Process> = {
  unit: unitOverrideProcessor as Process,
  min: numberOverrideProcessor as Process,
  max: numberOverrideProcessor as Process,
  fieldMinMax: booleanOverrideProcessor as Process,
  decimals: numberOverrideProcessor as Process,
  displayName: displayNameOverrideProcessor as Process,
  noValue: stringOverrideProcessor as Process,
  color: identityOverrideProcessor as Process,
  mappings: valueMappingsOverrideProcessor as Process,
  thresholds: thresholdsOverrideProcessor as Process,
  links: dataLinksOverrideProcessor as Process,
  actions: identityOverrideProcessor as Process,
  filterable: booleanOverrideProcessor as Process,
};

const graph = { axisPlacement: "auto", axisLabel: "", axisColorMode: "text", axisBorderShow: false, axisCenteredZero: false, scaleDistribution: { type: "linear" }, hideFrom: { tooltip: false, viz: false, legend: false } };
const THRESHOLDS = { mode: "thresholds" };
const PALETTE = { mode: "palette-classic" };
/** What Grafana's panels have where the JSON says nothing (their module.tsx and panelcfg.cue). */
const DEFAULTS: Record<string, { color: { mode: string }; custom?: object }> = {
  timeseries: {
    color: PALETTE,
    custom: { ...graph, drawStyle: "line", lineInterpolation: "linear", barAlignment: 0, barWidthFactor: 0.6, lineWidth: 1, fillOpacity: 0, gradientMode: "none", spanNulls: false, insertNulls: false, showPoints: "auto", pointSize: 5, stacking: { group: "A", mode: "none" }, thresholdsStyle: { mode: "off" } },
  },
  xychart: { color: PALETTE, custom: { ...graph, show: "points", pointSize: { fixed: 5 }, pointShape: "circle", pointStrokeWidth: 1, fillOpacity: 50, lineWidth: 1 } },
  barchart: { color: PALETTE, custom: { ...graph, lineWidth: 1, fillOpacity: 80, gradientMode: "none" } },
  piechart: { color: PALETTE, custom: { hideFrom: graph.hideFrom } },
  "state-timeline": { color: { mode: "continuous-GrYlRd" }, custom: { lineWidth: 0, fillOpacity: 70, spanNulls: false, insertNulls: false, axisPlacement: "auto", hideFrom: graph.hideFrom } },
  "status-history": { color: THRESHOLDS, custom: { lineWidth: 1, fillOpacity: 70, axisPlacement: "auto", hideFrom: graph.hideFrom } },
  table: { color: THRESHOLDS, custom: { align: "auto", cellOptions: { type: "auto" }, inspect: false, footer: { reducers: [] } } },
  heatmap: { color: THRESHOLDS, custom: { hideFrom: graph.hideFrom, scaleDistribution: { type: "linear" } } },
};

/** JSON has no -Infinity: a first threshold of null means it. */
const withInfinity = (value: any) => value?.steps ? { ...value, steps: value.steps.map((step: any, index: number) => (index === 0 || step.value === null ? { ...step, value: -Infinity } : step)) } : value;

export function completed(type: string, source: FieldConfigSource | undefined): FieldConfigSource {
  const own = DEFAULTS[type] ?? { color: THRESHOLDS };
  const defaults: any = source?.defaults ?? {};
  return {
    defaults: {
      ...defaults,
      color: defaults.color?.mode ? defaults.color : own.color,
      mappings: defaults.mappings ?? [],
      thresholds: withInfinity(defaults.thresholds ?? { mode: "absolute", steps: [{ color: "green", value: null }, { color: "red", value: 80 }] }),
      custom: { ...own.custom, ...defaults.custom },
    },
    overrides: (source?.overrides ?? []).map((rule) => ({
      ...rule,
      properties: rule.properties.map((property) => (property.id === "thresholds" ? { ...property, value: withInfinity(property.value) } : property)),
    })),
  };
}

export function withFieldConfig(frames: DataFrame[], fieldConfig: FieldConfigSource, theme: GrafanaTheme2, replaceVariables: InterpolateFunction, gaps: Set<string>): DataFrame[] {
  const set = fieldConfig.overrides.flatMap((rule) => rule.properties.map((property) => property.id));
  const custom = new Set([...Object.keys((fieldConfig.defaults.custom as object) ?? {}).map((key) => `custom.${key}`), ...set.filter((id) => id.startsWith("custom."))]);
  for (const id of set) if (!custom.has(id) && !STANDARD[id]) gaps.add(`override of ${id}`);
  const fieldConfigRegistry = new FieldConfigOptionsRegistry();
  const register = (id: string, path: string, process: Process, isCustom: boolean) =>
    fieldConfigRegistry.register({ id, path, name: id, process, isCustom, shouldApply: () => true, override: () => null, editor: () => null } as unknown as Item);
  for (const [id, process] of Object.entries(STANDARD)) register(id, id, process, false);
  for (const id of custom) register(id, id.slice("custom.".length), identityOverrideProcessor as Process, true);
  return applyFieldOverrides({ data: frames, fieldConfig, fieldConfigRegistry, replaceVariables, theme, timeZone: "browser" });
}

const aliases: Record<string, string> = { seriesToColumns: "joinByField" };
standardTransformersRegistry.setInit(() =>
  [...new Map(Object.values(standardTransformers).map((each) => [each.id as string, each])).values()].map((each) => ({
    id: each.id, name: each.name, transformation: async () => each as any, editor: () => null, imageDark: "", imageLight: "",
  })),
);

export interface Transformation {
  id: string;
  options: object;
  disabled?: boolean;
}

export async function transformed(configs: Transformation[], frames: DataFrame[], interpolate: (text: string) => string, gaps: Set<string>): Promise<DataFrame[]> {
  const used = configs.filter((config) => !config.disabled).map((config) => ({ ...config, id: aliases[config.id] ?? config.id }));
  for (const { id } of used) if (!standardTransformersRegistry.getIfExists(id)) gaps.add(`transformation ${id} (inside Grafana, not published)`);
  return used.length ? firstValueFrom(transformDataFrame(used as any, frames, { interpolate })) : frames;
}
