package transferload

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/emulator/verify/torture/client"
	"github.com/fencepost/fencepost/shared/transfer"
)

// Script is one transfer that a user wants, with the user's habits and the answers so far.
type Script struct {
	UserID  int64
	CID     string
	From    transfer.AccountType
	To      transfer.AccountType
	Asset   transfer.Asset
	Units   uint64
	Address string // of a payout; "": an internal transfer
	habits

	client.Kept[End]
}

// habits is the user's behaviour, drawn before it begins.
type habits struct {
	client.Habits
	peek      bool // another user asks for it
	abandoned bool // a process of another build begins it and dies
	steps     int  // how far that process comes: 0: stored, 1: SOURCE_PENDING, more: the source has answered
}

// Answers is the content of all answers that a user has got for one transfer.
type Answers = client.Answers[End]

// End is a final answer. Every later one must be the same.
type End struct {
	State  transfer.State
	Reason transfer.Reason // "" for COMMITTED
}

// String returns the end as STATE or STATE/REASON, such as FAILED/INSUFFICIENT_BALANCE.
func (e End) String() string {
	if e.Reason == "" {
		return e.State.String()
	}
	return e.State.String() + "/" + string(e.Reason)
}

// ReqIDs returns every req_id that any database gave for the cid.
func (s *Script) ReqIDs() []string {
	answers := s.Answers()
	if answers.ID == "" {
		return answers.Lost
	}
	return append(slices.Clone(answers.Lost), answers.ID)
}

// Settled returns the units settled for the cid, given those by req_id.
func (s *Script) Settled(settlements map[string]int64) (units int64) {
	for _, id := range s.ReqIDs() {
		units += settlements[id]
	}
	return units
}

// Opening is the opening balance of each user, asset and side, in units.
const Opening = 5_000_000

// newScript draws the n-th transfer and the user's habits. The first few have each habit
// once, so that the shortest run has them all.
func newScript(n int, o *Load, r *rand.Rand) *Script {
	s := &Script{
		UserID: 1 + r.Int64N(int64(o.Users)), CID: fmt.Sprint("cid-", n), Asset: Assets[r.IntN(len(Assets))],
		From: transfer.Funding, To: transfer.Spot, Units: 1 + r.Uint64N(Opening/10),
	}
	switch way := r.IntN(5); {
	case way < 2:
		s.From, s.To = s.To, s.From
	case way == 2 || n == 6:
		s.makePayout(n, o, r)
	}
	if r.IntN(10) == 0 {
		s.Units += 100 * Opening // above every balance
	}
	s.Habits = client.Habits{
		Copies: 1, Conflict: n == 1 || r.IntN(10) == 0, Invalid: n == 2 || r.IntN(12) == 0, Again: n == 3 || r.IntN(6) == 0,
	}
	s.peek, s.abandoned, s.steps = n == 4 || r.IntN(12) == 0, n == 5 || r.IntN(12) == 0, r.IntN(5)
	s.Pace = 200*time.Millisecond + time.Duration(r.Int64N(int64(1500*time.Millisecond)))
	if n == 0 || r.IntN(4) == 0 {
		s.Copies = 2 + r.IntN(4)
	}
	s.abandoned = s.abandoned && s.Address == ""
	return s
}

// makePayout makes the transfer a payout of the token or the coin. Most go to an address of
// their own, which identifies the payment on the chain; some go to one that takes no coin.
func (s *Script) makePayout(n int, o *Load, r *rand.Rand) {
	s.From, s.To, s.Asset = transfer.Funding, transfer.Chain, payable[r.IntN(len(payable))]
	s.Address = fmt.Sprintf("0xfe%038x", n)
	if at := r.IntN(4); s.Asset.ID == stack.ETH.ID && at < len(o.Closed) {
		s.Address = o.Closed[at]
	}
}

func (s *Script) urlPath() string {
	if s.Address != "" {
		return "/api/v1/payout"
	}
	return "/api/v1/internal_transfer"
}

func (s *Script) body() map[string]any {
	if s.Address != "" {
		return map[string]any{"asset": s.Asset.Name, "amount": s.amount(s.Units), "address": s.Address, "cid": s.CID}
	}
	return map[string]any{"from": s.From, "to": s.To, "asset": s.Asset.Name, "amount": s.amount(s.Units), "cid": s.CID}
}

func (s *Script) amount(units uint64) string { return transfer.FormatUnits(units, s.Asset.Precision) }

// conflictingRequest returns another amount under the same cid.
func (s *Script) conflictingRequest() map[string]any {
	body := s.body()
	body["amount"] = s.amount(s.Units + 1)
	return body
}

// wrongRequests returns requests that are always refused.
func (s *Script) wrongRequests() []client.Wrong {
	with := func(name string, value any, code string) client.Wrong {
		body := s.body()
		body["cid"], body[name] = "wrong-"+s.CID, value
		return client.Wrong{Body: body, Code: code, Act: Invalid}
	}
	all := []client.Wrong{
		with("asset", "DOGE", "INVALID_ASSET"), with("amount", "-1", "INVALID_AMOUNT"), with("amount", "1.123456789", "PRECISION_OVERFLOW"),
		with("user_id", s.UserID+1, "FORBIDDEN"),
	}
	if s.Address != "" {
		return append(all, with("address", "0x1", "INVALID_ADDRESS"), with("asset", stack.JPY.Name, "TRANSFER_NOT_ALLOWED"))
	}
	return append(all, with("to", s.From, "SAME_ACCOUNT"), with("to", "SAVINGS", "INVALID_ACCOUNT_TYPE"),
		with("to", "FUTURE", "UNSUPPORTED_ACCOUNT_TYPE"))
}
