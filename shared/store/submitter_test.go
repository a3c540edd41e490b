package store_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/shared/chain"
	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/storetest"
)

// Whatever an account is called at the edge, it is one submitter with one
// queue; and the database itself knows only the canonical name.
func TestH04OneAccountTwoNames(t *testing.T) {
	t.Parallel()
	db := registered(t, 10, alice)
	t.Run("every accepted spelling is one submitter", func(t *testing.T) { oneSubmitter(t, db) })
	t.Run("other texts name invalidNames", namesNobody)
	t.Run("every table refuses another form", func(t *testing.T) { tablesRefuse(t, db) })
}

// spellings are other names of alice, which only an edge understands.
var spellings = []string{
	"0x00000000000000000000000000000000000a11ce",
	"0x00000000000000000000000000000000000A11CE",
	"eip155:1337:0x00000000000000000000000000000000000A11cE",
}

func oneSubmitter(t *testing.T, db storetest.Bundle) {
	var first store.StoredIntent
	for i, text := range append([]string{string(alice)}, spellings...) {
		sub, err := eip155.ParseSubmitter(text, 1337)
		if err != nil || sub != alice {
			t.Fatalf("parse %q: got %q, %v; want %q", text, sub, err, alice)
		}
		same := post(t, db, sub, "the same request")
		if i == 0 {
			first = same
		} else if same.TxID != first.TxID || same.New {
			t.Errorf("the same request for %q: got %+v, want the stored %s", text, same, first.TxID)
		}
		post(t, db, sub, "a request for "+text)
	}
	check.Equal(t, "under another default chain", check.Value(eip155.ParseSubmitter(string(alice), 1))(t), alice)
	w := take(t, db, alice, "a/1")
	check.Equal(t, "the one queue", len(w.Queue), 2+len(spellings))
	check.Equal(t, "leases", value[int](t, db, `select count(*) from submitter_lease`), 1)
}

func namesNobody(t *testing.T) {
	for _, text := range invalidNames {
		check.Err(t, fmt.Sprintf("parse %q", text), chain.ErrNotSubmitter)(eip155.ParseSubmitter(text, 1337))
	}
}

// invalidNames are texts that look like alice's name.
var invalidNames = []string{
	"",
	"eip155:01337:0x00000000000000000000000000000000000a11ce",
	"eip155:+1337:0x00000000000000000000000000000000000a11ce",
	"eip155:0:0x00000000000000000000000000000000000a11ce",
	"eip155::0x00000000000000000000000000000000000a11ce",
	"EIP155:1337:0x00000000000000000000000000000000000a11ce",
	"eip155:1337:0X00000000000000000000000000000000000a11ce",
	"eip155:1337:00000000000000000000000000000000000a11ce",
	"eip155:1337:0x0000000000000000000000000000000000a11ce",
	"eip155:1337:0x000000000000000000000000000000000000a11ce",
	"eip155:1337:0x00000000000000000000000000000000000a11cg",
	" eip155:1337:0x00000000000000000000000000000000000a11ce",
	"eip155:1337:0x00000000000000000000000000000000000a11ce\n",
}

func tablesRefuse(t *testing.T, db storetest.Bundle) {
	tables := db.Names(t, `
		select c.table_name::text from information_schema.columns c join information_schema.tables using (table_schema, table_name)
		 where c.table_schema = 'public' and c.column_name = 'submitter' and table_type = 'BASE TABLE' order by 1`)
	for _, table := range tables {
		for _, text := range slices.Concat(spellings, invalidNames) {
			_, err := db.DB.Exec(t.Context(), `insert into `+pgx.Identifier{table}.Sanitize()+` (submitter) values ($1)`, text)
			check.Equal(t, fmt.Sprintf("%s named %q", table, text), storetest.Violated(err), "submitter_id_check")
		}
	}
}

// The new signer signs from the next lease session on. The change is recorded once, with its
// author and reason.
func TestChangeSigner(t *testing.T) {
	t.Parallel()
	db := registered(t, 1, alice)
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
	check.Equal(t, "kept", value[string](t, db, `select string_agg(concat_ws(' ', submitter, action, from_signer, to_signer, by, reason), ',') from submitter_change`), string(alice)+" SIGNER local remote:vault ann moved")
	check.Equal(t, "signer of the next tenure", take(t, db, alice, "a/1").Signer, "remote:vault")
	stranger := move
	stranger.Submitter = eip155.NewSubmitter(1337, eip155.Address([20]byte{1}))
	check.Err(t, "an unknown submitter", store.ErrUnknownSubmitter)(db.ChangeSigner(t.Context(), stranger))
}
