package txmanager_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/fencepost/fencepost/shared/txmanager"
)

// Each combination of handler, payload and time has a different fingerprint, also where some are
// missing. The time's offset does not matter.
func TestFingerprintUntil(t *testing.T) {
	t.Parallel()
	at := time.Date(2027, 1, 31, 12, 0, 0, 1000, time.UTC)
	seen := map[[32]byte]string{}
	for _, handler := range []string{"", "wage"} {
		for _, payload := range []string{`{}`, `{"a":1}`} {
			for _, until := range []*time.Time{nil, &at, new(at.Add(time.Microsecond))} {
				what := fmt.Sprint(handler, payload, until)
				print := txmanager.FingerprintUntil(handler, []byte(payload), until)
				if other, taken := seen[print]; taken {
					t.Errorf("%s has the fingerprint of %s", what, other)
				}
				seen[print] = what
			}
		}
	}
	if txmanager.FingerprintUntil("", []byte(`{}`), nil) != txmanager.Fingerprint("", []byte(`{}`)) || txmanager.FingerprintUntil("w", []byte(`{}`), nil) != txmanager.Fingerprint("w", []byte(`{}`)) {
		t.Error("without a time: got another fingerprint than before")
	}
	if elsewhere := at.In(time.FixedZone("", 3600)); txmanager.FingerprintUntil("", []byte(`{}`), &elsewhere) != txmanager.FingerprintUntil("", []byte(`{}`), &at) {
		t.Error("the same moment in another offset: got another fingerprint")
	}
}
