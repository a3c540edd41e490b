package book

import (
	"iter"
	"slices"
)

// Balance is an account and its balance.
type Balance struct {
	AccountKey
	Account
}

// Accounts are all accounts at one moment, oldest first.
type Accounts struct {
	pages []*[pageSize]Balance
	count int
}

// pageSize is the number of accounts copied when one of them changes for the first time after
// [Book.Accounts].
const pageSize = 64

// Len is the number of accounts.
func (a Accounts) Len() int { return a.count }

// All iterates over the accounts.
func (a Accounts) All() iter.Seq[Balance] {
	return func(yield func(Balance) bool) {
		for i := range a.count {
			if !yield(a.pages[i/pageSize][i%pageSize]) {
				return
			}
		}
	}
}

// holdings are the accounts as the book changes them. A page that was shared is never changed: it
// is copied first.
type holdings struct {
	Accounts
	at     map[AccountKey]int
	shared []bool // by page
}

func newHoldings() holdings { return holdings{at: map[AccountKey]int{}} }

func (h *holdings) get(k AccountKey) (Account, bool) {
	i, exists := h.at[k]
	if !exists {
		return Account{}, false
	}
	return h.pages[i/pageSize][i%pageSize].Account, true
}

func (h *holdings) put(k AccountKey, a Account) {
	i, exists := h.at[k]
	if !exists {
		i = h.count
		h.at[k] = i
		h.count++
	}
	h.page(i / pageSize)[i%pageSize] = Balance{k, a}
}

// page returns page n, newly made or copied if it is shared.
func (h *holdings) page(n int) *[pageSize]Balance {
	switch {
	case n == len(h.pages):
		h.pages, h.shared = append(h.pages, new([pageSize]Balance)), append(h.shared, false)
	case h.shared[n]:
		own := *h.pages[n]
		h.pages[n], h.shared[n] = &own, false
	}
	return h.pages[n]
}

// share returns the accounts as they are now, for another goroutine to read. It copies only a
// pointer for each page.
func (h *holdings) share() Accounts {
	for i := range h.shared {
		h.shared[i] = true
	}
	return Accounts{slices.Clone(h.pages), h.count}
}
