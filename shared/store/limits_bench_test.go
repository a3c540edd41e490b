package store_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/storetest"
)

// What a create costs beside a million uses of the last thirty days, by what the policy bounds.
func BenchmarkCreateUnderAPolicy(b *testing.B) {
	amount := "1000000000000"
	day := store.Policy{MaxValuePerDay: &amount, MaxPerMinute: new(1_000_000)}
	callers := day
	callers.PerCaller = map[string]store.CallerLimits{"*": {MaxValuePerDay: &amount, MaxPerMinute: new(1_000_000), MaxQueued: new(1_000_000)}}
	all := callers
	all.Tokens = map[string]store.TokenLimits{token: {MaxAmountPerDay: &amount}}
	for _, c := range []struct {
		name      string
		policy    store.Policy
		givenBack bool
	}{{"none", store.Policy{}, false}, {"day and rate", day, false}, {"with callers", callers, false}, {"with callers and a token", all, false}, {"with 1440 minutes given back", all, true}} {
		b.Run(c.name, func(b *testing.B) {
			db := storetest.New(b)
			db.Register(b, alice, 10)
			conn, err := pgx.Connect(b.Context(), db.URL)
			if err != nil {
				b.Fatal(err)
			}
			defer conn.Close(context.Background())
			statements := []string{`update submitter set callers = '{sub:ann}'`, aMillionUses}
			if c.givenBack {
				statements = append(statements, aDayGivenBack)
			}
			for _, statement := range append(statements, `vacuum analyze`) {
				if _, err := conn.Exec(b.Context(), statement); err != nil {
					b.Fatal(err)
				}
			}
			if _, err := db.Store.PutPolicy(b.Context(), store.PolicyChange{Submitter: alice, Policy: c.policy, By: "olga", Reason: "a test"}); err != nil {
				b.Fatal(err)
			}
			n := 0
			create := func() {
				in := of(ann, called(fmt.Sprint("r-", n), transfers("1")))
				n++
				if _, err := db.Store.Create(b.Context(), in, 1_000_000); err != nil {
					b.Fatal(err)
				}
			}
			for range 20 {
				create()
			}
			for b.Loop() {
				create()
			}
		})
	}
}

// Of the submitter, its caller and the token.
const (
	aMillionUses = `
with uses as (
  select i, clock_timestamp() - interval '30 days' + i * interval '2.592 seconds' as at, gen_random_uuid() as tx_id from generate_series(1, 1000000) as i
), whole as (
  insert into submitter_use (submitter, number, at, tx_id, added_wei, intents, value_wei)
  select 'eip155:1337:0x00000000000000000000000000000000000a11ce', i, at, tx_id, 1, i, i from uses
)
insert into policy_use (submitter, scope, number, at, tx_id, added, intents, total)
select 'eip155:1337:0x00000000000000000000000000000000000a11ce', scope, i, at, tx_id, 1, i, i from uses, unnest(array['sub:ann', '0x000000000000000000000000000000000000000a']) as scope`

	aDayGivenBack = `
insert into policy_released_use (submitter, scope, minute, amount)
select 'eip155:1337:0x00000000000000000000000000000000000a11ce', scope, date_bin('1 minute', clock_timestamp(), 'epoch') - i * interval '1 minute', 1
  from generate_series(0, 1440) as i, unnest(array['', 'sub:ann', '0x000000000000000000000000000000000000000a']) as scope`
)
