package txmanager_test

import (
	"testing"

	"github.com/fencepost/fencepost/shared/txmanager"
)

func TestOnlyAcceptedAndKnownAcknowledge(t *testing.T) {
	t.Parallel()
	for class := txmanager.SendUnknown; class <= txmanager.SendInvalid; class++ {
		want := class == txmanager.SendAccepted || class == txmanager.SendAlreadyKnown
		if got := (txmanager.SendResult{Class: class}).Acknowledged(); got != want {
			t.Errorf("%s: got %v, want %v", class, got, want)
		}
	}
	if (txmanager.SendResult{}).Acknowledged() {
		t.Error("no answer acknowledges, want it unknown")
	}
}
