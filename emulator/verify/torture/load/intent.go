package load

import (
	"context"
	"fmt"
	"math/big"
	"math/rand/v2"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"

	"github.com/fencepost/fencepost/emulator/verify/torture/client"
	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	product "github.com/fencepost/fencepost/shared/client"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// Intent is a request that a caller posts, with its habits and the answers so far.
type Intent struct {
	Submitter txmanager.Submitter
	RequestID string
	To        *common.Address
	ValueWei  *big.Int // unique in the run: it identifies the effect on chain
	Data      []byte
	gas       string
	policy    bool // the submitter has the policy of [Policy]
	ByProgram bool // posted by a [Program], not by HTTP
	client.Habits
	cancelAfter time.Duration // after acceptance; 0: never

	client.Kept[End]
	submit func(context.Context) client.Answer // posts it once; nil: by HTTP
}

// Answers is the content of all answers that a caller has got for one intent.
type Answers = client.Answers[End]

// End is a final answer. Every later one must be the same.
type End struct {
	State txmanager.State
	Sub   txmanager.SubState
}

// String returns the end as STATE or STATE/SUBSTATE, such as FAILED/REVERTED.
func (e End) String() string {
	if e.Sub == "" {
		return string(e.State)
	}
	return string(e.State) + "/" + string(e.Sub)
}

var recipient = common.HexToAddress("0xcafe0")

// revertingInitCode is init code that always reverts.
const revertingInitCode = "60006000fd"

// newIntent draws the n-th intent and its script. The first few have each habit once, so
// that the shortest run has them all.
func newIntent(s txmanager.Submitter, n int, r *rand.Rand) *Intent {
	in := &Intent{Submitter: s, RequestID: fmt.Sprintf("r-%d", n), ValueWei: big.NewInt(int64(1_000_000 + n))}
	switch kind := r.IntN(100); {
	case kind < 70:
		in.To = &recipient
	case kind < 92:
		in.To, in.Data = &recipient, big.NewInt(int64(n)).Bytes()
	case kind < 96: // mined, and reverts
		in.Data, in.gas = common.FromHex(revertingInitCode), "120000"
	default: // refused in preparation, because its estimate reverts
		in.Data = common.FromHex(revertingInitCode)
	}
	in.Habits = client.Habits{
		Copies: 1, Conflict: n == 1 || r.IntN(10) == 0, Invalid: n == 2 || r.IntN(12) == 0, Again: n == 3 || r.IntN(8) == 0,
		Pace: 300*time.Millisecond + time.Duration(r.Int64N(int64(2*time.Second))),
	}
	if n == 0 || r.IntN(4) == 0 {
		in.Copies = 2 + r.IntN(4)
	}
	if after := time.Duration(r.Int64N(int64(9 * time.Second))); n == 4 || r.IntN(5) == 0 {
		in.cancelAfter = 1 + after*after/(9*time.Second) // mostly early: a late cancel comes after the transaction
	}
	return in
}

// Body returns the request that posts the intent.
func (in *Intent) Body() map[string]any {
	payload := map[string]any{"value": in.ValueWei.String()}
	if in.To != nil {
		payload["to"] = in.To.Hex()
	}
	if len(in.Data) > 0 {
		payload["data"] = hexutil.Encode(in.Data)
	}
	if in.gas != "" {
		payload["gas"] = in.gas
	}
	return map[string]any{"submitter": in.Submitter, "requestId": in.RequestID, "payload": payload}
}

// conflictingRequest returns another payload under the same requestId.
func (in *Intent) conflictingRequest() map[string]any {
	body := in.Body()
	value := new(big.Int).Add(in.ValueWei, big.NewInt(1_000_000_000))
	body["payload"] = map[string]any{"to": "0x00000000000000000000000000000000000bad00", "value": value.String()}
	return body
}

// Policy returns a policy that allows each request of [newIntent] and forbids some of [Intent.wrongRequests].
func Policy() product.Policy {
	return product.Policy{MaxValue: "1000000000", MaxValuePerDay: "1000000000000000", MaxPerMinute: 100_000, Targets: []string{recipient.Hex(), "deploy"}}
}

// wrongRequests returns requests that are refused in every state: invalid ones, and those that the submitter's policy forbids.
func (in *Intent) wrongRequests() []client.Wrong {
	with := func(name string, value any, code string) client.Wrong { // nil: without the member
		payload := map[string]any{"to": recipient.Hex(), "value": "1"}
		body := map[string]any{"submitter": in.Submitter, "requestId": "wrong-" + in.RequestID, "payload": payload}
		if body[name] = value; value == nil {
			delete(body, name)
		}
		return client.Wrong{Body: body, Code: code, Act: Invalid}
	}
	unknown := eip155.NewSubmitter(in.Submitter.ChainID(), "0x00000000000000000000000000000000deadbeef")
	all := []client.Wrong{
		with("requestId", "", "INVALID_FIELD"),
		with("payload", nil, "INVALID_FIELD"),
		with("payload", map[string]any{"to": "0x1"}, "INVALID_FIELD"),
		with("payload", map[string]any{"to": in.Submitter.Address().String(), "value": "-1"}, "INVALID_FIELD"),
		with("nonce", 0, "UNSUPPORTED_FIELD"),
		with("submitter", unknown, "UNKNOWN_SUBMITTER"),
	}
	if !in.policy {
		return all
	}
	for _, payload := range []map[string]any{
		{"to": recipient.Hex(), "value": "1000000001"},
		{"to": "0x00000000000000000000000000000000000cafe1", "value": "1"},
	} {
		forbidden := with("payload", payload, "POLICY_REFUSED")
		forbidden.Other, forbidden.Act = "SUBMITTER_PROTECTED", Barred
		all = append(all, forbidden)
	}
	return all
}
