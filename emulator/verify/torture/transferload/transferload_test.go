package transferload

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/emulator/verify/torture/client"
	"github.com/fencepost/fencepost/emulator/verify/torture/plan"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/transfer"
)

// seen returns a script with the answers given.
func seen(userID int64, from, to transfer.AccountType, asset transfer.Asset, units uint64, answers Answers) *Script {
	s := &Script{UserID: userID, From: from, To: to, Asset: asset, Units: units}
	s.Change(func(t *Answers) { *t = answers })
	return s
}

func setup(answers Answers) *user {
	return newUser(nil, new(Ledger), seen(7, transfer.Funding, transfer.Spot, stack.USDT, 40, answers))
}

func wantContradiction(t *testing.T, l *client.Record[*Script, End], name, part string) {
	t.Helper()
	contradictions := l.Contradictions("")
	if (part == "") != (len(contradictions) == 0) || (part != "" && !strings.Contains(contradictions[0].Detail, part)) {
		t.Errorf("%s: got lies %v, want one that says %q", name, contradictions, part)
	}
}

var (
	committed = End{State: transfer.Committed}
	short     = End{State: transfer.Failed, Reason: transfer.InsufficientBalance}
)

// The end in an answer is recorded, and another one is a contradiction.
func TestEndsAreRecorded(t *testing.T) {
	t.Parallel()
	u := setup(Answers{ID: "r"})
	for _, c := range []struct {
		answer client.Answer
		final  bool
	}{
		{client.Answer{State: "TARGET_PENDING"}, false},
		{client.Answer{State: "COMMITTED"}, true},
		{client.Answer{State: "FAILED", Reason: short.Reason}, true},
	} {
		check.Equal(t, c.answer.State+" is final", u.RecordState(terminalState(c.answer), c.answer), c.final)
	}
	check.Equal(t, "the end", *u.Request.Answers().End, committed)
	wantContradiction(t, u.Ledger, "another end", "now it is FAILED/INSUFFICIENT_BALANCE")
}

// A cid has one req_id and is stored once. The code of a refusal is its reason.
func TestSecondReqIDIsAContradiction(t *testing.T) {
	t.Parallel()
	duplicate := func(reqID string) client.Answer {
		return client.Answer{Status: 200, ReqID: reqID, State: "PENDING", Code: "DUPLICATE_REQUEST"}
	}
	for name, c := range map[string]struct {
		answers []client.Answer
		want    string
	}{
		"stored, then known":   {[]client.Answer{{Status: 202, ReqID: "a", State: "PENDING"}, duplicate("a")}, ""},
		"known, then stored":   {[]client.Answer{duplicate("a"), {Status: 200, ReqID: "a", State: "COMMITTED"}}, ""}, // answers can arrive out of order
		"refused by a ledger":  {[]client.Answer{{Status: 422, ReqID: "a", State: "FAILED", Code: "INSUFFICIENT_BALANCE"}}, ""},
		"another req_id":       {[]client.Answer{{Status: 202, ReqID: "a", State: "PENDING"}, duplicate("b")}, `got id "b"`},
		"no req_id":            {[]client.Answer{{Status: 202, State: "PENDING"}}, "want it accepted"},
		"refused at once":      {[]client.Answer{{Status: 400, Code: "INVALID_AMOUNT"}}, "want it accepted"},
		"stored a second time": {[]client.Answer{{Status: 202, ReqID: "a", State: "PENDING"}, {Status: 200, ReqID: "a", State: "COMMITTED"}}, "2 answers said"},
		"a duplicate, as new":  {[]client.Answer{{Status: 422, ReqID: "a", State: "FAILED", Code: "DUPLICATE_REQUEST"}}, "want it accepted"},
	} {
		u := setup(Answers{})
		for _, a := range c.answers {
			u.RecordPost(t.Context(), a, false)
		}
		wantContradiction(t, u.Ledger, name, c.want)
	}
	u := setup(Answers{})
	u.RecordPost(t.Context(), client.Answer{Status: 422, ReqID: "a", State: "FAILED", Code: "INSUFFICIENT_BALANCE"}, false)
	if got := u.Request.Answers().End; got == nil || *got != short {
		t.Errorf("the end of what failed within the request: got %v, want %s", got, short)
	}
}

// Only the answers that the contract allows the operator's calls are accepted.
func TestContradictoryAnswersToOperatorsAreFound(t *testing.T) {
	t.Parallel()
	begun, pending := open{ReqID: "r", State: transfer.SourcePending}, open{ReqID: "r", State: transfer.TargetPending}
	for name, c := range map[string]struct {
		say  func(*Operator)
		want string
	}{
		"cancelled": {func(c *Operator) {
			c.recordCancel(begun, client.Answer{Status: 200, ReqID: "r", State: "FAILED", Reason: transfer.Cancelled})
		}, ""},
		"too late": {func(c *Operator) { c.recordCancel(begun, client.Answer{Status: 409, Code: "TOO_LATE"}) }, ""},
		"cancelled and going": {func(c *Operator) {
			c.recordCancel(begun, client.Answer{Status: 200, ReqID: "r", State: "SOURCE_PENDING"})
		}, "want it CANCELLED"},
		"cancelled, committed": {func(c *Operator) { c.recordCancel(begun, client.Answer{Status: 200, ReqID: "r", State: "COMMITTED"}) }, "want it CANCELLED"},
		"resolved":             {func(c *Operator) { c.recordResolve(pending, transfer.Deposit, client.Answer{Status: 200}) }, ""},
		"resolve, not found":   {func(c *Operator) { c.recordResolve(pending, transfer.Deposit, client.Answer{Status: 404}) }, "want 200 or NOTHING_TO_RESOLVE"},
		"why":                  {func(c *Operator) { c.recordExplanation(pending, client.Answer{Status: 200, ReqID: "r"}) }, ""},
		"why, of another":      {func(c *Operator) { c.recordExplanation(pending, client.Answer{Status: 200, ReqID: "s"}) }, "asked why"},
		"nothing found":        {func(c *Operator) { c.recordCheck(client.Answer{Status: 200, Result: "ok"}) }, ""},
		"no verdict":           {func(c *Operator) { c.recordCheck(client.Answer{Status: 503, Code: "SYSTEM_ERROR"}) }, ""},
		"violated":             {func(c *Operator) { c.recordCheck(client.Answer{Status: 200, Result: "violated"}) }, "want ok"},
		"found before":         {func(c *Operator) { c.recordCheck(client.Answer{Status: 200, Result: "standing"}) }, ""},
	} {
		operator := &Operator{Ledger: new(Ledger)}
		c.say(operator)
		wantContradiction(t, &operator.Ledger.Record, name, c.want)
	}
	cashier := &Cashier{Ledger: new(Ledger)}
	cashier.compareRepeat(new(booking), transfer.Outcome{Verdict: transfer.Success}, transfer.Outcome{Verdict: transfer.Success})
	wantContradiction(t, &cashier.Ledger.Record, "the same again", "")
	cashier.compareRepeat(new(booking), transfer.Outcome{Verdict: transfer.Success}, transfer.Outcome{Verdict: transfer.Refused, Reason: transfer.Overflow})
	wantContradiction(t, &cashier.Ledger.Record, "another answer", "asked again")
}

// Expected balances follow from the answers of users and cashier alone.
func TestExpectedBalancesFollowFromAnswers(t *testing.T) {
	t.Parallel()
	l := new(Ledger)
	in, out := Account{Side: transfer.Funding, UserID: 7, AssetID: 1}, Account{Side: transfer.Spot, UserID: 7, AssetID: 1}
	applied := transfer.Outcome{Verdict: transfer.Success}
	for _, m := range []struct {
		at    Account
		units int64
		came  transfer.Outcome
	}{
		{in, 100, applied}, {in, -7, applied}, {out, 50, applied},
		{out, -900, transfer.Outcome{Verdict: transfer.Refused, Reason: transfer.InsufficientBalance}},
	} {
		b := newBooking(m.at, "", m.units)
		l.addBooking(b)
		l.recordOutcome(b, m.came, 0)
	}
	for _, s := range []*Script{
		seen(7, transfer.Funding, transfer.Spot, stack.USDT, 10, Answers{ID: "a", End: &committed}),
		seen(7, transfer.Spot, transfer.Funding, stack.USDT, 4, Answers{ID: "b", End: &committed}),
		seen(7, transfer.Funding, transfer.Chain, stack.USDT, 20, Answers{ID: "c", End: &committed}),
		seen(7, transfer.Funding, transfer.Spot, stack.USDT, 11, Answers{ID: "d", End: &short}),
		seen(7, transfer.Funding, transfer.Spot, stack.USDT, 12, Answers{Refused: true}),
	} {
		l.Add(s)
	}
	got, unknown := l.Expected(nil)
	if diff := cmp.Diff(map[Account]int64{in: 67, out: 56}, got); diff != "" || len(unknown) > 0 {
		t.Errorf("expected (-want +got), and not known %v:\n%s", unknown, diff)
	}
	l.addBooking(newBooking(in, "", 1))
	l.Add(seen(7, transfer.Funding, transfer.Spot, stack.USDT, 13, Answers{ID: "e"}))
	if _, unknown := l.Expected(nil); len(unknown) != 2 {
		t.Errorf("not known: got %v, want the movement without an answer and the transfer without an end", unknown)
	}
}

// The seed determines each script. The first few users have each habit once.
func TestSameSeedDrawsSameScripts(t *testing.T) {
	t.Parallel()
	one, two := plan.Source(4), plan.Source(4)
	o := &Load{Users: 5, Closed: []string{"0xc1", "0xc2"}}
	addresses, seen := map[string]int{}, map[string]int{}
	for n := range 400 {
		a, b := newScript(n, o, one), newScript(n, o, two)
		if a.habits != b.habits || !cmp.Equal(a.body(), b.body()) {
			t.Fatalf("script %d, drawn twice: got %v and %v", n, a.body(), b.body())
		}
		first := map[int]bool{0: a.Copies > 1, 1: a.Conflict, 2: a.Invalid, 3: a.Again, 4: a.peek, 5: a.abandoned || a.Address != "", 6: a.Address != "" || a.From == transfer.Spot}
		if does, ok := first[n]; ok && !does {
			t.Errorf("script %d: got %+v, want its habit in it", n, a.habits)
		}
		seen[string(a.From)+string(a.To)]++
		if a.Units > 2*Opening {
			seen["too much"]++
		}
		if a.Address != "" {
			addresses[a.Address]++
		}
	}
	for _, way := range []string{"FUNDINGSPOT", "SPOTFUNDING", "FUNDINGCHAIN", "too much"} {
		if seen[way] < 20 {
			t.Errorf("%s: got %d of 400 scripts, want some", way, seen[way])
		}
	}
	for address, n := range addresses {
		if shared := address == "0xc1" || address == "0xc2"; shared != (n > 1) {
			t.Errorf("payouts to %s: got %d, want each address its own but those that take nothing", address, n)
		}
	}
}

// An unreadable answer is unclear.
func TestUnreadableAnswersAreUnclear(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]bool{0: true, http.StatusServiceUnavailable: true, http.StatusOK: false, http.StatusUnprocessableEntity: false} {
		check.Equal(t, fmt.Sprintf("status %d unclear", status), (client.Answer{Status: status}).IsUnclear(), want)
	}
}
