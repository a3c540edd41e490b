package config

import (
	"strings"
	"testing"
)

// Constants counts the constants.
func Constants() (n int) {
	return len(new(Config).settings()) - len(settable(new(Config).settings(), false))
}

// A deployment cannot set a constant, and no list of settings has it.
func TestConstantsAreNoSettings(t *testing.T) {
	t.Parallel()
	for _, s := range new(Config).settings() {
		if !s.constant {
			continue
		}
		_, err := Load([]string{"FENCEPOST_CHAIN_ID=1", "FENCEPOST_DATABASE_URL=postgres://a@b/c", s.variable() + "=" + s.def})
		if err == nil || !strings.Contains(err.Error(), s.variable()+" is no setting") {
			t.Errorf("%s: got %v, want it refused", s.variable(), err)
		}
		if strings.Contains(Help()+page(), s.variable()) {
			t.Errorf("%s: got it in the list of settings, want it left out", s.variable())
		}
	}
	if Constants() == 0 {
		t.Error("got no constants")
	}
}
