package config

import "time"

// Telemetry configures where metrics and traces go.
type Telemetry struct {
	// OTLPEndpoint is the host:port of a collector for OTLP over gRPC; "": none, and nothing
	// is traced.
	OTLPEndpoint string
	// Prometheus offers GET /metrics to every client that reaches the port.
	Prometheus bool
	// FlushEvery is how long metrics and spans may wait to be delivered at the end of a
	// request.
	FlushEvery time.Duration
	// TraceOneIn traces one of so many intents; 1: all.
	TraceOneIn int
	// Balances is the number of submitters whose balance is measured; 0: none.
	Balances int
}

func (t *Telemetry) settings() []setting {
	return []setting{
		{name: "telemetry.otlpEndpoint",
			meaning: "a collector of metrics and traces, by OTLP over gRPC: in plain text on this machine, such as a sidecar, else by TLS",
			field:   hostPort(&t.OTLPEndpoint)},
		{name: "telemetry.prometheus", def: "false",
			meaning: "serve `GET /metrics` without authentication; never on Cloud Run",
			field:   boolean(&t.Prometheus)},
		{name: "telemetry.flushEvery", constant: true, def: "10s",
			meaning: "how long metrics and traces may wait for the collector; then the next request to end delivers them, within a second",
			field:   duration(&t.FlushEvery, 100*time.Millisecond, 10*time.Minute)},
		{name: "telemetry.traceOneIn", def: "100",
			meaning: "one of this many intents, drawn at random, is traced, if a collector is set. The sampled bit of a caller's `traceparent` has no effect; 1: all",
			field:   number(&t.TraceOneIn, "a number of intents", 1, 1_000_000)},
		{name: "telemetry.balances", def: "0",
			meaning: "how many submitters' balances the sweep shows, the first by name, one series each; 0: none",
			field:   number(&t.Balances, "a number of submitters", 0, 1000)},
	}
}

func (c *Config) telemetryRules() []rule {
	return []rule{{
		of:     []string{"telemetry.prometheus", "K_SERVICE"},
		broken: c.Telemetry.Prometheus && c.Platform.OnCloudRun(),
		say:    "where K_SERVICE is set, a public service would show its metrics to everybody, and each scrape another instance's: set telemetry.prometheus to false, and name a collector in telemetry.otlpEndpoint",
	}}
}
