"""The dashboards, as code: one module per dashboard, what they share beside them (grafana/README.md)."""
