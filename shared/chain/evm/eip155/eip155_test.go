package eip155_test

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/fencepost/fencepost/shared/chain"
	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/txtest"
)

const someAddress = "0xabcdef0123456789abcdef0123456789abcdef01"

// H4: every accepted spelling of an account is accepted as the same one.
func TestH04SpellingsOfOneAccountAreOneSubmitter(t *testing.T) {
	t.Parallel()
	const want = txmanager.Submitter("eip155:1:" + someAddress)
	for _, text := range []string{
		string(want),
		"eip155:1:0x" + strings.ToUpper(someAddress[2:]),
		"eip155:1:0xAbCdEf0123456789aBcDeF0123456789AbCdEf01",
		someAddress,
		"0x" + strings.ToUpper(someAddress[2:]),
	} {
		check.Equal(t, text, check.Value(eip155.ParseSubmitter(text, 1))(t), want)
	}
	check.Equal(t, "bare address with default chain 10", check.Value(eip155.ParseSubmitter(someAddress, 10))(t), "eip155:10:"+someAddress)
	check.Equal(t, "the default chain does not rename what is named in full", check.Value(eip155.ParseSubmitter(string(want), 10))(t), want)
}

func TestWhatNamesNoAccountIsRefused(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "0x", "alice", "eip155", "eip155:", "eip155:1", "eip155:1:", "eip155:1:0x", ":1:" + someAddress,
		"eip155:01:" + someAddress, "eip155:+1:" + someAddress, "eip155:-1:" + someAddress, "eip155:0:" + someAddress,
		"eip155: 1:" + someAddress, "eip155:1 :" + someAddress, "eip155::" + someAddress, "eip155:0x1:" + someAddress,
		"eip155:1_0:" + someAddress, "eip155:18446744073709551616:" + someAddress, "eip155:१:" + someAddress,
		"EIP155:1:" + someAddress, "Eip155:1:" + someAddress, "cosmos:1:" + someAddress, "eip155:1:1:" + someAddress,
		"eip155:1:" + someAddress + " ", " " + someAddress, someAddress + "\n", someAddress + "0", someAddress[:41],
		"0X" + someAddress[2:], someAddress[2:], "eip155:1:0X" + someAddress[2:], "0x" + strings.Repeat("g", 40),
		"0x" + strings.Repeat("é", 20), "0x+" + someAddress[3:], "0x\x00" + someAddress[3:],
	} {
		got, err := eip155.ParseSubmitter(text, 1)
		if !errors.Is(err, chain.ErrNotSubmitter) || got != "" {
			t.Errorf("%q: got %q, %v; want nothing, ErrNotSubmitter", text, got, err)
		}
	}
	if got, err := eip155.ParseSubmitter(someAddress, 0); !errors.Is(err, chain.ErrNotSubmitter) {
		t.Errorf("a bare address without a default chain: got %q, %v; want ErrNotSubmitter", got, err)
	}
}

// The same as the CHECK of the database's domain submitter_id.
var canonical = regexp.MustCompile(`^eip155:[1-9][0-9]{0,19}:0x[0-9a-f]{40}$`)

func TestParsingTheCanonicalFormIsTheIdentity(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		chain := rapid.Uint64Min(1).Draw(t, "chain")
		a := eip155.Address([20]byte(rapid.SliceOfN(rapid.Byte(), 20, 20).Draw(t, "address")))
		s := eip155.NewSubmitter(chain, a)
		if !canonical.MatchString(string(s)) {
			t.Fatalf("%q is not in canonical form", s)
		}
		other := rapid.Uint64().Draw(t, "default chain")
		check.Equal(t, "parsed", check.Value(eip155.ParseSubmitter(string(s), other))(t), s)
		if s.ChainID() != chain || s.Address() != a {
			t.Fatalf("%q: got chain %d, address %s; want %d, %s", s, s.ChainID(), s.Address(), chain, a)
		}
		mixed := txtest.MixCase(t, a.String())
		check.Equal(t, fmt.Sprintf("parse with %q", mixed), check.Value(eip155.ParseSubmitter(fmt.Sprintf("eip155:%d:%s", chain, mixed), other))(t), s)
		check.Equal(t, fmt.Sprintf("parse %q on chain %d", mixed, chain), check.Value(eip155.ParseSubmitter(mixed, chain))(t), s)
	})
}

func FuzzParseSubmitter(f *testing.F) {
	for _, text := range []string{"eip155:1:" + someAddress, someAddress, "eip155:01:" + someAddress, "eip155:1:", "0x", ""} {
		f.Add(text, uint64(1))
	}
	f.Fuzz(func(t *testing.T, text string, id uint64) {
		s, err := eip155.ParseSubmitter(text, id)
		if err != nil {
			if s != "" || !errors.Is(err, chain.ErrNotSubmitter) {
				t.Fatalf("%q: got %q, %v; want nothing, ErrNotSubmitter", text, s, err)
			}
			return
		}
		if !canonical.MatchString(string(s)) {
			t.Fatalf("%q: got %q, not in canonical form", text, s)
		}
		check.Equal(t, "read again", check.Value(eip155.ParseSubmitter(string(s), id+1))(t), s)
		if !strings.EqualFold(text, string(s)) && !strings.EqualFold(text, s.Address().String()) {
			t.Fatalf("%q was taken for %q", text, s)
		}
	})
}
