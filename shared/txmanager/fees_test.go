package txmanager_test

import (
	"encoding/json"
	"math/big"
	"testing"

	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/txtest"
)

// Legacy parameters are stored under their own name, and read back unchanged.
func TestLegacyParametersAreKept(t *testing.T) {
	t.Parallel()
	want := txmanager.GasParams{Gas: 7, Legacy: true, FeeCapWei: big.NewInt(9), TipCapWei: big.NewInt(9), ValueWei: big.NewInt(1)}
	text, err := json.Marshal(want)
	if err != nil || string(text) != `{"gas":7,"gasPrice":"9","value":"1"}` {
		t.Errorf("got %s, %v", text, err)
	}
	var got txmanager.GasParams
	if err := json.Unmarshal(text, &got); err != nil || txtest.Diff(want, got) != "" {
		t.Errorf("read back: got %+v, %v; want %+v", got, err, want)
	}
}
