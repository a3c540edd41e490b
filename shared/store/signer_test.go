package store_test

import (
	"errors"
	"testing"

	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/storetest"
)

// The new signer signs from the next lease session on. The change is recorded once, with its
// author and reason.
func TestChangeSigner(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	db.Register(t, alice, 1)
	move := store.SignerChange{Submitter: alice, Signer: "remote:vault", By: "ann", Reason: "moved"}
	for _, want := range []struct {
		from    string
		changed bool
	}{{"local", true}, {"remote:vault", false}} {
		from, changed, err := db.ChangeSigner(t.Context(), move)
		if err != nil || from != want.from || changed != want.changed {
			t.Errorf("got from %q, changed %t, %v; want from %q, changed %t", from, changed, err, want.from, want.changed)
		}
	}
	if got := value[string](t, db, `select string_agg(concat_ws(' ', submitter, action, from_signer, to_signer, by, reason), ',') from submitter_change`); got != string(alice)+" SIGNER local remote:vault ann moved" {
		t.Errorf("kept: got %q, want the one change", got)
	}
	if w := take(t, db, alice, "a/1"); w.Signer != "remote:vault" {
		t.Errorf("the next tenure: got signer %q, want remote:vault", w.Signer)
	}
	stranger := move
	stranger.Submitter = eip155.NewSubmitter(1337, eip155.Address([20]byte{1}))
	if _, _, err := db.ChangeSigner(t.Context(), stranger); !errors.Is(err, store.ErrUnknownSubmitter) {
		t.Errorf("an unknown submitter: got %v, want ErrUnknownSubmitter", err)
	}
}
