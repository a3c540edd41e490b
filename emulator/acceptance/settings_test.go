package acceptance

import (
	"cmp"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"cloud.google.com/go/cloudtasks/apiv2/cloudtaskspb"

	"github.com/fencepost/fencepost/emulator/acceptance/acceptancetest"
	"github.com/fencepost/fencepost/emulator/stack"
)

// samples are values of settings without a default, and values that differ from it where an effect outside the
// functions is checked.
var samples = map[string]string{
	"FENCEPOST_HANDLERS_URLS": "shop=http://127.0.0.1:1/", "FENCEPOST_HANDLERS_SECRETS": "shop=whsec_" + strings.Repeat("QUJD", 8),
	"FENCEPOST_EVENTS_WEBHOOK_URLS": "shop=http://127.0.0.1:1/", "FENCEPOST_EVENTS_WEBHOOK_SECRETS": "shop=whsec_" + strings.Repeat("QUJD", 8),
	"FENCEPOST_EVENTS_WEBHOOK_CALLERS": "shop=email:shop@fencepost.example", "FENCEPOST_EVENTS_MODE": "webhook",
	"FENCEPOST_INTENTS_MAC_KEYS": strings.Repeat("QUJD", 10) + "QUI=", "FENCEPOST_TELEMETRY_OTLP_ENDPOINT": "127.0.0.1:1",
	"FENCEPOST_CONSOLE_TRACE_URL": "https://traces.example/t/{traceId}", "FENCEPOST_CONSOLE_LOG_URL": "https://logs.example/?q={txId}",
	"FENCEPOST_APPROVALS_REQUIRED": "register", "FENCEPOST_AUTH_DEPOSIT_SERVICE": "email:deposits@fencepost.example", "CLOUD_RUN_TIMEOUT_SECONDS": "50",
	"FENCEPOST_NONCE_STRICT_ENABLED": "false", "FENCEPOST_NONCE_MAX_IN_FLIGHT": "7",
	"FENCEPOST_TASKS_QUEUE_PREFIX": "mine", "FENCEPOST_TASKS_QUEUE_SHARDS": "2", "FENCEPOST_CONFIRMATIONS_RECEIPT_WORKERS": "9",
}

// Each setting and constant that is given to the emulator reaches the functions and what belongs to it outside
// them, or is refused with its name and what to do.
func TestEachSettingIsHonouredOrRefused(t *testing.T) {
	t.Parallel()
	text := string(must(os.ReadFile("../../docs/settings.md"))(t))
	given := stack.Settings{}
	give := func(name, variable, value string) {
		one := stack.Settings{}
		check(t, one.Set(name+"=1"))
		if _, ok := one[variable]; !ok {
			t.Errorf("--set %s=1: got %v, want %s", name, one, variable)
		}
		if sample, ok := samples[variable]; ok {
			value = sample
		}
		switch err := one.Check(); {
		case err == nil && value == "" && !slices.Contains([]string{"FENCEPOST_SIGNER_LOCAL_KEYSTORE", "FENCEPOST_SIGNER_LOCAL_PASSWORD_FILE"}, variable):
			t.Errorf("%s: got no value to try it with, want one in samples", variable)
		case err == nil && value != "":
			given[variable] = value
		case err != nil && (!strings.HasPrefix(err.Error(), variable+": ") || len(err.Error()) < len(variable)+10):
			t.Errorf("%s: got %q, want its name and what to do", variable, err)
		}
	}
	for _, row := range regexp.MustCompile("(?m)^\\| (?:`([\\w.]+)`|\\(Google's\\)) \\| `(\\w+)` \\| .*? \\| (?:`(.*?)`|required|) \\|").FindAllStringSubmatch(text, -1) {
		give(cmp.Or(row[1], row[2]), row[2], row[3])
	}
	_, constants, _ := strings.Cut(text, "## Constants")
	for _, row := range regexp.MustCompile("(?m)^\\| `([\\w.]+)` \\| `(.*?)` \\|").FindAllStringSubmatch(constants, -1) {
		one := stack.Settings{}
		check(t, one.Set(row[1]+"="))
		for variable := range one {
			give(row[1], variable, row[2])
		}
	}
	if len(given) < 70 {
		t.Fatalf("settings of the page that can be given: got %d, want at least 70", len(given))
	}
	b := setup(t, stack.Options{Settings: given})
	environ := strings.Split(string(must(os.ReadFile(fmt.Sprintf("/proc/%d/environ", b.Processes()[0].PID())))(t)), "\x00")
	for variable, value := range given {
		if !slices.Contains(environ, variable+"="+value) {
			t.Errorf("%s=%s: it did not reach the functions", variable, value)
		}
	}
	b.wantCount(t, "submitters with the window of nonce.maxInFlight", len(b.Submitters()), `select count(*) from submitter where max_in_flight = 7`)
	client := must(b.Tasks.Client(b.ctx))(t)
	defer client.Close()
	for _, shard := range []string{"0", "1"} {
		q := must(client.GetQueue(b.ctx, &cloudtaskspb.GetQueueRequest{Name: "projects/fencepost-local/locations/local1/queues/mine-receipt-" + shard}))(t)
		equal(t, "workers of the queue of receipts, shard "+shard, q.RateLimits.MaxConcurrentDispatches, 9)
	}
}

// What the functions refuse ends the start, with the settings' names.
func TestEmulatorRefusesInvalidSettings(t *testing.T) {
	t.Parallel()
	for name, settings := range map[string]stack.Settings{
		"FENCEPOST_NONCE_MAX_INFLIGHT is no setting: the nearest is FENCEPOST_NONCE_MAX_IN_FLIGHT": {"FENCEPOST_NONCE_MAX_INFLIGHT": "7"},
		"nonce.strict.enabled=false":          {"FENCEPOST_NONCE_MAX_IN_FLIGHT": "7"},
		"FENCEPOST_TASKS_QUEUE_SHARDS=\"no\"": {"FENCEPOST_TASKS_QUEUE_SHARDS": "no"},
	} {
		s, err := stack.Start(t.Context(), stack.Options{Binary: acceptancetest.Server.Path, Processes: 1, Submitters: 1, Settings: settings})
		if err == nil {
			check(t, s.Close())
		}
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%v: got %v, want it refused with %q", settings, err, name)
		}
	}
}
