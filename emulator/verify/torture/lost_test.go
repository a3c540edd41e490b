package main

import (
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
	half := map[string]money.Half{"a": {ReqID: "a", UserID: 3, AssetID: 1, Units: 5}}
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

// A payout that was answered COMMITTED and whose row is lost is paid once and settled. A second
// payment, a payment of a refunded payout, and a missing settlement are found.
func TestLostPayouts(t *testing.T) {
	t.Parallel()
	committed, back := transferload.End{State: transfer.Committed}, transferload.End{State: transfer.RolledBack, Reason: "PAYOUT_REJECTED"}
	one := transferload.Payment{Address: "0xfe1", Units: "100"}
	row := payout{ReqID: "a", UserID: 3, State: transfer.TargetPending, Payment: one, Withdrawn: 1}
	rows, settled := map[string]payout{"a": row}, map[string]int64{"a": -5}
	for name, c := range map[string]struct {
		end     transferload.End
		lost    bool
		rows    map[string]payout
		settled map[string]int64
		live    []payout
		paid    []transferload.Payment
		want    string
	}{
		"paid once, and settled":       {committed, true, rows, settled, nil, []transferload.Payment{one}, ""},
		"paid twice":                   {committed, true, rows, settled, nil, []transferload.Payment{one, one}, "2 payments"},
		"never paid":                   {committed, true, rows, settled, nil, nil, "0 payments"},
		"not settled":                  {committed, true, rows, nil, nil, []transferload.Payment{one}, "withdrawn 0 times"},
		"settled by too little":        {committed, true, rows, map[string]int64{"a": -4}, nil, []transferload.Payment{one}, "withdrawn 2 times"},
		"told so before the backup":    {committed, false, rows, settled, nil, []transferload.Payment{one}, "no payout says so"},
		"the backup had it":            {committed, true, nil, settled, nil, []transferload.Payment{one}, "no payout says so"},
		"given back, and not paid":     {back, true, rows, nil, nil, nil, ""},
		"given back, and paid":         {back, true, rows, nil, nil, []transferload.Payment{one}, "no payout says so"},
		"repeated, and paid once more": {committed, true, rows, settled, []payout{{ReqID: "b", State: transfer.Committed, Payment: one, Withdrawn: 1}}, []transferload.Payment{one}, "1 payments"},
	} {
		script := transferload.Seen(3, transfer.Funding, transfer.Chain, stack.ETH, 5, transferload.Answers{ID: "a", End: &c.end})
		wanted := afterRestores(c.live, []*transferload.Script{script}, func(transferload.Answers) bool { return c.lost }, c.rows, c.settled)
		wantFound(t, name, reported(func(to reporter) { payoutViolations(to, wanted, c.paid) }), c.want)
	}
}

// A payout that a lost database paid and the current one refused is paid once, and its amount is
// taken once. The same holds if a database between them refused it. A second payment, a missing
// or superfluous settlement, and a payment of a refunded payout are found.
func TestPaidByALostDatabaseAndRefused(t *testing.T) {
	t.Parallel()
	one := transferload.Payment{Address: "0xfe1", Units: "100"}
	refused := transferload.End{State: transfer.Failed, Reason: transfer.InsufficientBalance}
	was := payout{ReqID: "a", State: transfer.Committed, Payment: one, Withdrawn: 1}
	begun, returned := was, was
	begun.Withdrawn, returned.Refunded = 0, 1
	now := func(state transfer.State, withdrawn int) []payout {
		return []payout{{ReqID: "a", State: state, Payment: one, Withdrawn: withdrawn}}
	}
	for name, c := range map[string]struct {
		now     []payout
		was     payout
		settled map[string]int64
		paid    []transferload.Payment
		want    string
	}{
		"paid, refused, and taken":      {now(transfer.Failed, 0), was, map[string]int64{"a": -5}, []transferload.Payment{one}, ""},
		"under an earlier name":         {now(transfer.Failed, 0), was, map[string]int64{"z": -5}, []transferload.Payment{one}, ""},
		"nobody has taken it":           {now(transfer.Failed, 0), was, nil, []transferload.Payment{one}, "1 payments of 100 to 0xfe1 where there should be 0"},
		"taken too little":              {now(transfer.Failed, 0), was, map[string]int64{"a": -4}, []transferload.Payment{one}, "withdrawn 2 times"},
		"taken twice":                   {now(transfer.Failed, 0), was, map[string]int64{"a": -5, "z": -5}, []transferload.Payment{one}, "withdrawn 2 times"},
		"paid twice":                    {now(transfer.Failed, 0), was, map[string]int64{"a": -5}, []transferload.Payment{one, one}, "2 payments"},
		"taken, and never paid":         {now(transfer.Failed, 0), was, map[string]int64{"a": -5}, nil, "0 payments"},
		"no database had withdrawn it":  {now(transfer.Failed, 0), begun, map[string]int64{"a": -5}, []transferload.Payment{one}, "1 payments of 100 to 0xfe1 where there should be 0"},
		"a lost database gave it back":  {now(transfer.Failed, 0), returned, map[string]int64{"a": -5}, []transferload.Payment{one}, "1 payments of 100 to 0xfe1 where there should be 0"},
		"given back here":               {now(transfer.RolledBack, 1), was, nil, []transferload.Payment{one}, "1 payments"},
		"it went on":                    {now(transfer.Committed, 1), was, nil, []transferload.Payment{one}, ""},
		"it went on, and is taken":      {now(transfer.Committed, 1), was, map[string]int64{"a": -5}, []transferload.Payment{one}, "withdrawn 2 times"},
		"taken, and brought back":       {now(transfer.Committed, 1), was, map[string]int64{"a": -5, "z": 5}, []transferload.Payment{one}, ""},
		"no row, and taken":             {nil, was, map[string]int64{"a": -5}, []transferload.Payment{one}, ""},
		"no row, and nobody took it":    {nil, was, nil, []transferload.Payment{one}, "no payout says so"},
		"no row, and it was given back": {nil, returned, map[string]int64{"a": -5}, []transferload.Payment{one}, "no payout says so"},
	} {
		script := transferload.Seen(3, transfer.Funding, transfer.Chain, stack.ETH, 5, transferload.Answers{ID: "a", Lost: []string{"z"}, End: &refused})
		lost := func(transferload.Answers) bool { return c.now == nil }
		wanted := afterRestores(c.now, []*transferload.Script{script}, lost, map[string]payout{"a": c.was}, c.settled)
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
