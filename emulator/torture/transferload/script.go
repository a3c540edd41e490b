package transferload

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/transfer"
)

// Script is one transfer that a user wants, with what the user will do about it and
// what the user has been told.
type Script struct {
	UserID  int64
	CID     string
	From    transfer.AccountType
	To      transfer.AccountType
	Asset   transfer.Asset
	Units   uint64
	Address string // of a payout; "": it is none
	habits

	mu      sync.Mutex
	answers Answers
}

// habits is what a user does, drawn before it begins.
type habits struct {
	copies    int  // of the first request, at once
	conflict  bool // conflictingRequest request under the same cid
	invalid   bool
	again     bool // the same request once more at the end
	peek      bool // somebody else asks for it
	abandoned bool // nobody posts it: another build has begun it and died
	steps     int  // how far that came: 0: stored, 1: in SOURCE_PENDING, more: where the source has answered
	pace      time.Duration
}

// Answers is what a user knows.
type Answers struct {
	ReqID   string // "": not accepted so far
	Fresh   int    // how many answers said that they had stored it just then
	End     *End   // nil: none heard
	EndAt   time.Time
	Refused bool // by a clear answer, and never accepted
	Done    bool // its user has stopped asking

	ReqAt         time.Time
	Generation    int      // of the database that was heard last
	EndGeneration int      // of the database that told the end
	Lost          []string // req_ids of the same cid that restores have lost
}

// End is a final answer. Every later one must be the same.
type End struct {
	State  transfer.State
	Reason transfer.Reason // "" for COMMITTED
}

// String names the end as in FAILED/INSUFFICIENT_BALANCE.
func (e End) String() string {
	if e.Reason == "" {
		return e.State.String()
	}
	return e.State.String() + "/" + string(e.Reason)
}

// Answers is what the user knows now.
func (w *Script) Answers() Answers {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.answers
}

// reqIDs are those that any database has given the wish.
func (w *Script) reqIDs() []string {
	answers := w.Answers()
	if answers.ReqID == "" {
		return answers.Lost
	}
	return append(slices.Clone(answers.Lost), answers.ReqID)
}

// Seen is a wish whose user knows what is told: for judging, not for posting.
func Seen(userID int64, from, to transfer.AccountType, asset transfer.Asset, units uint64, answers Answers) *Script {
	return &Script{UserID: userID, From: from, To: to, Asset: asset, Units: units, answers: answers}
}

// Opening is what each user has of each asset on each side at first, in units.
const Opening = 5_000_000

// newScript draws the n-th wish and what its user will do. The first few have each
// habit once, so that the shortest run has them all.
func newScript(n int, o Options, r *rand.Rand) *Script {
	w := &Script{
		UserID: 1 + r.Int64N(int64(o.Users)), CID: fmt.Sprint("cid-", n), Asset: Assets[r.IntN(len(Assets))],
		From: transfer.Funding, To: transfer.Spot, Units: 1 + r.Uint64N(Opening/10),
	}
	switch way := r.IntN(5); {
	case way < 2:
		w.From, w.To = w.To, w.From
	case way == 2 || n == 6:
		w.makePayout(n, o, r)
	}
	if r.IntN(10) == 0 {
		w.Units += 100 * Opening // nobody has so much
	}
	w.habits = habits{
		copies: 1, conflict: n == 1 || r.IntN(10) == 0, invalid: n == 2 || r.IntN(12) == 0, again: n == 3 || r.IntN(6) == 0,
		peek: n == 4 || r.IntN(12) == 0, abandoned: n == 5 || r.IntN(12) == 0,
		steps: r.IntN(5), pace: 200*time.Millisecond + time.Duration(r.Int64N(int64(1500*time.Millisecond))),
	}
	if n == 0 || r.IntN(4) == 0 {
		w.copies = 2 + r.IntN(4)
	}
	w.abandoned = w.abandoned && w.Address == ""
	return w
}

// makePayout makes a payout of the wish: of the token, or of the coin; mostly to an
// address of its own, so that the chain tells what became of it, and sometimes to one
// that takes nothing.
func (w *Script) makePayout(n int, o Options, r *rand.Rand) {
	w.From, w.To, w.Asset = transfer.Funding, transfer.Chain, payable[r.IntN(len(payable))]
	w.Address = fmt.Sprintf("0xfe%038x", n)
	if at := r.IntN(4); w.Asset.ID == stack.ETH.ID && at < len(o.Closed) {
		w.Address = o.Closed[at]
	}
}

// urlPath is where the wish is posted.
func (w *Script) urlPath() string {
	if w.Address != "" {
		return "/api/v1/payout"
	}
	return "/api/v1/internal_transfer"
}

// body is the request that posts the wish.
func (w *Script) body() map[string]any {
	if w.Address != "" {
		return map[string]any{"asset": w.Asset.Name, "amount": w.amount(w.Units), "address": w.Address, "cid": w.CID}
	}
	return map[string]any{"from": w.From, "to": w.To, "asset": w.Asset.Name, "amount": w.amount(w.Units), "cid": w.CID}
}

func (w *Script) amount(units uint64) string { return transfer.FormatUnits(units, w.Asset.Precision) }

// conflictingRequest is a request for something else under the same cid.
func (w *Script) conflictingRequest() map[string]any {
	body := w.body()
	body["amount"] = w.amount(w.Units + 1)
	return body
}

// invalidRequests are requests that are refused whatever happens, by the code that refuses
// them.
func (w *Script) invalidRequests() map[string]map[string]any {
	with := func(name string, value any) map[string]any {
		body := w.body()
		body["cid"], body[name] = "wrong-"+w.CID, value
		return body
	}
	all := map[string]map[string]any{
		"INVALID_ASSET":      with("asset", "DOGE"),
		"INVALID_AMOUNT":     with("amount", "-1"),
		"PRECISION_OVERFLOW": with("amount", "1.123456789"),
		"FORBIDDEN":          with("user_id", w.UserID+1),
	}
	if w.Address != "" {
		all["INVALID_ADDRESS"], all["TRANSFER_NOT_ALLOWED"] = with("address", "0x1"), with("asset", stack.JPY.Name)
		return all
	}
	all["SAME_ACCOUNT"], all["INVALID_ACCOUNT_TYPE"], all["UNSUPPORTED_ACCOUNT_TYPE"] = with("to", w.From), with("to", "SAVINGS"), with("to", "FUTURE")
	return all
}
