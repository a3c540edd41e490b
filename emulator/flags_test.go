package main

import (
	"strings"
	"testing"

	"github.com/fencepost/fencepost/emulator/demo"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/config"
)

// A flag that another flag or a setting contradicts is refused, and settings of the environment count like --set.
func TestFlagsThatContradict(t *testing.T) {
	t.Parallel()
	endpoint := check.Value(demo.StartWebhookEndpoint())(t)
	defer endpoint.Close()
	for line, want := range map[string]string{
		"--events webhook --set events.mode=log":               "FENCEPOST_EVENTS_MODE: --events",
		"--events webhook --set events.webhook.urls=a=https:x": "FENCEPOST_EVENTS_WEBHOOK_URLS: --events",
		"--window 2 --set nonce.strict.enabled=true":           "--window above 1",
		"--window 10001":                              "--window 10001: want 0 to 10000",
		"--set rpc.urls=http://x":                     "FENCEPOST_RPC_URLS: remove it",
		"--set mark.bucket=b":                         "FENCEPOST_MARK_BUCKET: give --mark",
		"--set chain.blockTime=5s":                    "FENCEPOST_CHAIN_BLOCK_TIME: give --block-time",
		"--set LANG=C":                                "LANG is no setting",
		"--block-time 1ms":                            "--block-time 1ms: want 50ms to 1m",
		"--core x":                                    "--core goes with --transfers",
		"--cells 2":                                   "--cells goes with --demo",
		"--demo --cells 5":                            "--cells 5: want 1 to 4",
		"--demo --cells 2 --keep --nodes 3":           "--keep does not go with --cells",
		"--demo --cells 2 --processes 1":              "",
		"ENV=FENCEPOST_CHAIN_ID=1":                    "FENCEPOST_CHAIN_ID: remove it",
		"--otlp a:1 --set telemetry.otlpEndpoint=b:1": "FENCEPOST_TELEMETRY_OTLP_ENDPOINT: --events or --otlp",
		"--otlp a:1 --set telemetry.traceOneIn=5":     "",
		"--events webhook --window 2 --set log.level=debug ENV=FENCEPOST_LOG_LEVEL=info": "",
	} {
		var args, environ []string
		for _, word := range strings.Fields(line) {
			if entry, ok := strings.CutPrefix(word, "ENV="); ok {
				environ = append(environ, entry)
			} else {
				args = append(args, word)
			}
		}
		f, err := parse(args, environ)
		if err == nil {
			_, err = f.functionSettings(endpoint)
		}
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: got %v, want %q", line, err, want)
		}
	}
}

// A server that is built as it is deployed, such as that of the emulator's image, takes no constants.
func TestFlagsGiveNoConstants(t *testing.T) {
	t.Parallel()
	endpoint := check.Value(demo.StartWebhookEndpoint())(t)
	defer endpoint.Close()
	f := check.Value(parse(strings.Fields("--otlp 127.0.0.1:4317 --events webhook --window 2 --mark"), nil))(t)
	settings := check.Value(f.functionSettings(endpoint))(t)
	var environ []string
	for name, value := range settings {
		environ = append(environ, name+"="+value)
	}
	if _, err := config.Load(environ); err != nil && strings.Contains(err.Error(), "is always") {
		t.Errorf("the settings that the flags give: %v", err)
	}
}
