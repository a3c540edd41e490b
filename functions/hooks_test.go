package functions_test

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/golang-jwt/jwt/v5"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencepost/fencepost/functions"
	"github.com/fencepost/fencepost/shared/chain/devchain"
	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/mark"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// hooks is a process with the hooks on, or as the settings say, and with a separate chain.
type hooks struct {
	deployment
	*functions.App
	chain  *devchain.Chain
	lender txmanager.Submitter // the first dev account, with a window of two
}

func withHooks(t *testing.T, callers []string, settings ...string) hooks {
	t.Helper()
	d, chain := onChain(t)
	h := hooks{deployment: d, chain: chain, lender: eip155.NewSubmitter(chain.ChainID(), devchain.DevAccounts(1)[0].Address)}
	on := []string{"FENCEPOST_HOOKS_ENABLED=true", "FENCEPOST_NONCE_STRICT_ENABLED=false", "FENCEPOST_HOOKS_RESERVATION_TIMEOUT=1h", "FENCEPOST_RPC_URLS=" + chain.URL()}
	h.App = h.opened(append(on, settings...)...)
	check.OK(t)(h.Store.Register(t.Context(), store.Registration{Submitter: h.lender, Signer: "local", MaxInFlight: 2, Callers: callers, CreatedBy: "test"}))
	return h
}

// reserve allocates one nonce and requires success.
func (h hooks) reserve(owner, request string) functions.Reservation {
	h.t.Helper()
	got, err := h.Allocate(h.t.Context(), h.lender, owner, request)
	if err != nil || len(got) != 1 {
		h.t.Fatalf("allocate: got %+v, %v", got, err)
	}
	return got[0]
}

// The hooks are off by default: each call says so before it checks anything else.
func TestHooksAreOffByDefault(t *testing.T) {
	t.Parallel()
	for name, settings := range map[string][]string{"switched off": {"FENCEPOST_HOOKS_ENABLED="}, "switched on": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := withHooks(t, []string{"*"}, settings...)
			id, on := uuid.NewString(), settings == nil
			_, allocated := h.Allocate(t.Context(), payer, "x", "r")
			for hook, err := range map[string]error{"Allocate": allocated, "MarkUsed": h.MarkUsed(t.Context(), id, "x", nil), "MarkRecyclable": h.MarkRecyclable(t.Context(), id, "x", "r")} {
				if err == nil || errors.Is(err, functions.ErrHooksOff) == on {
					t.Errorf("%s: got %v, want that the hooks are off: %t", hook, err, !on)
				}
			}
		})
	}
}

// A nonce is reserved only for an authorised owner, if one is available, and for one owner and request
// each. A refusal changes nothing.
func TestAllocateRefuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		callers  []string
		first    func(h hooks)
		owner    *string  // nil: x
		requests []string // nil: r
		want     error    // nil: any but one of the database
	}{
		"everybody":             {callers: []string{"*"}, want: store.ErrUnknownSubmitter},
		"callers without hooks": {callers: []string{"shop", "handler:pay"}, want: store.ErrUnknownSubmitter},
		"callers that are none": {first: func(h hooks) { h.run(`update submitter set callers = '{}'`) }, want: store.ErrUnknownSubmitter},
		"suspended":             {first: func(h hooks) { h.run(`update submitter set status = 'SUSPENDED'`) }, want: txmanager.ErrRetryLater},
		"PROTECT": {first: func(h hooks) {
			h.run(`insert into protect_incident (submitter, incident, evidence) values ($1, 1, '{}')`, h.lender)
		}, want: txmanager.ErrRetryLater},
		"above what is reserved": {first: func(h hooks) { h.reserve("y", "theirs") }, want: txmanager.ErrRetryLater},
		"more than the window":   {requests: []string{"a", "b", "c"}, want: txmanager.ErrTooManyNonces},
		"another owner's":        {first: func(h hooks) { h.reserve("y", "r") }, want: store.ErrRequestConflict},
		"one that is known, one that is not": {first: func(h hooks) { h.reserve("x", "a") }, requests: []string{"a", "b"},
			want: store.ErrRequestConflict},
		"an intent's": {first: func(h hooks) {
			in := store.Intent{TxID: uuid.Must(uuid.NewV7()).String(), Submitter: h.lender, RequestID: "r", Caller: "shop", Payload: []byte("{}")}
			check.OK(h.t)(h.Store.Create(h.t.Context(), in, 10))
		}, want: store.ErrRequestConflict},
		"somebody else has the lease": {first: func(h hooks) {
			if taken, err := h.Store.Acquire(h.t.Context(), h.lender, "other/1", false); err != nil || !taken.Held {
				h.t.Fatalf("take: got %+v, %v", taken, err)
			}
		}, want: txmanager.ErrNotLeader},
		"no owner":              {owner: new("")},
		"an owner of no UTF-8":  {owner: new("\xff")},
		"one request twice":     {requests: []string{"a", "a"}},
		"a request of nothing":  {requests: []string{""}},
		"a request too long":    {requests: []string{fmt.Sprintf("%0129d", 0)}},
		"no request":            {requests: []string{}},
		"10,001 requests":       {requests: make([]string, 10_001)},
		"a request of no UTF-8": {requests: []string{"\xff"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			callers, owner, requests := []string{"hooks", "shop"}, "x", []string{"r"}
			if c.callers != nil {
				callers = c.callers
			}
			if c.owner != nil {
				owner = *c.owner
			}
			if c.requests != nil {
				requests = c.requests
			}
			h := withHooks(t, callers)
			if c.first != nil {
				c.first(h)
			}
			before := h.bound()
			got, err := h.Allocate(t.Context(), h.lender, owner, requests...)
			if err == nil || c.want != nil && !errors.Is(err, c.want) || c.want == nil && errors.As(err, new(*pgconn.PgError)) {
				t.Errorf("got %+v, %v; want the error %v, or one of the hooks", got, err, c.want)
			}
			check.Equal(t, "what is bound", h.bound(), before)
		})
	}
}

// bound returns every transaction and the cursor as text.
func (h hooks) bound() string {
	h.t.Helper()
	return h.one(`select concat_ws(' ', (select string_agg(concat_ws(' ', tx_id, state, nonce, reservation, lock_owner), ', ' order by seq) from managed_tx),
		(select 'next ' || next_nonce from submitter_nonce_cursor))`)
}

// A submitter's callers must name the owner. Many concurrent calls for the same request make one
// reservation.
func TestAllocateIsIdempotent(t *testing.T) {
	t.Parallel()
	h := withHooks(t, []string{"hooks"})
	const asking = 8
	var group sync.WaitGroup
	got := make([]functions.Reservation, asking)
	for i := range asking {
		group.Go(func() {
			for h.t.Context().Err() == nil { // as an owner does that must try again
				if all, err := h.Allocate(t.Context(), h.lender, "x", "r"); err == nil {
					got[i] = all[0]
					return
				} else if !errors.Is(err, txmanager.ErrNotLeader) {
					t.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
	for _, r := range got {
		if r != got[0] || r.State != txmanager.Reserved || r.Nonce != 0 || r.Over {
			t.Errorf("got %+v and %+v, want one reservation of nonce 0", r, got[0])
		}
	}
	check.Equal(t, "bound", h.bound(), got[0].TxID+" IN_FLIGHT 0 RESERVED x next 1")
}

// MarkUsed accepts, once and only from the owner, bytes signed with the submitter's key for its chain
// and nonce. Nodes must accept them and the deployment must allow them. A refusal leaves the nonce
// reserved.
func TestMarkUsedRefuses(t *testing.T) {
	t.Parallel()
	h := withHooks(t, []string{"hooks"}, "FENCEPOST_FEES_MAX_FEE_PER_GAS=100000000000")
	r := h.reserve("x", "r")
	good := types.DynamicFeeTx{
		ChainID: new(big.Int).SetUint64(h.lender.ChainID()), To: &common.Address{0x0e}, Value: big.NewInt(7), Gas: 21_000,
		GasTipCap: big.NewInt(1_000_000_000), GasFeeCap: big.NewInt(100_000_000_000),
	}
	signs := func(by int, edit func(*types.DynamicFeeTx)) []byte {
		tx := good
		edit(&tx)
		return check.Value(types.MustSignNewTx(devchain.DevAccounts(2)[by].Key, types.LatestSignerForChainID(tx.ChainID), &tx).MarshalBinary())(t)
	}
	as := func(*types.DynamicFeeTx) {}
	before := h.bound()
	for name, c := range map[string]struct {
		id, owner string
		raw       []byte
		want      error
	}{
		"another nonce":     {raw: signs(0, func(tx *types.DynamicFeeTx) { tx.Nonce = 1 }), want: txmanager.ErrSignedBytes},
		"another key":       {raw: signs(1, as), want: txmanager.ErrSignedBytes},
		"another chain":     {raw: signs(0, func(tx *types.DynamicFeeTx) { tx.ChainID = big.NewInt(1) }), want: txmanager.ErrSignedBytes},
		"above the ceiling": {raw: signs(0, func(tx *types.DynamicFeeTx) { tx.GasFeeCap = big.NewInt(100_000_000_001) }), want: txmanager.ErrSignedBytes},
		"no tip":            {raw: signs(0, func(tx *types.DynamicFeeTx) { tx.GasTipCap = new(big.Int) }), want: txmanager.ErrSignedBytes},
		"too little gas":    {raw: signs(0, func(tx *types.DynamicFeeTx) { tx.Gas = 20_999 }), want: txmanager.ErrSignedBytes},
		"too long":          {raw: signs(0, func(tx *types.DynamicFeeTx) { tx.Data, tx.Gas = make([]byte, 128<<10), 5_000_000 }), want: txmanager.ErrSignedBytes},
		"no transaction":    {raw: []byte("{}"), want: txmanager.ErrSignedBytes},
		"nothing":           {raw: []byte{}, want: txmanager.ErrSignedBytes},
		"below the base fee": {raw: signs(0, func(tx *types.DynamicFeeTx) { tx.GasFeeCap, tx.GasTipCap = big.NewInt(1), big.NewInt(1) }),
			want: txmanager.ErrRetryLater},
		"more than there is": {raw: signs(0, func(tx *types.DynamicFeeTx) { tx.Value = new(big.Int).Lsh(big.NewInt(1), 200) }), want: txmanager.ErrRetryLater},
		"another owner":      {owner: "y", raw: signs(0, as), want: txmanager.ErrNotOwner},
		"another txId":       {id: uuid.NewString(), raw: signs(0, as), want: store.ErrNotFound},
		"no txId":            {id: "r", raw: signs(0, as), want: store.ErrNotFound},
		"another form of it": {id: "urn:uuid:" + r.TxID, raw: signs(0, as), want: store.ErrNotFound},
	} {
		check.Err(t, name, c.want)(h.MarkUsed(t.Context(), cmp.Or(c.id, r.TxID), cmp.Or(c.owner, "x"), c.raw))
		check.Equal(t, name+": what is bound", h.bound(), before)
	}
	for range 2 { // the second call repeats the first, as after a lost answer
		check.OK(t)(h.MarkUsed(t.Context(), strings.ToUpper(r.TxID), "x", signs(0, as)))
	}
	check.Err(t, "other bytes then", txmanager.ErrNotOwner)(h.MarkUsed(t.Context(), r.TxID, "x", signs(0, func(tx *types.DynamicFeeTx) { tx.Value = big.NewInt(8) })))
	check.Err(t, "released then", txmanager.ErrNotOwner)(h.MarkRecyclable(t.Context(), r.TxID, "x", "too late"))
	check.Equal(t, "bound", h.bound(), r.TxID+" SUBMITTED 0 USED x next 1")
}

// Callers that are Go code of this deployment have no token. A token with such a name as its subject
// is another caller.
func TestNamesOfCodeHaveNoToken(t *testing.T) {
	t.Parallel()
	h := withHooks(t, []string{"hooks", "handler:wage", "sub:hooks@fencepost.example"})
	url := h.serve("FENCEPOST_HOOKS_ENABLED=true")
	body := map[string]any{"submitter": h.lender, "requestId": "r", "payload": map[string]any{"to": eip155.Address([20]byte{9}).String()}}
	for name, status := range map[string]int{"hooks": 404, store.PayoutCaller: 404, "handler:wage": 404, "hooks@fencepost.example": 202} {
		call(t, t.Context(), h.issuer.token(t, "public", jwt.MapClaims{"sub": name}), "POST", url+"/api/v1/tx", body).wants(t, status, "%s", name)
	}
}

// A submitter's policy also applies to reservations. They count as intents when they are made. The
// owner's bytes are refused with a rule as a code, or count once. A refusal leaves the nonce reserved.
func TestReservationsAreHeldToThePolicy(t *testing.T) {
	t.Parallel()
	h := withHooks(t, []string{"hooks"})
	allowed := eip155.Address([20]byte{18: 0xca, 19: 0xfe})
	terms := store.Policy{MaxValue: new("8"), MaxValuePerDay: new("7"), MaxPerMinute: new(1), Targets: []string{allowed.String()}}
	check.OK(t)(h.Store.PutPolicy(t.Context(), store.PolicyChange{Submitter: h.lender, Policy: terms, By: "olga", Reason: "a test"}))
	refusedBy := func(what string, err error, rule store.PolicyRule) {
		t.Helper()
		var refused store.PolicyError
		if !errors.As(err, &refused) || refused.Rule != rule {
			t.Errorf("%s: got %v, want it refused by %s", what, err, rule)
		}
	}
	before := h.bound()
	_, err := h.Allocate(t.Context(), h.lender, "x", "a", "b")
	refusedBy("two at once, where a minute allows one", err, store.RuleCount)
	check.Equal(t, "what is bound after the refusal", h.bound(), before)
	r := h.reserve("x", "r")
	check.Equal(t, "asked for again", h.reserve("x", "r").TxID, r.TxID)
	before = h.bound()
	signs := func(to *common.Address, wei int64) []byte {
		tx := types.MustSignNewTx(devchain.DevAccounts(1)[0].Key, types.LatestSignerForChainID(new(big.Int).SetUint64(h.lender.ChainID())), &types.LegacyTx{
			To: to, Value: big.NewInt(wei), Data: []byte{0}, Gas: 100_000, GasPrice: big.NewInt(100_000_000_000),
		})
		return check.Value(tx.MarshalBinary())(t)
	}
	for _, c := range []struct {
		to   *common.Address
		wei  int64
		rule store.PolicyRule
	}{
		{(*common.Address)(eip155.Recipient(&allowed)), 9, store.RuleValue},
		{(*common.Address)(eip155.Recipient(&allowed)), 8, store.RuleDay},
		{&common.Address{1}, 7, store.RuleTarget},
		{nil, 7, store.RuleTarget},
	} {
		what := fmt.Sprintf("%d wei to %v", c.wei, c.to)
		refusedBy(what, h.MarkUsed(t.Context(), r.TxID, "x", signs(c.to, c.wei)), c.rule)
		check.Equal(t, what+": what is bound", h.bound(), before)
	}
	for range 2 {
		check.Err(t, "the day's 7 wei, and again", nil)(h.MarkUsed(t.Context(), r.TxID, "x", signs((*common.Address)(eip155.Recipient(&allowed)), 7)))
	}
	check.Equal(t, "counted: one intent, and 7 wei once", h.one(`select string_agg(added_wei || ' ' || intents, ', ' order by number) from submitter_use`), "0 1, 7 1")
}

// another is another database's mark.
type another struct{ read atomic.Int64 }

func (m *another) Read(context.Context) (mark.Observed, error) {
	m.read.Add(1)
	return mark.Observed{Mark: mark.Mark{ID: "of another"}, Generation: 7}, nil
}

func (*another) Write(context.Context, mark.Mark, int64) error { return mark.ErrMoved }

// Calls from Go compare the database with the mark before they use a row. No nonce is allocated from a
// copy that looks like the database that was written last.
func TestGoCallsCompareTheMarkFirst(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]func(h hooks) error{
		"WithNonce": func(h hooks) error {
			_, err := h.WithNonce(t.Context(), h.lender, "r", "pay", map[string]string{})
			return err
		},
		"Allocate": func(h hooks) error {
			_, err := h.Allocate(t.Context(), h.lender, "x", "r")
			return err
		},
		"MarkUsed":       func(h hooks) error { return h.MarkUsed(t.Context(), uuid.NewString(), "x", nil) },
		"MarkRecyclable": func(h hooks) error { return h.MarkRecyclable(t.Context(), uuid.NewString(), "x", "r") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := withHooks(t, []string{"*"}, "FENCEPOST_HANDLERS_URLS=pay=http://127.0.0.1:1", "FENCEPOST_HANDLERS_SECRETS=pay=whsec_"+base64.StdEncoding.EncodeToString(make([]byte, 32)))
			before, outside := h.bound(), new(another)
			h.SetMark(outside)
			if err := call(h); err == nil {
				t.Error("in a copy: got no error")
			}
			if got := h.bound(); outside.read.Load() != 1 || got != before {
				t.Errorf("the mark: got it read %d times, and %q bound; want once, and %q", outside.read.Load(), got, before)
			}
			check.Equal(t, "in PROTECT", h.one(`select count(*) from protect_incident where closed_at is null`), "1")
		})
	}
}
