package book

// Balance is an account and its balance.
type Balance struct {
	AccountKey
	Account
}

// holdings are the accounts, oldest first.
type holdings struct {
	list []Balance
	at   map[AccountKey]int
}

func (h *holdings) get(k AccountKey) (Account, bool) {
	i, exists := h.at[k]
	if !exists {
		return Account{}, false
	}
	return h.list[i].Account, true
}

func (h *holdings) put(k AccountKey, a Account) {
	if i, exists := h.at[k]; exists {
		h.list[i].Account = a
		return
	}
	h.at[k] = len(h.list)
	h.list = append(h.list, Balance{k, a})
}
