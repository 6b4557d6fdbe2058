/** Dashboard variables: their options from Prometheus, their values, and text with them put in. */
import { type DataFrame, type Field, type ScopedVars, type TimeRange, dateTime, escapeRegex, formattedValueToString, getFieldDisplayName, getFieldDisplayValuesProxy, rangeUtil } from "@grafana/data";
import { call } from "./prometheus";

export interface Option {
  text: string;
  value: string;
}
export interface VariableModel {
  name: string;
  type: string;
  label?: string;
  hide?: number;
  query?: string | { query?: string };
  regex?: string;
  sort?: number;
  multi?: boolean;
  includeAll?: boolean;
  allValue?: string | null;
  auto?: boolean;
  auto_count?: number;
  auto_min?: string;
  current?: { text?: string | string[]; value?: string | string[] };
}
export interface Variable {
  model: VariableModel;
  options: Option[];
  /** Chosen, All not resolved. */
  chosen: Option[];
}
export type Scope = Record<string, Option>;

const ALL = "$__all";
const list = <T>(value: T | T[] | undefined): T[] => (value === undefined ? [] : Array.isArray(value) ? value : [value]);

export class Variables {
  readonly all = new Map<string, Variable>();
  /** What was met and cannot be put in, to be shown. */
  readonly gaps = new Set<string>();

  constructor(
    private readonly dashboard: { uid?: string; title?: string },
    readonly range: TimeRange,
  ) {}

  /** Loads them in an order in which each comes after those that its query names. */
  async load(models: VariableModel[], given: Record<string, string[]>): Promise<void> {
    const waiting = [...models];
    while (waiting.length) {
      const names = (model: VariableModel) => JSON.stringify([model.query, model.regex]);
      const next = waiting.findIndex((model) => !waiting.some((other) => other !== model && new RegExp(`\\$\\{?${other.name}\\b`).test(names(model))));
      const model = waiting.splice(Math.max(next, 0), 1)[0]!;
      const options = await this.options(model);
      this.all.set(model.name, { model, options, chosen: this.choose(model, options, given[model.name]) });
    }
    for (const name of Object.keys(given)) if (!this.all.has(name)) throw new Error(`there is no variable ${name} to be set`);
  }

  private async options(model: VariableModel): Promise<Option[]> {
    const text = typeof model.query === "string" ? model.query : (model.query?.query ?? "");
    const option = (value: string): Option => ({ text: value, value });
    switch (model.type) {
      case "query":
        return arrange(model, (await this.find(this.interpolate(text, {}, "prometheus"))).map(option), this.interpolate(model.regex ?? "", {}, "regex"));
      case "custom":
        return text.split(/(?<!\\),/).map((part) => {
          const [, key, value] = /^\s*(.+?)\s+:\s+(.+?)\s*$/.exec(part) ?? [];
          return key && value ? { text: key, value } : option(part.trim().replace(/\\,/g, ","));
        });
      case "interval":
        return [...(model.auto ? [{ text: "auto", value: "$__auto" }] : []), ...text.split(",").map((part) => option(part.trim()))];
      case "datasource":
        if (text !== "prometheus") this.gaps.add(`variable ${model.name} is of data sources of type ${text}`);
        return [{ text: "Prometheus", value: "prometheus" }];
      case "constant":
        return [option(text)];
      case "textbox":
        return [option(list(model.current?.value)[0] ?? text)];
      default:
        this.gaps.add(`variable ${model.name} is of type ${model.type}`);
        return [];
    }
  }

  /** Queries of Grafana's Prometheus data source for variables. */
  private async find(query: string): Promise<string[]> {
    const times = { start: `${this.range.from.valueOf() / 1000}`, end: `${this.range.to.valueOf() / 1000}` };
    const values = /^label_values\((?:(.+),\s*)?([a-zA-Z_]\w*)\s*\)\s*$/s.exec(query);
    if (values) return call<string[]>(`label/${values[2]}/values`, values[1] ? { ...times, "match[]": values[1].trim() } : times);
    const names = /^label_names\((.*)\)\s*$/.exec(query);
    if (names) return call<string[]>("labels", names[1] ? { ...times, "match[]": names[1] } : times);
    const metrics = /^metrics\((.*)\)\s*$/.exec(query);
    if (metrics) return (await call<string[]>("label/__name__/values", times)).filter((name) => new RegExp(metrics[1]!).test(name));
    const result = /^query_result\((.*)\)\s*$/s.exec(query);
    if (!result) throw new Error(`a variable's query that is not known: ${query}`);
    const data = await call<{ result: Array<{ metric: Record<string, string>; value: [number, string] }> }>("query", { query: result[1]!, time: times.end });
    return data.result.map(({ metric: { __name__: name = "", ...labels }, value }) => {
      const pairs = Object.entries(labels).map(([label, text]) => `${label}="${text}"`);
      return `${name}{${pairs.join(",")}} ${value[1]} ${value[0] * 1000}`;
    });
  }

  private choose(model: VariableModel, options: Option[], given: string[] | undefined): Option[] {
    const all = { text: "All", value: ALL };
    if (given) {
      return given.map((value) => {
        if (value === "All" || value === ALL) return all;
        const known = options.find((each) => each.value === value || each.text === value);
        if (!known && model.type === "query") throw new Error(`${value} is no value of the variable ${model.name}; there are ${options.slice(0, 20).map((each) => each.text).join(", ")}`);
        return known ?? { text: value, value };
      });
    }
    const current = list(model.current?.value);
    if (model.includeAll && current.some((value) => value === ALL || value === "All")) return [all];
    const kept = options.filter((each) => current.includes(each.value));
    if (kept.length) return kept;
    return model.includeAll ? [all] : options.slice(0, 1);
  }

  /** The options that a repeat runs over. */
  values(name: string): Option[] {
    const variable = this.all.get(name);
    if (!variable) return [];
    return variable.chosen.some((option) => option.value === ALL) ? variable.options : variable.chosen;
  }

  /** `format` is what is done to several values where the text does not say: of a query, or a text. */
  interpolate(text: string, scope: Scope & ScopedVars = {}, format = "glob"): string {
    return text.replace(/\$(\w+)|\[\[(\w+)(?::(\w+))?\]\]|\$\{(\w+)(?:\.([^:}]+))?(?::([^}]+))?\}/g, (match, a, b, bFormat, c, path, cFormat) => {
      const name: string = a ?? b ?? c;
      return this.replacement(name, path, bFormat ?? cFormat, scope, format) ?? match;
    });
  }

  private replacement(name: string, path: string | undefined, asked: string | undefined, scope: Scope & ScopedVars, format: string): string | undefined {
    const scoped = scope[name] as Option | undefined;
    if (scoped) {
      const model = this.all.get(name)?.model;
      // Of a repeat, the one value is made a regular expression, too: node="$node" does not find a node with a dot, in Grafana neither.
      if (!asked && format === "prometheus") return model ? forPrometheus([`${scoped.value}`], Boolean(model.multi || model.includeAll)) : `${scoped.value}`;
      return formatted([`${scoped.value}`], [`${scoped.text ?? scoped.value}`], asked ?? format, this.gaps);
    }
    if (name.startsWith("__")) return this.builtIn(name, path, asked, scope);
    const variable = this.all.get(name);
    if (!variable) return undefined;
    const { model, chosen, options } = variable;
    if (model.type === "interval" && chosen[0]?.value === "$__auto") {
      return rangeUtil.calculateInterval(this.range, model.auto_count ?? 30, model.auto_min ?? "10s").interval;
    }
    const isAll = chosen.some((option) => option.value === ALL);
    if (isAll && model.allValue && asked !== "text") return model.allValue;
    if (isAll && (asked ?? format) === "text") return "All";
    const used = isAll ? options : chosen;
    if (!asked && format === "prometheus") return forPrometheus(used.map((option) => option.value), Boolean(model.multi || model.includeAll));
    if (asked === "queryparam") return (isAll ? [ALL] : used.map((option) => option.value)).map((value) => `var-${name}=${encodeURIComponent(value)}`).join("&");
    return formatted(used.map((option) => option.value), used.map((option) => option.text), asked ?? format, this.gaps);
  }

  private builtIn(name: string, path: string | undefined, asked: string | undefined, scope: Scope & ScopedVars): string | undefined {
    const { from, to } = this.range;
    const span = to.valueOf() - from.valueOf();
    const at = (time: number) => (asked?.startsWith("date") ? dateTime(time).format(asked === "date" ? undefined : asked.slice(5)) : `${time}`);
    const simple: Record<string, () => string> = {
      __from: () => at(from.valueOf()),
      __to: () => at(to.valueOf()),
      __range: () => `${Math.round(span / 1000)}s`,
      __range_s: () => `${Math.round(span / 1000)}`,
      __range_ms: () => `${span}`,
      __dashboard: () => (path === "uid" ? this.dashboard.uid : this.dashboard.title) ?? "",
      __url_time_range: () => `from=${from.valueOf()}&to=${to.valueOf()}`,
      __all_variables: () => [...this.all.keys()].map((each) => this.interpolate(`\${${each}:queryparam}`)).join("&"),
    };
    return simple[name]?.() ?? ofData(name, path, scope);
  }
}

/** ${__data…}, ${__field…}, ${__series…}, ${__value…} of data links. */
function ofData(name: string, path: string | undefined, scope: ScopedVars): string | undefined {
  const context = scope.__dataContext?.value as { data: DataFrame[]; frame: DataFrame; field: Field; rowIndex?: number; calculatedValue?: { numeric: number; text: string } } | undefined;
  if (!context) return undefined;
  const { frame, field, data, rowIndex = 0, calculatedValue } = context;
  const value = field.values[rowIndex];
  if (name === "__value") {
    const display = calculatedValue ?? field.display?.(value);
    const time = frame.fields.find((each) => each.type === "time")?.values[rowIndex];
    const parts: Record<string, unknown> = { raw: calculatedValue?.numeric ?? value, numeric: display?.numeric, text: display && formattedValueToString(display), time };
    return `${parts[path ?? "raw"] ?? ""}`;
  }
  if (name === "__series") return frame.name ?? getFieldDisplayName(field, frame, data);
  if (name === "__field") return path === "name" || !path ? getFieldDisplayName(field, frame, data) : (field.labels?.[path.replace(/^labels[.[]["']?|["']?\]?$/g, "")] ?? "");
  const [, dotted, quoted, rest] = /^fields(?:\.([^.[]+)|\[["']?(.+?)["']?\])(?:\.(\w+))?$/.exec(path ?? "") ?? [];
  const wanted = dotted ?? quoted;
  if (name !== "__data" || wanted === undefined) return undefined;
  const display = getFieldDisplayValuesProxy({ frame, rowIndex })[wanted];
  if (!display) return "";
  return `${rest === "numeric" ? display.numeric : rest === "text" ? display.text : formattedValueToString(display)}`;
}

const quote = (value: string) => value.replace(/\\/g, "\\\\\\\\").replace(/[$^*{}[\]'+?.()|]/g, "\\\\$&");

/** As @grafana/prometheus puts values into PromQL: several become one regular expression. */
function forPrometheus(values: string[], several: boolean): string {
  if (!several) return values.map((value) => value.replace(/\\/g, "\\\\").replace(/"/g, '\\"')).join(",");
  return values.length === 1 ? quote(values[0]!) : `(${values.map(quote).join("|")})`;
}

function formatted(values: string[], texts: string[], format: string, gaps: Set<string>): string {
  switch (format) {
    case "raw":
    case "csv":
      return values.join(",");
    case "pipe":
      return values.join("|");
    case "glob":
      return values.length > 1 ? `{${values.join(",")}}` : values.join("");
    case "regex":
      return values.length > 1 ? `(${values.map(escapeRegex).join("|")})` : values.map(escapeRegex).join("");
    case "json":
      return JSON.stringify(values);
    case "doublequote":
      return values.map((value) => `"${value.replace(/"/g, '\\"')}"`).join(",");
    case "singlequote":
      return values.map((value) => `'${value.replace(/'/g, "\\'")}'`).join(",");
    case "text":
      return texts.join(" + ");
    case "percentencode":
      return encodeURIComponent(values.length > 1 ? `{${values.join(",")}}` : values.join(""));
    default:
      gaps.add(`format ${format} of a variable`);
      return values.join(",");
  }
}

/** The regular expression and order of a query variable. */
function arrange(model: VariableModel, found: Option[], regex: string): Option[] {
  let options = found;
  if (regex) {
    const [, body = `^${regex}$`, flags = ""] = /^\/(.*)\/(\w*)$/s.exec(regex) ?? [];
    options = found.flatMap(({ value: whole }) => {
      const matches = [...whole.matchAll(new RegExp(body, flags.includes("g") ? flags : `${flags}g`))].slice(0, flags.includes("g") ? undefined : 1);
      const text = matches.find((match) => match.groups?.text)?.groups?.text;
      const value = matches.find((match) => match.groups?.value)?.groups?.value;
      if (text !== undefined || value !== undefined) return [{ text: text ?? value!, value: value ?? text! }];
      return matches.map((match) => match[1] ?? match[0]).map((each) => ({ text: each, value: each }));
    });
  }
  options = [...new Map(options.map((option) => [option.value, option])).values()];
  const sort = model.sort ?? 0;
  const by = (compare: (a: string, b: string) => number) => options.sort((a, b) => compare(a.text, b.text));
  const digits = (text: string) => Number(/\d+/.exec(text)?.[0] ?? -1);
  if (sort === 1 || sort === 2) by((a, b) => (a < b ? -1 : Number(a > b)));
  if (sort === 3 || sort === 4) by((a, b) => digits(a) - digits(b));
  if (sort === 5 || sort === 6) by((a, b) => a.toLowerCase().localeCompare(b.toLowerCase()));
  if (sort === 7 || sort === 8) by((a, b) => a.localeCompare(b, undefined, { numeric: true }));
  return sort > 0 && sort % 2 === 0 ? options.reverse() : options;
}
