package dashboard_test

import (
	"encoding/json"
	"flag"
	"os"
	"slices"
	"testing"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/telemetry/dashboard"
)

var update = flag.Bool("update", false, "write the dashboards")

// The dashboards in the repository are those of the list; -update writes them.
func TestDashboardsAreWritten(t *testing.T) {
	t.Parallel()
	for path, write := range map[string]func([]dashboard.Row) ([]byte, error){
		"../../../docs/grafana.json":                    dashboard.Grafana,
		"../../../terraform/modules/alerts/charts.json": dashboard.CloudMonitoring,
	} {
		want := check.Value(write(dashboard.Rows))(t)
		if *update {
			check.OK(t)(os.WriteFile(path, want, 0o644))
		}
		got := check.Value(os.ReadFile(path))(t)
		check.Same(t, path+", beside the list; go test ./shared/telemetry/dashboard -update writes it", string(got), string(want))
	}
}

type panel struct {
	ID         int
	Type       string
	Title      string
	Collapsed  *bool
	Panels     *[]panel
	GridPos    struct{ X, Y, W, H int }
	Datasource source
	Targets    []struct {
		RefID        string
		Expr         string
		LegendFormat string
		Datasource   source
	}
	FieldConfig struct{ Defaults struct{ Unit string } }
}

type source struct{ Type, UID string }

// Grafana's dashboard has the members that its documentation names, and a variable that chooses the data source. Its
// panels have ids of their own, do not overlap, and ask that data source.
// https://grafana.com/docs/grafana/latest/dashboards/build-dashboards/view-dashboard-json-model
func TestGrafanaTakesTheDashboard(t *testing.T) {
	t.Parallel()
	text := check.Value(dashboard.Grafana(dashboard.Rows))(t)
	var got struct {
		ID            *int
		UID, Title    string
		SchemaVersion int
		Time          struct{ From, To string }
		Templating    struct {
			List []struct{ Name, Type, Query string }
		}
		Annotations struct{ List []any }
		Panels      []panel
	}
	check.OK(t)(json.Unmarshal(text, &got))
	if got.ID != nil || got.UID == "" || len(got.UID) > 40 || got.Title == "" || got.SchemaVersion < 36 || got.Time.From == "" || got.Annotations.List == nil {
		t.Errorf("got id %v, uid %q, title %q, schemaVersion %d, time %v, annotations %v; want a new dashboard with a uid of its own", got.ID, got.UID, got.Title, got.SchemaVersion, got.Time, got.Annotations.List)
	}
	check.Equal(t, "variables", len(got.Templating.List), 1)
	check.Equal(t, "variable", got.Templating.List[0], struct{ Name, Type, Query string }{"datasource", "datasource", "prometheus"})
	check.Equal(t, "the first panel", got.Panels[0].Type, "row")
	taken, ids := map[[2]int]string{}, map[int]bool{}
	for _, p := range got.Panels {
		if ids[p.ID] || p.ID < 1 {
			t.Errorf("%s: got id %d, want one of its own", p.Title, p.ID)
		}
		ids[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other, ok := taken[[2]int{x, y}]; ok || x > 23 {
					t.Fatalf("%s: column %d, line %d is taken by %q or outside the grid of 24 columns", p.Title, x, y, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
		p.check(t)
	}
}

func (p panel) check(t *testing.T) {
	t.Helper()
	choice := source{"prometheus", "${datasource}"}
	switch p.Type {
	case "row":
		if p.Collapsed == nil || *p.Collapsed || p.Panels == nil || len(*p.Panels) > 0 || p.GridPos.W != 24 {
			t.Errorf("row %s: got %+v, want an open one over all columns, whose panels follow it", p.Title, p)
		}
	case "timeseries":
		if p.Title == "" || p.Datasource != choice || len(p.Targets) == 0 || !slices.Contains([]string{"ops", "s", "short", "percentunit"}, p.FieldConfig.Defaults.Unit) {
			t.Errorf("panel %s: got %+v, want a unit of Grafana's and queries", p.Title, p)
		}
		refs := map[string]bool{}
		for _, target := range p.Targets {
			if refs[target.RefID] || target.RefID == "" || target.Expr == "" || target.LegendFormat == "" || target.Datasource != choice {
				t.Errorf("panel %s: got %+v, want a name of its own, a query and a legend", p.Title, target)
			}
			refs[target.RefID] = true
		}
	default:
		t.Errorf("panel %s: got type %s, want row or timeseries", p.Title, p.Type)
	}
}
