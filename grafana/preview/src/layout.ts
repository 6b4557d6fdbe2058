/** Where each panel goes: rows opened, repeats repeated. Units are Grafana's grid: 24 columns, heights of 30 px and 8 px between. */
import { type Scope, type Variables } from "./variables";

export interface PanelModel {
  id: number;
  type: string;
  title?: string;
  gridPos: { x: number; y: number; w: number; h: number };
  collapsed?: boolean;
  panels?: PanelModel[];
  repeat?: string;
  repeatDirection?: "h" | "v";
  maxPerRow?: number;
  [key: string]: any;
}
export interface Placed {
  panel: PanelModel;
  key: string;
  scope: Scope;
  x: number;
  y: number;
  w: number;
  h: number;
}

const bottom = (placed: Placed[]) => placed.reduce((most, each) => Math.max(most, each.y + each.h), 0);

/** Panels of one section, from 0 down; what a repeat needs more pushes down what is below. */
function section(panels: PanelModel[], variables: Variables, scope: Scope, suffix: string): Placed[] {
  const sorted = [...panels].sort((a, b) => a.gridPos.y - b.gridPos.y || a.gridPos.x - b.gridPos.x);
  const top = sorted[0]?.gridPos.y ?? 0;
  const pushes: Array<{ from: number; by: number }> = [];
  return sorted.flatMap((panel) => {
    const { x, y, w, h } = panel.gridPos;
    const at = y - top + pushes.reduce((sum, push) => sum + (y >= push.from ? push.by : 0), 0);
    const plain = { panel, key: `${panel.id}${suffix}`, scope, x, y: at, w, h };
    if (!panel.repeat) return [plain];
    const values = variables.values(panel.repeat);
    const columns = panel.repeatDirection === "v" ? 1 : Math.min(values.length, panel.maxPerRow ?? 4);
    const width = panel.repeatDirection === "v" ? w : Math.floor(24 / Math.max(columns, 1));
    pushes.push({ from: y + h, by: (Math.ceil(values.length / Math.max(columns, 1)) - 1) * h });
    return values.map((value, index) => ({
      ...plain, key: `${plain.key}-${value.value}`, scope: { ...scope, [panel.repeat!]: value },
      x: panel.repeatDirection === "v" ? x : (index % columns) * width, y: at + Math.floor(index / columns) * h, w: width,
    }));
  });
}

/** `open`: rows that the dashboard has closed are drawn open. */
export function layout(panels: PanelModel[], variables: Variables, open: boolean): Placed[] {
  const sorted = [...panels].sort((a, b) => a.gridPos.y - b.gridPos.y || a.gridPos.x - b.gridPos.x);
  const sections: Array<{ row?: PanelModel; panels: PanelModel[] }> = [{ panels: [] }];
  for (const panel of sorted) {
    if (panel.type === "row") sections.push({ row: panel, panels: panel.panels ?? [] });
    else sections.at(-1)!.panels = [...sections.at(-1)!.panels, panel];
  }
  const placed: Placed[] = [];
  for (const { row, panels: inside } of sections) {
    const scopes: Scope[] = row?.repeat ? variables.values(row.repeat).map((value) => ({ [row.repeat!]: value })) : [{}];
    for (const scope of scopes) {
      const suffix = Object.values(scope).map((value) => `-${value.value}`).join("");
      const start = bottom(placed);
      if (row) placed.push({ panel: row, key: `${row.id}${suffix}`, scope, x: 0, y: start, w: 24, h: 1 });
      if (row?.collapsed && !open) continue;
      const offset = start + (row ? 1 : 0);
      placed.push(...section(inside, variables, scope, suffix).map((each) => ({ ...each, y: each.y + offset })));
    }
  }
  return placed;
}
