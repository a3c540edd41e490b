package evm

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/txmanager"
)

func TestClassify(t *testing.T) {
	t.Parallel()
	for _, c := range sendTexts {
		for _, text := range []string{c.text, strings.ToUpper(c.text), strings.ToLower(c.text)} {
			check.Equal(t, fmt.Sprintf("%q (%s)", text, c.source), classify(text), c.want)
		}
	}
}

// No text means acceptance, letter case has no effect, and words attached to a phrase remove its
// meaning.
func FuzzClassify(f *testing.F) {
	for _, c := range sendTexts {
		f.Add(c.text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		class := classify(text)
		if class == txmanager.SendAccepted {
			t.Errorf("%q: got accepted, want anything else", text)
		}
		if upper := strings.ToUpper(text); strings.ToLower(upper) == strings.ToLower(text) && classify(upper) != class {
			t.Errorf("%q: got %s, in upper case %s, want the same", text, class, classify(upper))
		}
		if got := classify("un" + text + "n"); len(text) > 0 && !strings.ContainsAny(text, ":]") && got != txmanager.SendUnknown {
			t.Errorf("%q inside a word: got %s, want unknown", text, got)
		}
		check.Equal(t, fmt.Sprintf("%q about the chain's id", text), classify(text+" for chain id 5"), txmanager.SendUnknown)
	})
}
