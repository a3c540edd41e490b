package load

import (
	"context"
	"fmt"
	"math/big"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"

	"github.com/fencepost/fencepost/shared/client"
	"github.com/fencepost/fencepost/shared/nonce"
)

// Intent is one that a caller wants done, with what the caller will do about it
// and what it has been told.
type Intent struct {
	Submitter nonce.Submitter
	RequestID string
	To        *common.Address
	ValueWei  *big.Int // of no other intent: it tells the effect on chain
	Data      []byte
	gas       string
	policy    bool // the submitter has [Policy]
	program   bool // made by a [Program], which posts it itself
	script

	mu      sync.Mutex
	answers Answers
	submit  func(context.Context) answer // posts it once; nil: over HTTP
}

// script is what a caller does, drawn before it begins.
type script struct {
	copies      int // of the first request, at once
	conflict    bool
	invalid     bool
	again       bool
	cancelAfter time.Duration // after the acceptance; 0: never
	pace        time.Duration // between two questions
}

// Answers is what a caller knows.
type Answers struct {
	TxID    string // "": not accepted so far
	TxAt    time.Time
	Fresh   int  // how many answers said that they had stored the intent just then
	End     *End // nil: none heard
	EndAt   time.Time
	Outcome string // of a cancel: CANCELLED or EXECUTED; "": none heard
	Refused bool   // by a clear answer, and never accepted
	Done    bool   // its caller has stopped asking

	Generation int  // of the database that gave TxID or End
	Recorded   bool // by REQUEST_RECORDED: the chain has it
}

// End is a final answer. Every later one must be the same.
type End struct {
	State nonce.State
	Sub   nonce.SubState
}

// String names the end as in FAILED/REVERTED.
func (e End) String() string {
	if e.Sub == "" {
		return string(e.State)
	}
	return string(e.State) + "/" + string(e.Sub)
}

// Answers is what the caller knows now.
func (in *Intent) Answers() Answers {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.answers
}

// Seen is an intent whose caller knows what is told: for judging, not for posting.
func Seen(s nonce.Submitter, valueWei *big.Int, answers Answers) *Intent {
	return &Intent{Submitter: s, ValueWei: valueWei, answers: answers}
}

// recipient receives what is posted.
var recipient = common.HexToAddress("0xcafe0")

// revertingInitCode is init code that reverts at once.
const revertingInitCode = "60006000fd"

// newIntent draws the n-th intent and what its caller will do. The first few have
// each habit once, so that the shortest run has them all.
func newIntent(s nonce.Submitter, n int, r *rand.Rand) *Intent {
	in := &Intent{Submitter: s, RequestID: fmt.Sprintf("r-%d", n), ValueWei: big.NewInt(int64(1_000_000 + n))}
	switch kind := r.IntN(100); {
	case kind < 70:
		in.To = &recipient
	case kind < 92:
		in.To, in.Data = &recipient, big.NewInt(int64(n)).Bytes()
	case kind < 96: // mined, and reverts
		in.Data, in.gas = common.FromHex(revertingInitCode), "120000"
	default: // refused in preparation, since its estimate reverts
		in.Data = common.FromHex(revertingInitCode)
	}
	in.script = script{
		copies: 1, conflict: n == 1 || r.IntN(10) == 0, invalid: n == 2 || r.IntN(12) == 0, again: n == 3 || r.IntN(8) == 0,
		pace: 300*time.Millisecond + time.Duration(r.Int64N(int64(2*time.Second))),
	}
	if n == 0 || r.IntN(4) == 0 {
		in.copies = 2 + r.IntN(4)
	}
	if after := time.Duration(r.Int64N(int64(9 * time.Second))); n == 4 || r.IntN(5) == 0 {
		in.cancelAfter = 1 + after*after/(9*time.Second) // rather soon: later ones come too late
	}
	return in
}

// Body is the request that posts the intent.
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

// conflictingRequest is the request with another payload under the same requestId.
func (in *Intent) conflictingRequest() map[string]any {
	body := in.Body()
	value := new(big.Int).Add(in.ValueWei, big.NewInt(1_000_000_000))
	body["payload"] = map[string]any{"to": "0x00000000000000000000000000000000000bad00", "value": value.String()}
	return body
}

// ByProgram says that a [Program] made the request: it is not posted over HTTP.
func (in *Intent) ByProgram() bool { return in.program }

// Policy allows what [newIntent] posts, and nothing of [Intent.forbiddenRequests].
func Policy() client.Policy {
	return client.Policy{MaxValue: "1000000000", MaxValuePerDay: "1000000000000000", MaxPerMinute: 100_000, Targets: []string{recipient.Hex(), "deploy"}}
}

// forbiddenRequests lists requests that the policy refuses.
func (in *Intent) forbiddenRequests() []map[string]any {
	if !in.policy {
		return nil
	}
	id := "forbidden-" + in.RequestID
	return []map[string]any{
		{"submitter": in.Submitter, "requestId": id, "payload": map[string]any{"to": recipient.Hex(), "value": "1000000001"}},
		{"submitter": in.Submitter, "requestId": id, "payload": map[string]any{"to": "0x00000000000000000000000000000000000cafe1", "value": "1"}},
	}
}

// invalidRequests lists requests that are refused whatever happens.
func (in *Intent) invalidRequests() []map[string]any {
	payload := map[string]any{"to": "0x00000000000000000000000000000000000cafe0", "value": "1"}
	id := "wrong-" + in.RequestID
	return []map[string]any{
		{"submitter": in.Submitter, "requestId": "", "payload": payload},
		{"submitter": in.Submitter, "requestId": id},
		{"submitter": in.Submitter, "requestId": id, "payload": map[string]any{"to": "0x1"}},
		{"submitter": in.Submitter, "requestId": id, "payload": map[string]any{"to": in.Submitter.Address().String(), "value": "-1"}},
		{"submitter": in.Submitter, "requestId": id, "payload": payload, "nonce": 0},
		{"submitter": "eip155:" + strconv.FormatUint(in.Submitter.ChainID(), 10) + ":0x00000000000000000000000000000000deadbeef", "requestId": id, "payload": payload},
	}
}
