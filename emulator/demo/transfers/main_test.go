package main

import (
	"strings"
	"testing"
)

// A setting, of a flag or of the environment, reaches the functions, or is refused with what to do instead. The flag wins.
func TestSettingsAreTakenOrRefused(t *testing.T) {
	t.Parallel()
	f, err := parse([]string{"--set", "transfer.retry.first=1s"}, []string{"FENCEPOST_TRANSFER_RETRY_FIRST=2s", "FENCEPOST_LOG_LEVEL=debug", "HOME=/"})
	if err != nil || len(f.settings) != 2 || f.settings["FENCEPOST_TRANSFER_RETRY_FIRST"] != "1s" || f.settings["FENCEPOST_LOG_LEVEL"] != "debug" {
		t.Errorf("settings: got %v, %v; want the flag's and the environment's", f.settings, err)
	}
	if got := settingsOf(f)["FENCEPOST_TRANSFER_RETRY_FIRST"]; got != "1s" {
		t.Errorf("over the demo's own: got %s, want 1s", got)
	}
	if got := settingsOf(f)["FENCEPOST_TRANSFER_RESCUE_AFTER"]; got != "3s" {
		t.Errorf("the demo's own: got %s, want 3s", got)
	}
	for setting, want := range map[string]string{"rpc.urls=http://x": "FENCEPOST_RPC_URLS: remove it", "LANG=C": "LANG is no setting", "x": "want NAME=VALUE"} {
		if _, err := parse([]string{"--set", setting}, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("--set %s: got %v, want %q", setting, err, want)
		}
	}
}
