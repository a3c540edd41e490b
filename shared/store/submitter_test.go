package store_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/shared/chain"
	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/storetest"
)

// Whatever an account is called at the edge, it is one submitter with one
// queue; and the database itself knows only the canonical name.
func TestH04OneAccountTwoNames(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	db.Register(t, alice, 10)
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
	if sub, err := eip155.ParseSubmitter(string(alice), 1); err != nil || sub != alice {
		t.Errorf("under another default chain: got %q, %v; want %q", sub, err, alice)
	}
	w := take(t, db, alice, "a/1")
	if got, want := len(w.Queue), 2+len(spellings); got != want {
		t.Errorf("the one queue: got %d intents, want %d", got, want)
	}
	if got := value[int](t, db, `select count(*) from submitter_lease`); got != 1 {
		t.Errorf("leases: got %d, want 1", got)
	}
}

func namesNobody(t *testing.T) {
	for _, text := range invalidNames {
		if sub, err := eip155.ParseSubmitter(text, 1337); !errors.Is(err, chain.ErrNotSubmitter) {
			t.Errorf("parse %q: got %q, %v; want ErrNotSubmitter", text, sub, err)
		}
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
	rows, err := db.DB.Query(t.Context(), `
		select table_name::text from information_schema.columns
		 where table_schema = 'public' and column_name = 'submitter' order by 1`)
	if err != nil {
		t.Fatal(err)
	}
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(tables) < 6 {
		t.Fatalf("tables that name a submitter: got %v, %v; want 6 or more", tables, err)
	}
	for _, table := range tables {
		for _, text := range slices.Concat(spellings, invalidNames) {
			_, err := db.DB.Exec(t.Context(), `insert into `+pgx.Identifier{table}.Sanitize()+` (submitter) values ($1)`, text)
			if got, want := violated(err), "submitter_id_check"; got != want {
				t.Errorf("%s named %q: got refused by %s, want by %s", table, text, got, want)
			}
		}
	}
}
