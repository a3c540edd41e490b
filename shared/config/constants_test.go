package config

import (
	"strings"
	"testing"
)

// The other tests of this package set the constants too, as programs built with [crash.Tag] can.
func init() { constantsSettable = true }

// A deployment cannot set a constant, and no list of settings has it.
func TestConstantsAreNoSettings(t *testing.T) {
	constantsSettable = false
	defer func() { constantsSettable = true }()
	constants := 0
	for _, s := range new(Config).settings() {
		if !s.constant {
			continue
		}
		constants++
		_, err := Load([]string{"FENCEPOST_CHAIN_ID=1", "FENCEPOST_DATABASE_URL=postgres://a@b/c", s.variable() + "=" + s.def})
		if err == nil || !strings.Contains(err.Error(), s.variable()+" is no setting") {
			t.Errorf("%s: got %v, want it refused", s.variable(), err)
		}
		if strings.Contains(Help()+page(), s.variable()) {
			t.Errorf("%s: got it in the list of settings, want it left out", s.variable())
		}
	}
	if constants == 0 {
		t.Error("got no constants")
	}
}
