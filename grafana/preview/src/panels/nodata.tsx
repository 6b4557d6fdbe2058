import { type DataFrame, type FieldConfigSource } from "@grafana/data";

/** What Grafana's PanelDataErrorView says. */
export function NoData({ frames, fieldConfig, need }: { frames: DataFrame[]; fieldConfig: FieldConfigSource; need?: string }) {
  const empty = frames.every((frame) => !frame.length);
  return <div className="no-data">{empty || !need ? (fieldConfig.defaults.noValue ?? "No data") : `Data is missing ${need}`}</div>;
}
