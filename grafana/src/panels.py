"""Panels: one function per kind, each with a title, a description and a unit, so that none can be forgotten."""

from grafana_foundation_sdk.builders import bargauge, common as common_builders, dashboard as builders, gauge, heatmap as heatmap_builders
from grafana_foundation_sdk.builders import prometheus, stat as stat_builders, statetimeline, table as table_builders
from grafana_foundation_sdk.builders import timeseries as timeseries_builders
from grafana_foundation_sdk.models import common, dashboard, heatmap as heatmap_models
from grafana_foundation_sdk.models.dashboard import DataTransformerConfig, DynamicConfigValue, MatcherConfig, Threshold, ValueMappingResult
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from . import style
from .queries import linked

# Pixels of a column: more, and tables of jobs do not fit a usual screen.
NARROWEST = 66
# What a link of a table has to choose as Cluster: a column that is not shown.
CLUSTER_OF_ROW = '${__data.fields["Cluster link"]}'
DATASOURCE = common.DataSourceRef(type_val="prometheus", uid="${datasource}")


class Query:
    """A query of a panel; `legend` names its series, or the column of a table."""

    def __init__(self, expr, legend=None, ref=None, interval=None):
        self.expr, self.legend, self.ref, self.interval = " ".join(expr.split()), legend, ref, interval

    def build(self, ref, instant, as_table):
        query = prometheus.Dataquery().datasource(DATASOURCE).expr(self.expr).ref_id(self.ref or ref)
        query = query.instant() if instant else query.range()
        query = query.format(PromQueryFormat.TABLE if as_table else PromQueryFormat.TIME_SERIES)
        query = query.legend_format("__auto" if self.legend is None or as_table else self.legend)
        return query.interval(self.interval) if self.interval else query


def queries(given):
    """`given` as a list of Query: a string, a (string, legend), a Query or a list of these."""
    if isinstance(given, (str, Query)) or (isinstance(given, tuple) and isinstance(given[0], str)):
        given = [given]
    return [one if isinstance(one, Query) else Query(one) if isinstance(one, str) else Query(*one) for one in given]


def refs():
    """A, B, ..., Z, AA, AB, ..."""
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    yield from letters
    for first in letters:
        for second in letters:
            yield first + second


def targets(panel, given, instant=False, as_table=False):
    for ref, query in zip(refs(), queries(given)):
        panel = panel.with_target(query.build(ref, instant, as_table))
    return panel


def thresholds(steps):
    return builders.ThresholdsConfig().mode(dashboard.ThresholdsMode.ABSOLUTE).steps(
        [Threshold(value=value, color=colour) for value, colour in steps])


def mapping(texts):
    """Value mappings: {value: (text, colour)}."""
    return [dashboard.ValueMap(options={
        str(value): ValueMappingResult(text=text, color=colour, index=index)
        for index, (value, (text, colour)) in enumerate(texts.items())})]


def special(match, text, colour=None):
    """A value mapping of null or NaN."""
    result = ValueMappingResult(text=text, color=colour, index=99)
    return dashboard.SpecialValueMap(options=dashboard.DashboardSpecialValueMapOptions(match=match, result=result))


def prop(name, value):
    return DynamicConfigValue(id_val=name, value=value)


def fixed(colour):
    return prop("color", {"mode": "fixed", "fixedColor": colour})


def dashed(colour=style.GREY):
    """How a limit is drawn: a dashed line without anything below it, and out of a stack."""
    return [fixed(colour), prop("custom.lineStyle", {"fill": "dash", "dash": [8, 6]}), prop("custom.fillOpacity", 0),
            prop("custom.stacking", {"mode": "none", "group": "limit"}), prop("custom.lineWidth", 2)]


def common_parts(panel, title, description, unit, decimals=None, nothing=None):
    """What all panels have; `nothing` is what one without data says, where that is normal."""
    panel = panel.title(title).description(description).datasource(DATASOURCE)
    if nothing:
        panel = panel.no_value(nothing)
    if unit is not None:
        panel = panel.unit(unit)
    return panel if decimals is None else panel.decimals(decimals)


def _links(panel, links):
    return panel.data_links([builders.DashboardLink(title).url(url) for title, url in links]) if links else panel


def stat(title, description, unit, query, steps=None, texts=None, decimals=None, graph=False, links=None, text_mode=None, nothing=None):
    """One number of now, or of the end of the time range; `graph` shows its course behind it."""
    panel = common_parts(stat_builders.Panel(), title, description, unit, decimals, nothing)
    panel = targets(panel, query, instant=not graph)
    panel = panel.thresholds(thresholds(steps or style.PLAIN)).color_scheme(builders.FieldColor().mode(dashboard.FieldColorModeId.THRESHOLDS))
    panel = panel.color_mode(common.BigValueColorMode.VALUE)
    panel = panel.graph_mode(common.BigValueGraphMode.AREA if graph else common.BigValueGraphMode.NONE)
    panel = panel.reduce_options(common_builders.ReduceDataOptions().calcs(["lastNotNull"]).values(False).fields(""))
    if text_mode:
        panel = panel.text_mode(text_mode)
    # Without a value there is no state: not the colour of the lowest threshold, either.
    absent = special(dashboard.SpecialValueMatch.NULL, nothing or "No data", style.GREY)
    panel = panel.mappings([*(mapping(texts) if texts else []), absent])
    return _links(panel, links)


def gauges(title, description, bands, nothing):
    """A gauge for each query that has a result, 0 to 100 %: `bands` is {name: (query, thresholds)}, and the thresholds are drawn round it."""
    panel = common_parts(gauge.Panel(), title, description, style.RATIO, 0, nothing)
    panel = targets(panel, [Query(expr, name) for name, (expr, _) in bands.items()], instant=True)
    panel = panel.min(0).max(1).show_threshold_markers(True).show_threshold_labels(False).orientation(common.VizOrientation.AUTO)
    panel = panel.reduce_options(common_builders.ReduceDataOptions().calcs(["lastNotNull"]).values(False).fields(""))
    panel = panel.thresholds(thresholds(style.PLAIN)).color_scheme(builders.FieldColor().mode(dashboard.FieldColorModeId.THRESHOLDS))
    for name, (_, steps) in bands.items():
        panel = panel.override_by_name(name, [prop("thresholds", {"mode": "absolute", "steps": [{"value": value, "color": colour} for value, colour in steps]})])
    return panel


def sentence(title, description, query, ranges, legend):
    """A text, the label `legend` of a query's one result, beside the word that its value stands for: `ranges` is [(from, to, word, colour)]."""
    panel = common_parts(stat_builders.Panel(), title, description, style.NONE)
    panel = targets(panel, Query(query, f"{{{{{legend}}}}}"), instant=True)
    panel = panel.mappings([dashboard.RangeMap(options=dashboard.DashboardRangeMapOptions(from_val=low, to=high, result=ValueMappingResult(text=word, color=colour, index=index)))
                            for index, (low, high, word, colour) in enumerate(ranges)])
    panel = panel.thresholds(thresholds(style.PLAIN)).color_scheme(builders.FieldColor().mode(dashboard.FieldColorModeId.THRESHOLDS))
    panel = panel.color_mode(common.BigValueColorMode.VALUE).graph_mode(common.BigValueGraphMode.NONE).text_mode(common.BigValueTextMode.VALUE_AND_NAME)
    panel = panel.orientation(common.VizOrientation.HORIZONTAL).text(common_builders.VizTextDisplayOptions().title_size(18).value_size(20))
    return panel.reduce_options(common_builders.ReduceDataOptions().calcs(["lastNotNull"]).values(False).fields(""))


BAND_COLOURS = {"Highest": style.RED, "95 % are below": style.ORANGE, "Half are below": style.BLUE, "5 % are below": style.DEEP, "Lowest": style.GREY}


def bands(expr, lines, name, step):
    """Of too many series for a line each: how they are distributed, and `lines` of some of them, named `name`."""
    ways = {"Highest": "max({})", "95 % are below": "quantile(0.95, {})", "Half are below": "quantile(0.5, {})", "5 % are below": "quantile(0.05, {})", "Lowest": "min({})"}
    return [*(Query(way.format(expr), title, interval=step) for title, way in ways.items()), Query(lines, name, interval=step)]


def series(title, description, unit, query, *, stack=False, low=0, high=None, bars=False, steps=None, limits=(), colours=None,
           calcs=("mean", "max"), fill=None, decimals=None, links=None, right=None, log=False, legend_right=False, overrides=(), nothing=None):
    """Time series, whose lines end where there are no points: Grafana inserts what is missing by the query's step, as long as `insertNulls`
    is not set. `limits` are names drawn dashed, `colours` {name: colour}, `right` {regular expression: unit} goes to the right axis."""
    panel = common_parts(timeseries_builders.Panel(), title, description, unit, decimals, nothing)
    panel = targets(panel, query)
    panel = panel.line_width(1).fill_opacity(fill if fill is not None else (60 if stack else 0)).show_points(common.VisibilityMode.AUTO)
    panel = panel.span_nulls(False).draw_style(common.GraphDrawStyle.BARS if bars else common.GraphDrawStyle.LINE)
    panel = panel.color_scheme(builders.FieldColor().mode(dashboard.FieldColorModeId.PALETTE_CLASSIC))
    panel = panel.tooltip(common_builders.VizTooltipOptions().mode(common.TooltipDisplayMode.MULTI).sort(common.SortOrder.DESCENDING))
    panel = panel.legend(common_builders.VizLegendOptions().show_legend(True).calcs(list(calcs))
                         .display_mode(common.LegendDisplayMode.TABLE if calcs else common.LegendDisplayMode.LIST)
                         .placement(common.LegendPlacement.RIGHT if legend_right else common.LegendPlacement.BOTTOM))
    if log:
        panel = panel.scale_distribution(common_builders.ScaleDistributionConfig().type(common.ScaleDistribution.LOG).log(10))
    elif low is not None:
        panel = panel.min(low)
    if high is not None:
        panel = panel.axis_soft_max(high)
    if stack:
        panel = panel.stacking(common_builders.StackingConfig().mode(common.StackingMode.NORMAL).group("A"))
    if steps:
        panel = panel.thresholds(thresholds(steps)).thresholds_style(
            common_builders.GraphThresholdsStyleConfig().mode(common.GraphThresholdsStyleMode.DASHED))
    for name in limits:
        panel = panel.override_by_name(name, dashed()) if not name.startswith("/") else panel.override_by_regexp(name, dashed())
    for name, colour in (colours or {}).items():
        panel = panel.override_by_name(name, [fixed(colour)])
    for pattern, other in (right or {}).items():
        panel = panel.override_by_regexp(pattern, [prop("unit", other), prop("custom.axisPlacement", "right"), prop("custom.fillOpacity", 0)])
    for name, properties in overrides:
        panel = panel.override_by_name(name, properties)
    return _links(panel, links)


class Column:
    """A column of a table: the field it is made of (a label, or `Value #A`), its heading, and how it looks."""

    def __init__(self, field, title, unit=None, decimals=None, steps=None, gauge=None, texts=None, links=None, width=None, hide=False,
                 wrap=False):
        self.field, self.title, self.unit, self.decimals, self.steps = field, title, unit, decimals, steps
        self.gauge, self.texts, self.links, self.width, self.hide, self.wrap = gauge, texts, links, width, hide, wrap

    def properties(self):
        found = []
        if self.unit or self.texts:
            found.append(prop("unit", self.unit or style.NONE))
        if self.decimals is not None:
            found.append(prop("decimals", self.decimals))
        if self.steps:
            found.append(prop("thresholds", {"mode": "absolute", "steps": [{"value": value, "color": colour} for value, colour in self.steps]}))
            kind = {"type": "gauge", "mode": "basic", "valueDisplayMode": "text"} if self.gauge else {"type": "color-text"}
            found += [prop("color", {"mode": "thresholds"}), prop("custom.cellOptions", kind)]
        if self.gauge:
            found += [prop("min", 0), prop("max", self.gauge)]
        if self.texts:
            found += [prop("mappings", mapping(self.texts)), prop("custom.cellOptions", {"type": "color-text"})]
        if self.links:
            found.append(prop("links", [{"title": title, "url": url} for title, url in self.links]))
        if self.width:
            found.append(prop("custom.width", self.width))
        if self.hide:
            # Grafana 10 and 11, and later ones.
            found += [prop("custom.hidden", True), prop("custom.hideFrom", {"viz": True, "legend": False, "tooltip": False})]
        if self.wrap:
            # Grafana 11 has it in the cell's options, Grafana 12.2 and later in the field.
            found += [prop("custom.cellOptions", {"type": "auto", "wrapText": True}), prop("custom.wrapText", True)]
        if self.field.startswith("Value"):
            found.append(prop("custom.filterable", False))
        return found


def transformation(kind, options, refs_=None):
    matcher = MatcherConfig(id_val="byRefId", options=f"/^({'|'.join(refs_)})$/") if refs_ else None
    return DataTransformerConfig(id_val=kind, options=options, filter_val=matcher)


def _arrange(panel, columns):
    """The columns given, in their order and with their headings; other fields are left out."""
    panel = panel.with_transformation(transformation("filterFieldsByName", {"include": {"names": [column.field for column in columns]}}))
    panel = panel.with_transformation(transformation("organize", {
        "excludeByName": {}, "indexByName": {column.field: index for index, column in enumerate(columns)},
        "renameByName": {column.field: column.title for column in columns}}))
    for column in columns:
        properties = column.properties()
        if properties:
            panel = panel.override_by_name(column.title, properties)
    return panel


def table(title, description, columns, query, *, sort=None, descending=True, filterable=True, nothing=None):
    """A table of instant queries merged by the labels they have in common; columns in the order given, others left out.

    One with links has a column Cluster, which is there where series have that label, and hands the row's on.
    """
    query = queries(query)
    if any(CLUSTER_OF_ROW in url for column in columns for _, url in column.links or []):
        query = [Query(linked(query[0].expr)), *query[1:]]
        columns = [columns[0], Column("cluster", "Cluster", width=90), *columns[1:], Column("cluster_link", "Cluster link", hide=True)]
    panel = common_parts(table_builders.Panel(), title, description, style.TEXT, nothing=nothing)
    panel = targets(panel, query, instant=True, as_table=True)
    if len(query) > 1:
        panel = panel.with_transformation(transformation("merge", {}))
    else:
        columns = [Column(**{**column.__dict__, "field": "Value"}) if column.field == "Value #A" else column for column in columns]
    panel = _arrange(panel, columns)
    panel = panel.filterable(filterable).min_width(NARROWEST).cell_height(common.TableCellHeight.SM)
    if sort:
        panel = panel.sort_by([common_builders.TableSortByFieldState().display_name(sort).desc(descending)])
    return panel


def rows_of_labels(title, description, columns, query, nothing=None):
    """A table with a row for each series of each query, its labels in columns and its value in the one called Value; NaN is left blank."""
    panel = common_parts(table_builders.Panel(), title, description, style.TEXT, nothing=nothing)
    panel = targets(panel, query, instant=True)
    for kind, options in (("labelsToFields", {"mode": "columns"}), ("merge", {})):
        panel = panel.with_transformation(transformation(kind, options))
    panel = _arrange(panel, columns)
    return panel.mappings([special(dashboard.SpecialValueMatch.NA_N, " ")]).min_width(NARROWEST).cell_height(common.TableCellHeight.SM)


def bars(title, description, unit, query, steps=None, high=None, decimals=None, links=None, nothing=None):
    """Horizontal bars, the longest first as the query sorts them."""
    panel = common_parts(bargauge.Panel(), title, description, unit, decimals, nothing)
    panel = targets(panel, query, instant=True)
    panel = panel.orientation(common.VizOrientation.HORIZONTAL).display_mode(common.BarGaugeDisplayMode.BASIC).min(0)
    panel = panel.value_mode(common.BarGaugeValueMode.TEXT).text(common_builders.VizTextDisplayOptions().title_size(14).value_size(14))
    panel = panel.reduce_options(common_builders.ReduceDataOptions().calcs(["lastNotNull"]).values(False).fields(""))
    panel = panel.thresholds(thresholds(steps or [(None, style.BLUE)])).color_scheme(
        builders.FieldColor().mode(dashboard.FieldColorModeId.THRESHOLDS))
    if high is not None:
        panel = panel.max(high)
    return _links(panel, links)


def states(title, description, query, texts, *, row_height=0.85, show_value=True, nothing=None):
    """A state timeline: what was so when. Every value has a text and a colour."""
    panel = common_parts(statetimeline.Panel(), title, description, style.NONE, nothing=nothing)
    panel = targets(panel, query)
    panel = panel.mappings(mapping(texts)).thresholds(thresholds([(None, style.GREY)]))
    panel = panel.color_scheme(builders.FieldColor().mode(dashboard.FieldColorModeId.THRESHOLDS))
    panel = panel.merge_values(True).per_page(60).row_height(row_height).line_width(0).fill_opacity(85)
    panel = panel.show_value(common.VisibilityMode.AUTO if show_value else common.VisibilityMode.NEVER)
    panel = panel.tooltip(common_builders.VizTooltipOptions().mode(common.TooltipDisplayMode.SINGLE).sort(common.SortOrder.NONE))
    return panel.legend(common_builders.VizLegendOptions().show_legend(True).display_mode(common.LegendDisplayMode.LIST)
                        .placement(common.LegendPlacement.BOTTOM).calcs([]))


def heatmap(title, description, unit, query, high=1, scheme="Viridis", nothing=None):
    """A row per series and a column per moment; the colour is the value, from 0 to `high`."""
    panel = common_parts(heatmap_builders.Panel(), title, description, unit, nothing=nothing)
    panel = targets(panel, query)
    color = heatmap_builders.HeatmapColorOptions().mode(heatmap_models.HeatmapColorMode.SCHEME).scheme(scheme).fill("dark-orange")
    color = color.exponent(0.5).steps(64).reverse(False).min(0)
    # Grafana hides values of 0 by default; here they matter.
    panel = panel.filter_values(heatmap_builders.FilterValueRange().le(-1))
    panel = panel.calculate(False).color(color.max(high) if high is not None else color)
    panel = panel.cell_gap(1).cell_values(heatmap_builders.CellValues().unit(unit)).show_value(common.VisibilityMode.NEVER)
    panel = panel.y_axis(heatmap_builders.YAxisConfig().axis_placement(common.AxisPlacement.LEFT))
    panel = panel.rows_frame(heatmap_builders.RowsHeatmapOptions().layout(common.HeatmapCellLayout.AUTO))
    panel = panel.tooltip(heatmap_builders.HeatmapTooltip().mode(common.TooltipDisplayMode.SINGLE).y_histogram(False).show_color_scale(True))
    return panel.show_legend()
