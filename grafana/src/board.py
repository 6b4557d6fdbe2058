"""A dashboard: its variables, links, annotations, and where its panels are."""

import json

from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard
from grafana_foundation_sdk.models.dashboard import GridPos, VariableOption

from . import style
from .panels import CLUSTER_OF_ROW, DATASOURCE
from .queries import CLUSTER

WIDTH = 24
SCHEMA_VERSION = 41
TAG = "jobledger"

JOBS, REPORT, OWNER, WASTE = "jobledger-jobs", "jobledger-job-report", "jobledger-owner", "jobledger-waste"
OVERVIEW = "jobledger-overview"
NODE, GPU, ENERGY, EXPORTER = "jobledger-node", "jobledger-gpu", "jobledger-energy", "jobledger-exporter"


class Board:
    """Panels from left to right and downwards; ids are given in this order."""

    def __init__(self, uid, title, description, *, since="now-1h", refresh="1m"):
        self.uid, self.title = uid, title
        self.builder = (builders.Dashboard(title).uid(uid).description(description).tags([TAG]).readonly().timezone("browser")
                        .tooltip(dashboard.DashboardCursorSync.CROSSHAIR).time(since, "now").refresh(refresh)
                        .link(builders.DashboardLink("Jobledger").type(dashboard.DashboardLinkType.DASHBOARDS).tags([TAG])
                              .as_dropdown(True).keep_time(True).include_vars(False).target_blank(False)))
        self.next_id, self.x, self.y, self.line = 1, 0, 0, 0
        self.collapsed = None
        self.variable(builders.DatasourceVariable("datasource").label("Data source").type("prometheus"))
        self.lookup("cluster", "Cluster", "label_values(jobledger_exporter_build_info, cluster)", everything=".*")

    def variable(self, variable):
        self.builder.with_variable(variable)
        return self

    def lookup(self, name, label, query, *, everything=None, multi=False, description=None, newest_first=False):
        """A variable whose values come from Prometheus, asked again when the time range changes."""
        variable = (builders.QueryVariable(name).label(label).datasource(DATASOURCE).refresh(dashboard.VariableRefresh.ON_TIME_RANGE_CHANGED)
                    .query({"query": query, "refId": f"variable-{name}"}).definition(query)
                    .sort(dashboard.VariableSort.NUMERICAL_DESC if newest_first else dashboard.VariableSort.ALPHABETICAL_ASC)
                    .multi(multi).include_all(everything is not None))
        if everything is not None:
            variable = variable.all_value(everything).current(VariableOption(text="All", value="$__all", selected=True))
        return self.variable(variable.description(description) if description else variable)

    def text(self, name, label, default, description):
        """A variable that is typed, or set by a link: nothing is asked of Prometheus for it, and no choice of values resets it."""
        return self.variable(builders.TextBoxVariable(name).label(label).description(description).default_value(default)
                             .current(VariableOption(text=default, value=default, selected=True)))

    def count(self, name, expr):
        """A hidden variable for the title of a row: how many of something there are, or "none".

        Grafana cannot leave out a row of a classic dashboard: one that is repeated for the values of a variable is drawn once
        for a variable without any. Closed rows cost nothing.
        """
        there = " ".join(f'label_replace(count_values("there", ({expr}) or vector(0)), "there", "none", "there", "0")'.split())
        query = f"query_result({there})"
        return self.variable(builders.QueryVariable(name).hide(dashboard.VariableHide.HIDE_VARIABLE).datasource(DATASOURCE).regex('/there="([^"]*)"/')
                             .query({"query": query, "refId": f"variable-{name}"}).definition(query)
                             .refresh(dashboard.VariableRefresh.ON_TIME_RANGE_CHANGED))

    def worst(self, name, expr, label, description):
        """A hidden variable: the label of what `expr` chooses (topk), for panels that show these alone of a whole site."""
        query = f"query_result({' '.join(expr.split())})"
        return self.variable(builders.QueryVariable(name).hide(dashboard.VariableHide.HIDE_VARIABLE).description(description).datasource(DATASOURCE).regex(f'/{label}="([^"]*)"/')
                             .query({"query": query, "refId": f"variable-{name}"}).definition(query).multi(True).include_all(True)
                             .current(VariableOption(text="All", value="$__all", selected=True)).refresh(dashboard.VariableRefresh.ON_TIME_RANGE_CHANGED))

    def choice(self, name, label, values, description):
        first = values[0]
        return self.variable(builders.CustomVariable(name).label(label).description(description).values(",".join(values))
                             .current(VariableOption(text=first, value=first, selected=True))
                             .options([VariableOption(text=value, value=value, selected=value == first) for value in values]))

    def annotation(self, name, expr, colour, title, *, value_is_time=False, enable=True, text=""):
        """Marks on every panel: where the series is, or at the times (ms) that are its values."""
        note = (builders.AnnotationQuery().name(name).datasource(DATASOURCE).enable(enable).icon_color(colour).expr(" ".join(expr.split()))
                .title_format(title).text_format(text).step("30s"))
        self.builder.annotation(note.use_value_for_time(True) if value_is_time else note)
        return self

    def alerts(self, names, *matchers):
        """Marks where alerts fire: one for each name, however many nodes or jobs it is about."""
        selected = ",".join([CLUSTER, f'alertname=~"{names}"', 'alertstate="firing"', *matchers])
        return self.annotation("Alerts", f"count by (cluster, alertname, severity) (ALERTS{{{selected}}})", style.ORANGE, "{{alertname}} ({{severity}})")

    def link(self, title, url, tooltip=""):
        self.builder.link(builders.DashboardLink(title).type(dashboard.DashboardLinkType.LINK).url(url).tooltip(tooltip)
                          .icon("external link").keep_time(False).include_vars(False).target_blank(False).as_dropdown(False).tags([]))
        return self

    def _id(self):
        self.next_id += 1
        return self.next_id - 1

    def _finish_row(self):
        if self.x:
            self.x, self.y, self.line = 0, self.y + self.line, 0
        if self.collapsed is not None:
            self.builder.with_row(self.collapsed)
            self.y = self.collapsed_at + 1
            self.collapsed = None

    def row(self, title, *, collapsed=False):
        self._finish_row()
        row = builders.Row(title).collapsed(collapsed).id(self._id()).grid_pos(GridPos(h=1, w=WIDTH, x=0, y=self.y))
        if collapsed:
            self.collapsed, self.collapsed_at = row, self.y
        else:
            self.builder.with_row(row)
        self.y += 1
        return self

    def add(self, panel, width, height):
        if self.x + width > WIDTH:
            self.x, self.y, self.line = 0, self.y + self.line, 0
        panel = panel.id(self._id()).grid_pos(GridPos(h=height, w=width, x=self.x, y=self.y))
        (self.collapsed or self.builder).with_panel(panel)
        self.x, self.line = self.x + width, max(self.line, height)
        return self

    def json(self):
        """The dashboard as it is committed."""
        self._finish_row()
        model = json.loads(json.dumps(self.builder.build(), cls=JSONEncoder))
        model["schemaVersion"] = SCHEMA_VERSION
        model["annotations"].setdefault("list", [])
        return json.dumps(model, indent=2, ensure_ascii=False, sort_keys=True) + "\n"


def href(uid, *, variables=(), time="keep", **values):
    """An address of another of these dashboards, for a link of a table: the same data source, the cluster of the row (job numbers and node
    names are those of a cluster), `variables` handed on, `values` set; `time` is "keep", or (from, to)."""
    parts = ["${datasource:queryparam}", f'var-cluster={CLUSTER_OF_ROW}', *(f"${{{name}:queryparam}}" for name in variables)]
    parts += [f"var-{name}={value}" for name, value in values.items()]
    parts.append("${__url_time_range}" if time == "keep" else f"from={time[0]}&to={time[1]}")
    return f"/d/{uid}?{'&'.join(parts)}"
