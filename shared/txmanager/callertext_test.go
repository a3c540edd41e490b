package txmanager_test

import (
	"testing"

	"github.com/fencepost/fencepost/shared/txmanager"
)

// Texts stored before node texts were separated are recognised by their class.
func TestOldNodeTextsAreForOperators(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][2]string{
		"nonce_too_high: nonce too high: tx nonce 0, gapped, next nonce 7": {txmanager.SendNonceTooHigh.Description(), "nonce too high: tx nonce 0, gapped, next nonce 7"},
		txmanager.SendPoolFull.Description():                               {txmanager.SendPoolFull.Description(), ""},
		"balance: the account is empty":                                    {"balance: the account is empty", ""},
		"":                                                                 {"", ""},
	} {
		if said, detail := txmanager.CallerText(text); said != want[0] || detail != want[1] {
			t.Errorf("%q: got %q and %q, want %q and %q", text, said, detail, want[0], want[1])
		}
	}
}
