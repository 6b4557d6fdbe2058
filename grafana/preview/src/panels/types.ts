import { type DataFrame, type FieldConfigSource, type GrafanaTheme2, type InterpolateFunction, type TimeRange } from "@grafana/data";

/** An event of an annotation query, in ms. */
export interface Mark {
  time: number;
  end?: number;
  color: string;
  text: string;
}
export interface PanelProps {
  frames: DataFrame[];
  options: any;
  fieldConfig: FieldConfigSource;
  width: number;
  height: number;
  range: TimeRange;
  theme: GrafanaTheme2;
  marks: Mark[];
  replaceVariables: InterpolateFunction;
  /** Says what of the JSON is not drawn. */
  gap: (what: string) => void;
}
