package main

import (
	"slices"
	"testing"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/emulator/verify/checkers/money"
	"github.com/fencepost/fencepost/emulator/verify/torture/transferload"
	"github.com/fencepost/fencepost/shared/transfer"
)

// The operator settles with the outside exactly the units that the core moved for a lost
// transfer.
func TestUnsettledHalvesAreFound(t *testing.T) {
	t.Parallel()
	half := map[string]money.Half{"a": {Account: money.Account{UserID: 3, AssetID: 1}, Units: 5}}
	for name, c := range map[string]struct {
		settled map[string]int64
		want    string
	}{
		"settled":           {map[string]int64{"a": -5}, ""},
		"not settled":       {nil, "0 was settled"},
		"by too little":     {map[string]int64{"a": -4}, "-4 was settled"},
		"to the other side": {map[string]int64{"a": 5}, "5 was settled"},
		"of another":        {map[string]int64{"b": -5}, "0 was settled"},
	} {
		wantFound(t, name, reported(func(to reporter) { unsettledHalves(to, half, c.settled) }), c.want)
	}
}

// A payout that was answered COMMITTED and whose row is lost is paid once and settled. So is one that a lost database paid
// and the current one refused, also if a database between them refused it. A second payment, a missing or superfluous
// settlement, and a payment of a refunded payout are found.
func TestPayoutsOfLostDatabases(t *testing.T) {
	t.Parallel()
	committed, back := transferload.End{State: transfer.Committed}, transferload.End{State: transfer.RolledBack, Reason: "PAYOUT_REJECTED"}
	refused := transferload.End{State: transfer.Failed, Reason: transfer.InsufficientBalance}
	one := transferload.Payment{Address: "0xfe1", Units: "100"}
	once, twice := []transferload.Payment{one}, []transferload.Payment{one, one}
	row := func(id string, state transfer.State, withdrawn, refunded int) []payout {
		return []payout{{ReqID: id, UserID: 3, State: state, Payment: one, Withdrawn: withdrawn, Refunded: refunded}}
	}
	pending, failed := row("a", transfer.TargetPending, 1, 0), row("a", transfer.Failed, 0, 0)
	paid, begun, returned := row("a", transfer.Committed, 1, 0), row("a", transfer.Committed, 0, 0), row("a", transfer.Committed, 1, 1)
	taken, short := map[string]int64{"a": -5}, map[string]int64{"a": -4}
	for name, c := range map[string]struct {
		end     transferload.End // that its user got
		lost    bool             // a restore may have lost that answer
		was     []payout         // of a lost database
		now     []payout
		settled map[string]int64
		paid    []transferload.Payment
		want    string
	}{
		"paid once, and settled":       {committed, true, pending, nil, taken, once, ""},
		"paid twice":                   {committed, true, pending, nil, taken, twice, "2 payments"},
		"never paid":                   {committed, true, pending, nil, taken, nil, "0 payments"},
		"not settled":                  {committed, true, pending, nil, nil, once, "withdrawn 0 times"},
		"settled by too little":        {committed, true, pending, nil, short, once, "withdrawn 2 times"},
		"told so before the backup":    {committed, false, pending, nil, taken, once, "no payout says so"},
		"the backup had it":            {committed, true, nil, nil, taken, once, "no payout says so"},
		"given back, and not paid":     {back, true, pending, nil, nil, nil, ""},
		"given back, and paid":         {back, true, pending, nil, nil, once, "no payout says so"},
		"repeated, and paid once more": {committed, true, pending, row("b", transfer.Committed, 1, 0), taken, once, "1 payments"},

		"paid, refused, and taken":      {refused, false, paid, failed, taken, once, ""},
		"under an earlier name":         {refused, false, paid, failed, map[string]int64{"z": -5}, once, ""},
		"nobody has taken it":           {refused, false, paid, failed, nil, once, "1 payments of 100 to 0xfe1 where there should be 0"},
		"taken too little":              {refused, false, paid, failed, short, once, "withdrawn 2 times"},
		"taken twice":                   {refused, false, paid, failed, map[string]int64{"a": -5, "z": -5}, once, "withdrawn 2 times"},
		"refused, and paid twice":       {refused, false, paid, failed, taken, twice, "2 payments"},
		"taken, and never paid":         {refused, false, paid, failed, taken, nil, "0 payments"},
		"no database had withdrawn it":  {refused, false, begun, failed, taken, once, "1 payments of 100 to 0xfe1 where there should be 0"},
		"a lost database gave it back":  {refused, false, returned, failed, taken, once, "1 payments of 100 to 0xfe1 where there should be 0"},
		"given back here":               {refused, false, paid, row("a", transfer.RolledBack, 1, 0), nil, once, "1 payments"},
		"it went on":                    {refused, false, paid, row("a", transfer.Committed, 1, 0), nil, once, ""},
		"it went on, and is taken":      {refused, false, paid, row("a", transfer.Committed, 1, 0), taken, once, "withdrawn 2 times"},
		"taken, and brought back":       {refused, false, paid, row("a", transfer.Committed, 1, 0), map[string]int64{"a": -5, "z": 5}, once, ""},
		"no row, and taken":             {refused, true, paid, nil, taken, once, ""},
		"no row, and nobody took it":    {refused, true, paid, nil, nil, once, "no payout says so"},
		"no row, and it was given back": {refused, true, returned, nil, taken, once, "no payout says so"},
	} {
		script := seen(transfer.Chain, stack.ETH, transferload.Answers{ID: "a", Lost: []string{"z"}, End: &c.end})
		rows := make(map[string]payout)
		for _, p := range c.was {
			rows[p.ReqID] = p
		}
		wanted := afterRestores(slices.Clone(c.now), []*transferload.Script{script}, func(transferload.Answers) bool { return c.lost }, rows, c.settled)
		wantFound(t, name, reported(func(to reporter) { payoutViolations(to, wanted, c.paid) }), c.want)
	}
}

// A restore explains findings of lost rows only.
func TestARestoreExplainsFindingsOfWhatWasLost(t *testing.T) {
	t.Parallel()
	r := restores{storedState: *newStoredState()}
	r.transfers["a"], r.hashes["0x1"] = true, true
	r.payouts["paid"], r.payouts["begun"], r.payouts["back"] = payout{Withdrawn: 1}, payout{}, payout{Withdrawn: 1, Refunded: 1}
	const refused = "no Payment: it is FAILED 100 to 0xfe1 by transaction "
	for name, c := range map[string]struct {
		kind, reqID, detail string
		want                bool
	}{
		"the core's line of a lost transfer":   {"NO_TRANSFER", "a", "", true},
		"its credit":                           {"CREDIT_WITHOUT_DEBIT", "a", "", true},
		"a line of another transfer":           {"NO_TRANSFER", "b", "", false},
		"a lost payment":                       {"PAYMENT_WITHOUT_TRANSFER", "", "100 to 0xfe1 by transaction 0x1, log -1", true},
		"a payment of no database":             {"PAYMENT_WITHOUT_TRANSFER", "", "100 to 0xfe1 by transaction 0x2, log -1", false},
		"one payout is paid twice":             {"PAID_TWICE", "a", "by transaction 0x1", false},
		"a payout that was given back is paid": {"PAYMENT_DIFFERS", "a", "by transaction 0x1", false},
		"a lost payment of a refused payout":   {"PAYMENT_DIFFERS", "paid", refused + "0x1", true},
		"a payment of the database of now":     {"PAYMENT_DIFFERS", "paid", refused + "0x2", false},
		"of a payout that was not withdrawn":   {"PAYMENT_DIFFERS", "begun", refused + "0x1", false},
		"of one that was given back and paid":  {"PAYMENT_DIFFERS", "back", refused + "0x1", false},
		"of one that is given back":            {"PAYMENT_DIFFERS", "paid", "no Payment: it is ROLLED_BACK 100 to 0xfe1 by transaction 0x1", false},
		"a balance":                            {"BALANCE_DIFFERS", "a", "", false},
		"a payment is missing":                 {"TRANSFER_WITHOUT_PAYMENT", "a", "", false},
	} {
		if got := r.isExplained(c.kind, c.reqID, c.detail, true); got != c.want {
			t.Errorf("%s: got explained %t, want %t", name, got, c.want)
		}
	}
	copied := newStoredState()
	copied.open["c"], copied.open["d"] = true, false
	r.backups = []*storedState{copied}
	if !r.isExplained("CREDIT_WITHOUT_DEBIT", "c", "", false) || r.isExplained("CREDIT_WITHOUT_DEBIT", "c", "", true) || r.isExplained("CREDIT_WITHOUT_DEBIT", "d", "", false) || r.isExplained("PAID_TWICE", "c", "", false) {
		t.Error("of what a copy had open: want explained the credit that stands no longer, and nothing else")
	}
}
