package store_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/rlp"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/migrations"
	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/store/storetest"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// signs is a statement that stores bytes as a version of the transaction $sent, which
// has nonce 0 of $alice.
func signs(version int, kind string, raw []byte) string {
	return signsFor("$sent", 0, version, kind, raw)
}

// signsFor is the same for another transaction of $alice.
func signsFor(txID string, n uint64, version int, kind string, raw []byte) string {
	return fmt.Sprintf(`with d as (insert into tx_document (tx_id, name, body, bytes) values (%s, 'version:%d', '{}', '\x%s'))
		%s (%[1]s, $alice, %[5]d, %[2]d, $hash, '%[6]s', 1)`, txID, version, hex.EncodeToString(raw), newVersion, n, kind)
}

// signedOnce are the duties of the trigger of that name.
var signedOnce = func() (duties []duty) {
	nine, long := eip155.Address([20]byte{9}), string(make([]byte, 70_000))
	for _, wrong := range []struct {
		by   string
		then string
	}{
		{"bytes_match_nonce", newVersion + `($sent, $alice, 0, 2, $hash, 'BUMP', 1)`},
		{"bytes_match_nonce", signs(2, "BUMP", storetest.Bytes(1337, 1, nine, 1, ""))},
		{"bytes_match_nonce", signs(2, "BUMP", storetest.Bytes(1338, 0, nine, 1, ""))},
		{"bytes_match_nonce", signs(2, "PLACEHOLDER", storetest.Bytes(1337, 1, alice.Address(), 0, ""))},
		{"bytes_match_nonce", signs(2, "BUMP", storetest.Bytes(1337, 1<<40, nine, 1, long))},
		{"bytes_match_nonce", signs(2, "BUMP", []byte{0})},
		{"bytes_match_nonce", signs(2, "BUMP", storetest.Bytes(1337, 0, nine, 1, "")[:20])},
		{"bytes_match_nonce", signs(2, "BUMP", append([]byte{1}, storetest.Bytes(1337, 0, nine, 1, "")[1:]...))},
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
	// A transaction that was not signed before its placeholder is not signed after it.
	first := strings.NewReplacer("$sent", "$bound", "$alice, 0", "$alice, 1", "$hash", "'0x"+strings.Repeat("6", 64)+"'").
		Replace(signs(1, "PLACEHOLDER", storetest.Bytes(1337, 1, alice.Address(), 0, "")))
	for _, kind := range []string{"ORIGINAL", "BUMP"} {
		then := strings.NewReplacer("$sent", "$bound", "$alice, 0", "$alice, 1").Replace(signs(2, kind, storetest.Bytes(1337, 1, nine, 1, "")))
		duties = append(duties, duty{"tx_version", first, then, "placeholders_are_last"})
	}
	return append(duties, duty{"tx_version", signs(2, "PLACEHOLDER", storetest.Bytes(1337, 0, alice.Address(), 0, "")),
		strings.Replace(signs(3, "BUMP", storetest.Bytes(1337, 0, nine, 1, "")), "$hash", "'0x"+strings.Repeat("6", 64)+"'", 1), "placeholders_are_last"})
}()

// A second intent for a nonce that is bound is refused by the database; a version of
// the same, and a placeholder, are not.
func TestSignOnce(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		kind  txmanager.VersionKind
		call  func(txID string) []byte
		taken bool
	}{
		"the same call, again":    {txmanager.VersionBump, func(id string) []byte { return storetest.Bytes(1337, 0, eip155.Address([20]byte{9}), 1, id) }, true},
		"a placeholder":           {txmanager.VersionPlaceholder, func(string) []byte { return storetest.Bytes(1337, 0, alice.Address(), 0, "") }, true},
		"another receiver":        {txmanager.VersionBump, func(id string) []byte { return storetest.Bytes(1337, 0, eip155.Address([20]byte{8}), 1, id) }, false},
		"another value":           {txmanager.VersionBump, func(id string) []byte { return storetest.Bytes(1337, 0, eip155.Address([20]byte{9}), 2, id) }, false},
		"other data":              {txmanager.VersionBump, func(id string) []byte { return storetest.Bytes(1337, 0, eip155.Address([20]byte{9}), 1, id+"0") }, false},
		"the next nonce":          {txmanager.VersionBump, func(id string) []byte { return storetest.Bytes(1337, 1, eip155.Address([20]byte{9}), 1, id) }, false},
		"another chain":           {txmanager.VersionBump, func(id string) []byte { return storetest.Bytes(1, 0, eip155.Address([20]byte{9}), 1, id) }, false},
		"a placeholder that pays": {txmanager.VersionPlaceholder, func(id string) []byte { return storetest.Bytes(1337, 0, eip155.Address([20]byte{9}), 1, id) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := registered(t, 1, alice)
			post(t, db, alice, "one")
			sendAll(t, db, alice)
			w := take(t, db, alice, "a/2")
			x := w.Open[0]
			before := contents(t, db, written...)
			_, err := db.Commit(t.Context(), txmanager.Commit{Lease: w.Lease, Versions: []txmanager.Version{{
				Tx: x, From: txmanager.Submitted, Kind: c.kind, Signed: txmanager.Signed{Hash: txmanager.Hash{7}, Raw: c.call(x.ID)},
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

// The functions' role can neither redirect nor drop the trigger, nor change later what it has
// read.
func TestSignOnceAgainstTheFunctionsRole(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	rows := plant(t, db)
	role := fmt.Sprintf("functions_%d", time.Now().UnixNano())
	db.Run(t, `create role `+role)
	t.Cleanup(func() {
		_, _ = db.DB.Exec(context.Background(), fmt.Sprintf(`drop owned by %[1]s; drop role %[1]s`, role))
	})
	check.OK(t)(migrations.Grant(t.Context(), db.URL, migrations.Grants{Functions: map[string][]string{role: {migrations.EveryFunction}}}))
	right, wrong := storetest.Bytes(1337, 0, eip155.Address([20]byte{9}), 1, ""), storetest.Bytes(1337, 0, eip155.Address([20]byte{8}), 1, "another")
	for name, c := range map[string]struct{ first, then, by string }{
		"as it is":          {"", signs(2, "BUMP", wrong), "one_intent_per_nonce"},
		"a temporary table": {"", `create temporary table tx_document (tx_id uuid, name text, bytes bytea)`, ""},
		"a table of its own in front": {fmt.Sprintf(`create temporary table tx_document (tx_id uuid, name text, bytes bytea);
			insert into tx_document values ($sent, 'version:1', '\x%[1]x'), ($sent, 'version:2', '\x%[1]x')`, right),
			strings.NewReplacer("into tx_document", "into public.tx_document", "into tx_version", "into public.tx_version").Replace(signs(2, "BUMP", wrong)), "one_intent_per_nonce"},
		"versions of its own in front": {`create temporary table tx_version (tx_id uuid, version integer, kind text);
			insert into tx_version values ($sent, 4, 'BUMP')`,
			strings.Replace(signs(5, "PLACEHOLDER", storetest.Bytes(1337, 0, alice.Address(), 0, "")), "into tx_version", "into public.tx_version", 1), "versions_follow"},
		"the trigger off":       {"", `alter table tx_version disable trigger sign_once`, ""},
		"all triggers off":      {"", `set session_replication_role = replica`, ""},
		"the bytes afterwards":  {"", `update tx_document set bytes = '\x00' where tx_id = $sent`, ""},
		"a version less":        {"", `delete from tx_version where tx_id = $sent`, ""},
		"a version's kind":      {"", `update tx_version set kind = 'PLACEHOLDER' where tx_id = $sent`, ""},
		"another function":      {"", `create or replace function sign_once() returns trigger language plpgsql as 'begin return null; end'`, ""},
		"a schema to put first": {"", `create schema mine`, ""},
	} {
		first := `set local role ` + role + `; ` + rows.Replace(c.first)
		if c.first != "" { // where nobody has revoked it
			first = fmt.Sprintf(`grant temporary on database %s to %s; `, pgx.Identifier{db.DB.Config().ConnConfig.Database}.Sanitize(), role) + first
		}
		err := db.Try(t, first, rows.Replace(c.then))
		if err == nil || c.by != "" && storetest.Violated(err) != c.by {
			t.Errorf("%s: got refused by %s, want by %q", name, storetest.Violated(err), c.by)
		}
	}
}

// What the database reads in a transaction's bytes is what go-ethereum wrote there,
// whatever its fields and of each form that is taken; of bytes cut short it reads
// nothing.
func TestSignedCallReadsWhatIsSigned(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	draw := rand.New(rand.NewPCG(1, 2))
	number := func(bits int) *big.Int {
		n := new(big.Int).SetUint64(draw.Uint64())
		n.Lsh(n, uint(draw.IntN(193))).Add(n, new(big.Int).SetUint64(draw.Uint64()))
		return n.Rsh(n, uint(max(n.BitLen()-draw.IntN(bits+1), 0)))
	}
	lengths := []int{0, 1, 2, 54, 55, 56, 57, 255, 256, 257, 65_535, 65_536, 130_000}
	for i := range 600 {
		chainID := number(63)
		chainID.SetBit(chainID, 0, 1) // no chain is 0
		data := make([]byte, lengths[i/3%len(lengths)])
		for j := range data {
			data[j] = byte(draw.Uint32())
		}
		var to *common.Address
		if i%7 > 0 {
			to = (*common.Address)(number(256).FillBytes(make([]byte, 32))[12:])
		}
		list := make(types.AccessList, draw.IntN(3))
		tx := [3]types.TxData{
			&types.LegacyTx{
				Nonce: number(62).Uint64(), GasPrice: number(256), Gas: number(64).Uint64(), To: to, Value: number(256), Data: data,
				V: new(big.Int).Add(new(big.Int).Lsh(chainID, 1), big.NewInt(35+draw.Int64N(2))), R: number(256), S: number(256),
			},
			&types.AccessListTx{
				ChainID: chainID, Nonce: number(62).Uint64(), GasPrice: number(256), Gas: number(64).Uint64(), To: to, Value: number(256), Data: data,
				AccessList: list, V: big.NewInt(draw.Int64N(2)), R: number(256), S: number(256),
			},
			&types.DynamicFeeTx{
				ChainID: chainID, Nonce: number(62).Uint64(), GasTipCap: number(256), GasFeeCap: number(256), Gas: number(64).Uint64(), To: to,
				Value: number(256), Data: data, AccessList: list, V: big.NewInt(draw.Int64N(2)), R: number(256), S: number(256),
			},
		}[i%3]
		want := types.NewTx(tx)
		raw := check.Value(want.MarshalBinary())(t)
		var chain, n *int64
		var call []byte
		ask := func(raw []byte) {
			t.Helper()
			if err := db.DB.QueryRow(t.Context(), `select chain, nonce, substr($1, call_at, call_size) from signed_call($1)`, raw).Scan(&chain, &n, &call); err != nil {
				t.Fatalf("%x: %v", raw[:min(len(raw), 200)], err)
			}
		}
		ask(raw)
		if chain == nil || n == nil || uint64(*chain) != chainID.Uint64() || uint64(*n) != want.Nonce() || !bytes.Equal(call, encodedCall(t, want)) {
			t.Fatalf("%x: got chain %v, nonce %v, %d bytes of call; want %s, %d and %d bytes", raw[:min(len(raw), 200)], chain, n, len(call), chainID, want.Nonce(), len(encodedCall(t, want)))
		}
		end := bytes.Index(raw, call) + len(call)
		if want.Type() == types.LegacyTxType { // its chain stands behind the call
			v, _, _ := want.RawSignatureValues()
			end += len(encoded(t, v))
		}
		if ask(raw[:draw.IntN(end)]); chain != nil || n != nil || call != nil {
			t.Fatalf("%x, cut short: got chain %v, nonce %v, want nothing", raw[:min(len(raw), 200)], chain, n)
		}
	}
}

// encodedCall is the recipient, the value and the data, in their encoded order.
func encodedCall(t *testing.T, tx *types.Transaction) (all []byte) {
	t.Helper()
	for _, field := range []any{tx.To(), tx.Value(), tx.Data()} {
		all = append(all, encoded(t, field)...)
	}
	return all
}

func encoded(t *testing.T, field any) []byte {
	t.Helper()
	return check.Value(rlp.EncodeToBytes(field))(t)
}

// Of bytes of other forms, or that name no chain, the database reads nothing.
func TestSignedCallReadsNothingElse(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	to, one := common.Address{9}, big.NewInt(1)
	legacy := func(v int64) []byte {
		return check.Value(types.NewTx(&types.LegacyTx{GasPrice: one, Gas: 21_000, To: &to, Value: one, V: big.NewInt(v), R: one, S: one}).MarshalBinary())(t)
	}
	typed := storetest.Bytes(1337, 0, eip155.Address([20]byte{9}), 1, "")
	for name, c := range map[string]struct {
		raw   []byte
		chain string
	}{
		"legacy, chain 1":               {legacy(37), "1"},
		"legacy, chain 1, the other v":  {legacy(38), "1"},
		"legacy, chain 46":              {legacy(128), "46"},
		"legacy, chain 1337":            {legacy(2*1337 + 35), "1337"},
		"legacy without a chain":        {legacy(27), ""},
		"legacy without a chain, odd":   {legacy(28), ""},
		"legacy unsigned":               {legacy(0), ""},
		"type 3":                        {append([]byte{3}, typed[1:]...), ""},
		"type 4":                        {append([]byte{4}, typed[1:]...), ""},
		"type 0 with a byte in front":   {append([]byte{0}, legacy(37)...), ""},
		"type 2 in a list":              {typed[1:], ""},
		"type 2 as type 1":              {append([]byte{1}, typed[1:]...), ""},
		"nothing":                       {[]byte{}, ""},
		"one byte":                      {[]byte{0xc0}, ""},
		"a list of nothing":             {[]byte{0xc0, 0}, ""},
		"a list that says to be longer": {bytes.Repeat([]byte{0xff}, 100), ""},
	} {
		var chain string
		err := db.DB.QueryRow(t.Context(), `select coalesce(chain::text, '') from signed_call($1)`, c.raw).Scan(&chain)
		if err != nil || chain != c.chain {
			t.Errorf("%s: got chain %q, %v; want %q", name, chain, err, c.chain)
		}
	}
}
