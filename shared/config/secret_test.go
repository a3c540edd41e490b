package config_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/config"
)

// However it is printed, encoded or logged, alone or inside something, a secret
// does not show; revealed, it does.
func TestSecretsDoNotShow(t *testing.T) {
	t.Parallel()
	c := mustLoad(t, "FENCEPOST_RPC_URLS=https://node.example/hunter2")
	hidden := struct{ c config.Config }{c} // no method can be called on its fields
	var out bytes.Buffer
	for _, v := range []any{c.Database.URL, &c.Database.URL, c, &c, hidden, &hidden, []any{c.RPC}, map[string]any{"x": c.RPC.URLs}} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
			fmt.Fprintf(&out, verb+"\n", v)
		}
		check.Err(t, fmt.Sprintf("encode %T", v), nil)(json.NewEncoder(&out).Encode(v))
		slog.New(slog.NewJSONHandler(&out, nil)).Info("m", "v", v)
		slog.New(slog.NewTextHandler(&out, nil)).Info("m", "v", v)
	}
	for _, seen := range []string{"hunter2", fmt.Sprintf("%x", "hunter2")} {
		if strings.Contains(out.String(), seen) {
			t.Errorf("got output that shows %s, want none", seen)
		}
	}
	if !strings.Contains(out.String(), `"v":"[redacted]"`) {
		t.Errorf("got %s, want the secret as [redacted]", out.String())
	}
	check.Equal(t, "revealed", c.Database.URL.Reveal()+" "+c.RPC.URLs[0].Reveal(), databaseURL+" https://node.example/hunter2")
	check.Equal(t, "zero secret (nothing)", (config.Secret{}).Reveal(), "")
}

// A secret that is refused is not shown either.
func TestRefusedSecretsDoNotShow(t *testing.T) {
	t.Parallel()
	for _, given := range []string{
		"FENCEPOST_DATABASE_URL=mysql://root:hunter2@db", "FENCEPOST_DATABASE_URL=hunter2",
		"FENCEPOST_TRADING_SECRET=hunter2", "FENCEPOST_RPC_URLS=ws://node/hunter2", "FENCEPOST_RPC_URLS=http://%zzhunter2",
		"FENCEPOST_RPC_URLS=https://a.example/hunter2,ws://b.example/hunter2",
		"FENCEPOST_HANDLERS_SECRETS=hunter2", "FENCEPOST_HANDLERS_SECRETS=wage=hunter2", "FENCEPOST_HANDLERS_SECRETS=wage=whsec_hunter2",
	} {
		variable, _, _ := strings.Cut(given, "=")
		_, err := config.LoadForTests(with(given))
		if err == nil || !strings.HasPrefix(err.Error(), variable+"=[redacted]: want ") || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: got %v, want %s=[redacted]: want …", given, err, variable)
		}
	}
}
