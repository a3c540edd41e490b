package book_test

import (
	"fmt"
	"maps"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/fencepost/fencepost/emulator/fake/ubscore/book"
	"github.com/fencepost/fencepost/shared/check"
)

// balances returns the accounts by key.
func balances(a []book.Balance) map[book.AccountKey]book.Account {
	all := map[book.AccountKey]book.Account{}
	for _, b := range a {
		all[b.AccountKey] = b.Account
	}
	return all
}

// Accounts stay as they were when they were returned, while the book changes and others read them.
func TestAccountsStayAsTheyWere(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		b := book.New()
		apply := func(r book.Request) {
			r.AssetID, r.CreatedAt, r.ReqID = 1, now, fmt.Sprint(b.Seq())
			e, _, err := b.Decide(r, rules)
			if err == nil {
				err = b.Apply(e)
			}
			check.OK(t)(err)
		}
		apply(book.Request{Kind: book.AddAsset, Precision: 6})
		want := map[book.AccountKey]book.Account{}
		var read sync.WaitGroup
		defer read.Wait()
		for range rapid.IntRange(1, 8).Draw(t, "moments") {
			for range rapid.IntRange(0, 300).Draw(t, "changes") {
				k := book.AccountKey{UserID: rapid.Int64Range(1, 300).Draw(t, "user"), AssetID: 1}
				apply(book.Request{Kind: book.Deposit, UserID: k.UserID, Units: 1})
				want[k] = book.Account{Units: want[k].Units + 1, Status: book.Active}
			}
			then, at := b.Accounts(), maps.Clone(want)
			read.Go(func() {
				if d := cmp.Diff(at, balances(then)); d != "" || len(then) != len(at) {
					t.Errorf("%d accounts, (-want +got) %s", len(then), d)
				}
			})
			defer func() {
				check.Same(t, "in the end", balances(then), at)
			}()
		}
	})
}
