package txmanager_test

import (
	"encoding/json"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/txtest"
)

func TestNoSubmitterAsksForNothing(t *testing.T) {
	t.Parallel()
	for _, s := range []txmanager.Submitter{"", "alice", "a:b"} {
		if s.ChainID() != 0 || s.Namespace() != "" || s.Address() != "" {
			t.Errorf("%q: got chain %d, address %s; want zeros", s, s.ChainID(), s.Address())
		}
	}
}

// A task's name takes letters, digits, hyphens and underscores; two submitters
// must not share one.
func TestDigestIsShortStableAndApart(t *testing.T) {
	t.Parallel()
	check.Equal(t, "first 128 bits of the SHA-256", eip155.NewSubmitter(1, eip155.Address([20]byte{19: 1})).Digest(), "8b58a25c41b7bba8176b474684afb222")
	seen := map[string]txmanager.Submitter{}
	for chain := range uint64(20) {
		for last := range byte(20) {
			s := eip155.NewSubmitter(chain+1, eip155.Address([20]byte{19: last}))
			if other, twice := seen[s.Digest()]; twice {
				t.Fatalf("%s and %s share %s", s, other, s.Digest())
			}
			seen[s.Digest()] = s
		}
	}
}

func TestHashesAreReadAsTheyAreWritten(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		h := txmanager.Hash(rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "hash"))
		check.Equal(t, "parsed in mixed case", check.Value(txmanager.ParseHash(txtest.MixCase(t, h.String())))(t), h)
		text := check.Value(json.Marshal(map[txmanager.Hash]txmanager.Hash{h: h}))(t)
		var back map[txmanager.Hash]txmanager.Hash
		check.OK(t)(json.Unmarshal(text, &back))
		check.Equal(t, "through JSON", back[h], h)
	})
	for _, text := range []string{"", "0x", "0x12", strings.Repeat("0", 66), "0x" + strings.Repeat("0", 63), "0x" + strings.Repeat("0", 65), "0x" + strings.Repeat("x", 64)} {
		if h, err := txmanager.ParseHash(text); err == nil {
			t.Errorf("%q: got %s, want an error", text, h)
		}
	}
}
