/** Table: @grafana/ui's, as its panel inside Grafana uses it. */
import { FieldType, cacheFieldDisplayNames } from "@grafana/data";
import { TableNG } from "@grafana/ui/unstable";
import { NoData } from "./nodata";
import { type PanelProps } from "./types";

export function TablePanel({ frames, options, fieldConfig, width, height, range, gap }: PanelProps) {
  const frame = frames[options.frameIndex ?? 0] ?? frames[0];
  if (!frame?.fields.length) return <NoData frames={frames} fieldConfig={fieldConfig} />;
  cacheFieldDisplayNames(frames);
  const several = frames.length > 1;
  if (several) gap(`the choice between ${frames.length} tables (${frames.map((each, index) => each.name ?? each.refId ?? index).slice(0, 4).join(", ")}…), of which Grafana shows one`);
  let data = frame;
  const { footer } = options;
  if (footer?.show && footer.reducer?.length) {
    // Before Grafana 12.2 the footer was the panel's, since then it is its fields' (its table panel migrates it so).
    const wanted = (name: string) => !footer.fields?.length || footer.fields.includes(name);
    data = { ...frame, fields: frame.fields.map((field) => (field.type === FieldType.number && wanted(field.name) ? { ...field, config: { ...field.config, custom: { ...field.config.custom, footer: { reducers: footer.reducer } } } } : field)) };
  }
  if (frame.fields.some((field) => field.config.custom?.displayMode)) gap("custom.displayMode (before Grafana 9.5; now custom.cellOptions)");
  return (
    <TableNG
      data={data} width={width} height={height} noHeader={options.showHeader === false} showTypeIcons={options.showTypeIcons} resizable sortBy={options.sortBy} cellHeight={options.cellHeight} frozenColumns={options.frozenColumns?.left}
      enablePagination={options.enablePagination} fieldConfig={fieldConfig} timeRange={range} structureRev={1} transparent={false} enableVirtualization={false}
    />
  );
}
