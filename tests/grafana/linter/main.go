// Lints dashboards by all rules of dashboard-linter: lint CONFIGURATION DASHBOARD... Fails if there is an error or a warning.
// It is what `dashboard-linter lint --strict` does, for several dashboards at once.
package main

import (
	"fmt"
	"os"

	"github.com/grafana/dashboard-linter/lint"
)

func check(configuration string, paths []string) error {
	var dashboards []lint.Dashboard
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		dashboard, err := lint.NewDashboard(text)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		dashboards = append(dashboards, dashboard)
	}
	config := lint.NewConfigurationFile()
	if err := config.Load(configuration); err != nil {
		return err
	}
	rules := lint.NewRuleSet()
	results, err := rules.Lint(dashboards)
	if err != nil {
		return err
	}
	results.Configure(config)
	results.ReportByRule()
	if results.MaximumSeverity() >= lint.Warning {
		return fmt.Errorf("%d dashboards have errors, see above", len(dashboards))
	}
	return nil
}

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "lint CONFIGURATION DASHBOARD...")
		os.Exit(2)
	}
	if err := check(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
