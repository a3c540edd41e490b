package main

import (
	"strings"
	"testing"

	"github.com/fencepost/fencepost/shared/check"
)

// A setting, of a flag or of the environment, reaches the functions, or is refused with what to do instead. The flag wins.
func TestSettingsAreTakenOrRefused(t *testing.T) {
	t.Parallel()
	f, err := parse([]string{"--set", "transfer.retry.first=1s"}, []string{"FENCEPOST_TRANSFER_RETRY_FIRST=2s", "FENCEPOST_LOG_LEVEL=debug", "HOME=/"})
	if err != nil || len(f.settings) != 2 || f.settings["FENCEPOST_TRANSFER_RETRY_FIRST"] != "1s" || f.settings["FENCEPOST_LOG_LEVEL"] != "debug" {
		t.Errorf("settings: got %v, %v; want the flag's and the environment's", f.settings, err)
	}
	check.Equal(t, "over the demo's own", settingsOf(f)["FENCEPOST_TRANSFER_RETRY_FIRST"], "1s")
	check.Equal(t, "the demo's own", settingsOf(f)["FENCEPOST_TRANSFER_RESCUE_AFTER"], "3s")
	for setting, want := range map[string]string{"rpc.urls=http://x": "FENCEPOST_RPC_URLS: remove it", "LANG=C": "LANG is no setting", "x": "want NAME=VALUE"} {
		if _, err := parse([]string{"--set", setting}, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("--set %s: got %v, want %q", setting, err, want)
		}
	}
}
