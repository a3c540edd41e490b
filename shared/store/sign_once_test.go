package store_test

import (
	"encoding/hex"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/shared/nonce"
	"github.com/fencepost/fencepost/shared/store/storetest"
)

// signs is a statement that stores bytes as a version of the transaction $sent, which
// has nonce 0 of $alice.
func signs(version int, kind string, raw []byte) string {
	return fmt.Sprintf(`with d as (insert into tx_document (tx_id, name, body, bytes) values ($sent, 'version:%d', '{}', '\x%s'))
		%s ($sent, $alice, 0, %d, $hash, '%s', 1)`, version, hex.EncodeToString(raw), newVersion, version, kind)
}

// signedOnce are the duties of the trigger of that name.
var signedOnce = func() (duties []duty) {
	nine, long := nonce.Address{9}, string(make([]byte, 70_000))
	for _, wrong := range []struct {
		by   string
		then string
	}{
		{"bytes_bind_here", newVersion + `($sent, $alice, 0, 2, $hash, 'BUMP', 1)`},
		{"bytes_bind_here", signs(2, "BUMP", storetest.Bytes(1337, 1, nine, 1, ""))},
		{"bytes_bind_here", signs(2, "BUMP", storetest.Bytes(1338, 0, nine, 1, ""))},
		{"bytes_bind_here", signs(2, "PLACEHOLDER", storetest.Bytes(1337, 1, alice.Address(), 0, ""))},
		{"bytes_bind_here", signs(2, "BUMP", storetest.Bytes(1337, 1<<40, nine, 1, long))},
		{"bytes_bind_here", signs(2, "BUMP", []byte{0})},
		{"bytes_bind_here", signs(2, "BUMP", storetest.Bytes(1337, 0, nine, 1, "")[:20])},
		{"bytes_bind_here", signs(2, "BUMP", append([]byte{1}, storetest.Bytes(1337, 0, nine, 1, "")[1:]...))},
		{"placeholders_do_nothing", signs(2, "PLACEHOLDER", storetest.Bytes(1337, 0, nine, 0, ""))},
		{"placeholders_do_nothing", signs(2, "PLACEHOLDER", storetest.Bytes(1337, 0, alice.Address(), 1, ""))},
		{"placeholders_do_nothing", signs(2, "PLACEHOLDER", storetest.Bytes(1337, 0, alice.Address(), 0, "data"))},
		{"versions_follow", signs(3, "PLACEHOLDER", storetest.Bytes(1337, 0, alice.Address(), 0, ""))},
		{"one_intent_per_nonce", signs(2, "BUMP", storetest.Bytes(1337, 0, nine, 1, "another"))},
		{"one_intent_per_nonce", signs(2, "BUMP", storetest.Bytes(1337, 0, nine, 1, long))},
		{"one_intent_per_nonce", signs(2, "ORIGINAL", storetest.Bytes(1337, 0, alice.Address(), 0, ""))},
	} {
		duties = append(duties, duty{"tx_version", "", wrong.then, wrong.by})
	}
	return duties
}()

// A second intent for a nonce that is bound is refused by the database; a version of
// the same, and a placeholder, are not.
func TestSignOnce(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		kind  nonce.VersionKind
		call  func(txID string) []byte
		taken bool
	}{
		"the same call, again":    {nonce.VersionBump, func(id string) []byte { return storetest.Bytes(1337, 0, nonce.Address{9}, 1, id) }, true},
		"a placeholder":           {nonce.VersionPlaceholder, func(string) []byte { return storetest.Bytes(1337, 0, alice.Address(), 0, "") }, true},
		"another receiver":        {nonce.VersionBump, func(id string) []byte { return storetest.Bytes(1337, 0, nonce.Address{8}, 1, id) }, false},
		"another value":           {nonce.VersionBump, func(id string) []byte { return storetest.Bytes(1337, 0, nonce.Address{9}, 2, id) }, false},
		"other data":              {nonce.VersionBump, func(id string) []byte { return storetest.Bytes(1337, 0, nonce.Address{9}, 1, id+"0") }, false},
		"the next nonce":          {nonce.VersionBump, func(id string) []byte { return storetest.Bytes(1337, 1, nonce.Address{9}, 1, id) }, false},
		"another chain":           {nonce.VersionBump, func(id string) []byte { return storetest.Bytes(1, 0, nonce.Address{9}, 1, id) }, false},
		"a placeholder that pays": {nonce.VersionPlaceholder, func(id string) []byte { return storetest.Bytes(1337, 0, nonce.Address{9}, 1, id) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := storetest.New(t)
			db.Register(t, alice, 1)
			post(t, db, alice, "one")
			w := take(t, db, alice, "a/1")
			write(t, db, nonce.Write{Lease: w.Lease, Allocate: allocations(w, true), Release: nonce.GiveBack})
			w = take(t, db, alice, "a/2")
			x := w.Unsettled[0]
			before := contents(t, db, written...)
			_, err := db.Write(t.Context(), nonce.Write{Lease: w.Lease, Store: []nonce.Version{{
				Tx: x, From: nonce.Submitted, Kind: c.kind, Signed: nonce.Signed{Hash: nonce.Hash{7}, Raw: c.call(x.ID)},
			}}})
			if (err == nil) != c.taken {
				t.Fatalf("got %v, want taken %t", err, c.taken)
			}
			if diff := cmp.Diff(before, contents(t, db, written...)); (diff != "") != c.taken {
				t.Errorf("taken %t, and this was written (-before +after):\n%s", c.taken, diff)
			}
		})
	}
}
