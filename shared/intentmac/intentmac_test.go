package intentmac_test

import (
	"context"
	"encoding/base64"
	"errors"
	"slices"
	"testing"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/intentmac"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// secret is a key of 32 bytes.
func secret(b byte) string {
	return base64.StdEncoding.EncodeToString(slices.Repeat([]byte{b}, 32))
}

func keysOf(t *testing.T, texts ...string) *intentmac.Keys {
	t.Helper()
	return check.Value(intentmac.New(texts, nil))(t)
}

func terms() txmanager.IntentTerms {
	return txmanager.IntentTerms{
		TxID: "01a1fda0-b1f9-7b07-a2c1-57c667e395bc", Submitter: "eip155:1337:0x00000000000000000000000000000000000a11ce",
		RequestID: "order-1", Caller: "email:shop@fencepost.example", Fingerprint: make([]byte, 32),
	}
}

func mustMake(t *testing.T, k *intentmac.Keys, of txmanager.IntentTerms) txmanager.MAC {
	t.Helper()
	return check.Value(k.Make(t.Context(), of))(t)
}

// A MAC is of one intent: with any term changed, or moved over the border of two, it is
// forged.
func TestMACIsOfOneIntent(t *testing.T) {
	t.Parallel()
	k := keysOf(t, secret(1))
	m := mustMake(t, k, terms())
	check.OK(t)(k.Verify(t.Context(), terms(), m))
	for name, change := range map[string]func(*txmanager.IntentTerms){
		"txId":        func(i *txmanager.IntentTerms) { i.TxID = "01a1fda0-b1f9-7b07-a2c1-57c667e395bd" },
		"submitter":   func(i *txmanager.IntentTerms) { i.Submitter = "eip155:1:0x00000000000000000000000000000000000a11ce" },
		"requestId":   func(i *txmanager.IntentTerms) { i.RequestID = "order-2" },
		"caller":      func(i *txmanager.IntentTerms) { i.Caller = "email:thief@fencepost.example" },
		"handler":     func(i *txmanager.IntentTerms) { i.Handler = "wage" },
		"fingerprint": func(i *txmanager.IntentTerms) { i.Fingerprint = slices.Repeat([]byte{1}, 32) },
		"a border":    func(i *txmanager.IntentTerms) { i.RequestID, i.Caller = i.RequestID+i.Caller[:5], i.Caller[5:] },
	} {
		other := terms()
		change(&other)
		check.Err(t, name+" changed", txmanager.ErrForged)(k.Verify(t.Context(), other, m))
	}
	short := m
	short.Sum = m.Sum[:31]
	check.Err(t, "cut", txmanager.ErrForged)(k.Verify(t.Context(), terms(), short))
}

// While a key is changed both check. A key that is not there, even one that took another's
// place, is unknown: nothing is refused for it.
func TestKeysAreChangedWithoutRefusals(t *testing.T) {
	t.Parallel()
	old, both, after := keysOf(t, secret(1)), keysOf(t, secret(2), secret(1)), keysOf(t, secret(2))
	before, since := mustMake(t, old, terms()), mustMake(t, both, terms())
	for name, c := range map[string]struct {
		keys *intentmac.Keys
		mac  txmanager.MAC
		want error
	}{
		"the old one's, by both":    {both, before, nil},
		"the new one's, by both":    {both, since, nil},
		"the new one's, by the new": {after, since, nil},
		"the old one's, by the new": {after, before, txmanager.ErrMACKey},
		"the new one's, by the old": {old, since, txmanager.ErrMACKey},
		"any, without keys":         {keysOf(t), since, txmanager.ErrMACKey},
	} {
		check.Err(t, name, c.want)(c.keys.Verify(t.Context(), terms(), c.mac))
	}
	check.Equal(t, "key of a MAC by both, which is the first", since.Key, after.IDs()[0])
}

func TestWhatIsNoKeyIsRefused(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "hunter2", base64.StdEncoding.EncodeToString(make([]byte, 31)), base64.StdEncoding.EncodeToString(make([]byte, 65)),
		"gcpkms:", "gcpkms:projects/p/locations/l/keyRings/r/cryptoKeys/k", "projects/p/locations/l/keyRings/r/cryptoKeys/k/cryptoKeyVersions/1",
	} {
		if _, err := intentmac.New([]string{text}, nil); err == nil {
			t.Errorf("%q: got a key, want an error", text)
		}
	}
}

// service is a Cloud KMS that counts, and can be away.
type service struct {
	asked int
	away  bool
}

var errAway = errors.New("unavailable")

func (s *service) Sum(context.Context, string, []byte) ([]byte, error) { return make([]byte, 32), nil }

func (s *service) Check(_ context.Context, _ string, _, sum []byte) (bool, error) {
	if s.asked++; s.away {
		return false, errAway
	}
	return sum[0] == 0, nil
}

// A service that gives no answer says nothing of the MAC. One that was right is not asked
// for again.
func TestKeyInAService(t *testing.T) {
	t.Parallel()
	s := new(service)
	k := check.Value(intentmac.New([]string{"gcpkms:projects/p/locations/l/keyRings/r/cryptoKeys/k/cryptoKeyVersions/1"}, s))(t)
	m := mustMake(t, k, terms())
	s.away = true
	if err := k.Verify(t.Context(), terms(), m); !errors.Is(err, errAway) || errors.Is(err, txmanager.ErrForged) {
		t.Errorf("away: got %v, want its error alone", err)
	}
	s.away = false
	forged := txmanager.MAC{Key: m.Key, Sum: slices.Repeat([]byte{1}, 32)}
	check.Err(t, "wrong", txmanager.ErrForged)(k.Verify(t.Context(), terms(), forged))
	s.asked = 0
	for range 3 {
		check.OK(t)(k.Verify(t.Context(), terms(), m))
	}
	check.Equal(t, "calls for one MAC that is right", s.asked, 1)
}

// BenchmarkMAC is what a create pays for the MAC, and an advance for checking it.
func BenchmarkMAC(b *testing.B) {
	k := check.Value(intentmac.New([]string{secret(1)}, nil))(b)
	m := check.Value(k.Make(b.Context(), terms()))(b)
	b.Run("make", func(b *testing.B) {
		for b.Loop() {
			_, _ = k.Make(b.Context(), terms())
		}
	})
	b.Run("check", func(b *testing.B) {
		for b.Loop() {
			_ = k.Verify(b.Context(), terms(), m)
		}
	})
}
