package export

import (
	"fmt"
	"net/http"

	promclient "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
)

// newPage returns a page with its reader's metrics only, without those of the language or the process.
func newPage() (http.Handler, sdkmetric.Reader, error) {
	registry := promclient.NewRegistry()
	reader, err := prometheus.New(prometheus.WithRegisterer(registry), prometheus.WithoutScopeInfo())
	if err != nil {
		return nil, nil, fmt.Errorf("page of metrics: %w", err)
	}
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{}), reader, nil
}

// Page shows all metrics of this process in Prometheus's form; nil if there is no page.
func (e *Exporter) Page() http.Handler {
	if e == nil {
		return nil
	}
	return e.page
}
