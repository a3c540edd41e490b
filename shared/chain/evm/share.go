package evm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ethereum/go-ethereum/rpc"

	"github.com/fencepost/fencepost/shared/batch"
	"github.com/fencepost/fencepost/shared/chain"
)

// sharer is a group whose round trips share HTTP requests. The first round trip of a group is
// sent at once. Those that come while it is under way, but for no longer than slowAfter, share the
// next requests.
type sharer = batch.Group[*member, []*call]

// slowAfter is when a request counts as slow, and the next may start beside it.
const slowAfter = 50 * time.Millisecond

// member is one round trip that may share a request.
type member struct {
	calls  []*call
	weight int         // its part of a request, of maxRequestBytes
	began  atomic.Bool // a request for it has a slot
}

func (c *Connector) newSharer() *sharer {
	return batch.New(batch.Options[*member, []*call]{Send: c.answerAll, MaxSize: maxRequestBytes,
		Size: func(m *member) int { return m.weight }, MaxCalls: c.maxBatch,
		Timeout: c.timeout, SlowAfter: slowAfter, Parallel: true})
}

// commonCalls is how many calls of one request may be for all its members. They are the chain id, two
// heads, the tip, the fee history, and the blocks "safe" and "finalized".
const commonCalls = 7

// weigh returns the part of a request that calls take, of maxRequestBytes: by bytes, or by number if
// that is nearer to its limit.
func (c *Connector) weigh(calls []*call) int {
	bytes, own, room := 0, 0, c.maxBatch-commonCalls
	for _, a := range calls {
		if a.goesAlone() {
			return maxRequestBytes
		}
		bytes += a.size
		if !a.isFee() && !a.hasTag() {
			own++
		}
	}
	if room <= 0 {
		return maxRequestBytes
	}
	return max(bytes, own*(maxRequestBytes/room))
}

// goesAlone reports whether the call may delay or cut off others of its request. A block's receipts
// are megabytes, and go-ethereum answers at most 25 MB in one batch. A gas estimate runs the code of its
// target for as long as the node lets it. One of an account to itself without data runs none.
func (a *call) goesAlone() bool {
	if a.method != estimateGas {
		return a.method == blockReceipts
	}
	args := a.args[0].(estimateArgs)
	return args.To == nil || *args.To != args.From || len(args.Data) > 0
}

// isFee reports whether the answer is the same for every account and has no order among the calls.
func (a *call) isFee() bool {
	return a.method == "eth_maxPriorityFeePerGas" || a.method == "eth_gasPrice" || a.method == "eth_feeHistory"
}

// hasTag reports whether the header of a block is requested by its tag.
func (a *call) hasTag() bool {
	return a.header && !strings.HasPrefix(a.args[0].(string), "0x")
}

// share makes calls in one round trip, which may share its HTTP request with others of the group. A
// call's error is its own. If the request fails as a whole, or the node stops answering it, the calls
// are repeated once in a request of their own. So the calls of others do not fail them. That is safe
// even if the node has carried out the first request: queries change nothing, and the same bytes are
// the same transaction.
//
// share takes no longer than Options.Timeout. It returns when ctx ends; the shared request goes on for
// the others. A node may then get bytes whose sender has left: they are stored and bound to their nonce, and the
// sender counts the outcome as unknown. After an error no part of the answer counts, as after [Connector.roundTrip].
func (c *Connector) share(ctx context.Context, group *sharer, calls []*call) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	m := &member{calls: calls, weight: c.weigh(calls)}
	if m.weight >= maxRequestBytes { // no other fits its request
		return c.roundTrip(ctx, calls)
	}
	answers, err := group.Do(ctx, m)
	switch {
	case err != nil && ctx.Err() != nil && !m.began.Load():
		return c.noSlot(ctx)
	case err != nil:
		return err
	}
	for i, a := range answers {
		calls[i].raw, calls[i].err = a.raw, a.err
	}
	return nil
}

// answerAll makes one HTTP request for all members, and returns the answered calls of each. They are
// copies, because a member may have left meanwhile.
func (c *Connector) answerAll(ctx context.Context, members []*member) []batch.Result[[]*call] {
	all, each := merge(members)
	err := c.request(ctx, all, members)
	results := make([]batch.Result[[]*call], len(members))
	for i := range results {
		results[i].Value, results[i].Err = each[i], err
		if at := slices.IndexFunc(each[i], (*call).isCutOff); err == nil && len(members) > 1 && at >= 0 {
			results[i].Err = batch.AloneError{Cause: each[i][at].err}
		}
	}
	return results
}

// The codes with which a node refuses a batch, or the rest of it, for its number of calls, its time,
// the size of its answer or its cost.
var cutOffCodes = []int{-32600, -32002, -32003, -32005}

// isCutOff reports whether the call has no answer, perhaps because of other calls in the same request.
func (a *call) isCutOff() bool {
	if errors.Is(a.err, rpc.ErrMissingBatchResponse) {
		return true
	}
	coded, ok := errors.AsType[rpc.Error](a.err)
	return ok && slices.Contains(cutOffCodes, coded.ErrorCode())
}

// merge returns the calls of one request for all members, and for each member those that answer its
// own. One call for a header or a fee answers all equal ones; the others are never merged.
//
// Every answer of a member remains between its first and its last head. A header that a member
// requests first, such as its first head, comes before all others' calls. A later header comes after all
// others' calls. The proofs that the chain did not change and the last head end the request: no other
// call is between them. In between each member's calls keep their order.
func merge(members []*member) (all []*call, each [][]*call) {
	var first, own, last, proofs, head distinct
	for _, m := range members {
		answers := make([]*call, len(m.calls))
		for i, a := range m.calls {
			switch {
			case len(members) == 1 || !a.header && !a.isFee():
				answers[i] = own.add(a)
			case a.proof:
				answers[i] = proofs.once(a)
			case a.isFee() || i == 0:
				answers[i] = first.once(a)
			case a.args[0] == "latest":
				answers[i] = head.once(a)
			default:
				answers[i] = last.once(a)
			}
		}
		each = append(each, answers)
	}
	return slices.Concat(first.calls, own.calls, last.calls, proofs.calls, head.calls), each
}

// distinct is a list of copies of calls.
type distinct struct {
	calls []*call
	known map[string]*call
}

// add appends a copy of a, without its answer.
func (d *distinct) add(a *call) *call {
	clone := &call{method: a.method, args: a.args, size: a.size, header: a.header, proof: a.proof}
	d.calls = append(d.calls, clone)
	return clone
}

// once appends a copy of a, unless the list has an equal one.
func (d *distinct) once(a *call) *call {
	key := fmt.Sprint(a.method, a.args)
	if d.known[key] == nil {
		if d.known == nil {
			d.known = make(map[string]*call)
		}
		d.known[key] = d.add(a)
	}
	return d.known[key]
}

// noSlot is the error of a round trip for which no request was made.
func (c *Connector) noSlot(ctx context.Context) error {
	return fmt.Errorf("%w, all %d are in use: %w", chain.ErrNoRequestSlot, cap(c.slots), ctx.Err())
}
