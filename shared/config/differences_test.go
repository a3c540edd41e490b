package config_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/config"
)

// The settings that differ from their defaults are listed with their values, whatever the spelling of a
// value that equals its default.
func TestDifferencesFromTheDefaults(t *testing.T) {
	t.Parallel()
	got := map[string]string{}
	for _, d := range mustLoad(t, "FENCEPOST_RESUBMIT_INTERVAL=1m", "FENCEPOST_LEASE_RENEW_INTERVAL=2500ms", "FENCEPOST_GASBUMP_MULTIPLIER=1.5", "FENCEPOST_NONCE_STRICT_ENABLED=false",
		"FENCEPOST_AUTH_OPERATORS=ann@example.com,sub:7").Differences() {
		if d.Name == "chain.id" || d.Secret {
			continue // required
		}
		got[d.Variable] = d.Value + " instead of " + d.Default
	}
	want := map[string]string{
		"FENCEPOST_LEASE_RENEW_INTERVAL": "2.5s instead of 3s", "FENCEPOST_GASBUMP_MULTIPLIER": "1.5 instead of 1.125", "FENCEPOST_NONCE_STRICT_ENABLED": "false instead of true",
		"FENCEPOST_AUTH_OPERATORS": "email:ann@example.com,sub:7 instead of ",
	}
	check.Same(t, "differences", got, want)
}

// No difference shows a secret, or a part of a URL that may be one: with every setting given, each secret is
// listed by its name only.
func TestDifferencesShowNoSecret(t *testing.T) {
	t.Parallel()
	c := mustLoad(t, append(slices.Clone(everything), "FENCEPOST_EVENTS_WEBHOOK_URLS=shop=https://hooks.example/KEY-IN-A-PATH,books=https://hooks.example/b")...)
	all := c.Differences()
	text := check.Value(json.Marshal(all))(t)
	secrets := 0
	for _, d := range all {
		if d.Secret {
			secrets++
			if d.Value != "" {
				t.Errorf("%s: got a value, want none", d.Name)
			}
		}
	}
	if secrets < 5 {
		t.Errorf("secrets: got %d listed, want all that were given", secrets)
	}
	for _, key := range []string{c.Database.URL.Reveal(), c.RPC.URLs[0].Reveal(), c.Trading.Secret.Reveal(), "KEY-IN-A-PATH", config.Secret{}.String()} {
		if strings.Contains(string(text), key) {
			t.Errorf("differences: got %q in %s", key, text)
		}
	}
}
