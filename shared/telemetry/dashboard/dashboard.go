package dashboard

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
)

// rateBy shows how often something happens each second, by labels.
func rateBy(title, counter string, by ...string) Chart {
	return Chart{title, PerSecond, []Query{{"", over("sum", by) + "(rate(" + counter + "[5m]))", by}}}
}

// gauge shows a number of the whole deployment, which one process exports.
func gauge(title string, unit Unit, series string, by ...string) Chart {
	return Chart{title, unit, []Query{{"", over("max", by) + "(" + series + ")", by}}}
}

// quantiles shows the median and the 99th percentile of a histogram, by its series of buckets.
func quantiles(title, buckets string, by ...string) Chart {
	rates := over("sum", append([]string{"le"}, by...)) + "(rate(" + buckets + "[5m]))"
	return Chart{title, Seconds, []Query{
		{"p50", "histogram_quantile(0.5, " + rates + ")", by},
		{"p99", "histogram_quantile(0.99, " + rates + ")", by},
	}}
}

func over(aggregation string, by []string) string {
	if len(by) == 0 {
		return aggregation
	}
	return aggregation + " by (" + strings.Join(by, ", ") + ") "
}

// object is a JSON object.
type object = map[string]any

// cloudChart is a chart as terraform/modules/alerts/dashboard.tf reads it.
type cloudChart struct {
	Title   string   `json:"title"`
	Part    Part     `json:"part"`
	Queries []string `json:"queries"`
}

// CloudMonitoring returns the charts as JSON for Terraform. The series of a chart with several queries have the
// label of each in addition, because Cloud Monitoring names a series by its labels.
func CloudMonitoring(rows []Row) ([]byte, error) {
	var all []cloudChart
	for _, row := range rows {
		for _, c := range row.Charts {
			out := cloudChart{Title: row.Title + ": " + c.Title + unitNames[c.Unit], Part: row.Part}
			for _, q := range c.Queries {
				if q.Name != "" {
					q.PromQL = fmt.Sprintf(`label_replace(%s, "query", %q, "", "")`, q.PromQL, q.Name)
				}
				out.Queries = append(out.Queries, q.PromQL)
			}
			all = append(all, out)
		}
	}
	return marshal(all)
}

// unitNames end the titles of Cloud Monitoring, which shows no units of PromQL.
var unitNames = map[Unit]string{PerSecond: ", a second", Seconds: ", seconds"}

// The grid of Grafana has 24 columns: three charts beside each other.
const (
	columns     = 3
	chartWidth  = 24 / columns
	chartHeight = 8
)

// source is the data source that the operator chooses on the dashboard.
var source = object{"type": "prometheus", "uid": "${datasource}"}

// Grafana returns the dashboard as JSON in Grafana's classic model, which each version since 9 imports.
func Grafana(rows []Row) ([]byte, error) {
	var panels []object
	y := 0
	for _, row := range rows {
		panels = append(panels, object{
			"id": len(panels) + 1, "type": "row", "title": row.Title, "collapsed": false, "panels": []object{}, "gridPos": place(0, y, 24, 1),
		})
		y++
		for i, c := range row.Charts {
			panels = append(panels, c.panel(len(panels)+1, place(i%columns*chartWidth, y+i/columns*chartHeight, chartWidth, chartHeight)))
		}
		y += (len(row.Charts) + columns - 1) / columns * chartHeight
	}
	return marshal(object{
		"id": nil, "uid": "fencepost", "title": "Fencepost", "tags": []string{"fencepost"}, "timezone": "browser", "editable": true,
		"graphTooltip": 1, "time": object{"from": "now-6h", "to": "now"}, "timepicker": object{}, "refresh": "1m", "schemaVersion": 39, "version": 1,
		"links": []object{}, "annotations": object{"list": []object{}}, "panels": panels,
		"templating": object{"list": []object{{
			"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus", "current": object{}, "hide": 0,
			"includeAll": false, "multi": false, "options": []object{}, "refresh": 1, "regex": "", "skipUrlSync": false,
		}}},
	})
}

func place(x, y, w, h int) object { return object{"x": x, "y": y, "w": w, "h": h} }

func (c Chart) panel(id int, at object) object {
	var targets []object
	for i, q := range c.Queries {
		legend := q.Name
		for _, label := range q.By {
			legend += " {{" + label + "}}"
		}
		targets = append(targets, object{
			"refId": string(rune('A' + i)), "datasource": source, "editorMode": "code", "range": true, "instant": false,
			"expr": strings.ReplaceAll(q.PromQL, "[5m]", "[$__rate_interval]"), "legendFormat": cmp.Or(strings.TrimSpace(legend), c.Title),
		})
	}
	return object{
		"id": id, "type": "timeseries", "title": c.Title, "datasource": source, "gridPos": at, "targets": targets,
		"fieldConfig": object{"defaults": object{"unit": c.Unit, "min": 0, "custom": object{"showPoints": "never", "fillOpacity": 10}}, "overrides": []object{}},
		"options": object{
			"legend":  object{"displayMode": "list", "placement": "bottom", "showLegend": true, "calcs": []string{}},
			"tooltip": object{"mode": "multi", "sort": "desc"},
		},
	}
}

// marshal writes JSON that people read: indented, with < and > as they are.
func marshal(v any) ([]byte, error) {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(v)
	return out.Bytes(), err
}
