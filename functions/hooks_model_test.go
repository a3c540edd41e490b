package functions_test

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/ethclient"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/functions"
	"github.com/fencepost/fencepost/shared/chain/devchain"
	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// play drives one submitter through reservations, marks, time-outs, intents, cancels, lost leases,
// advances and blocks. A seed decides the order, and several run at once.
type play struct {
	hooks
	sub txmanager.Submitter
	key devchain.Account
	rng *rand.Rand

	mu       sync.Mutex
	lent     []functions.Reservation
	intents  []string
	used     map[string]string // reservations whose owner got the answer "used": the hash of the bytes
	back     map[string]bool   // reservations whose owner got the answer "recyclable"
	voided   map[string]bool   // expired or cancelled reservations
	acts     []string          // the actions so far, for the failure message
	requests int
}

// Owners, callers, operators and instances act concurrently on Postgres and a chain. Nonces have no
// gap, each belongs to one transaction, and bytes of two owners never share a nonce. Answers to an
// owner stay true, the chain has no foreign transaction, and everything ends.
func TestReservationsBesideIntentsInAnyOrder(t *testing.T) {
	t.Parallel()
	const plays, steps = 8, 40
	accounts := devchain.DevAccounts(1 + plays)[1:]
	var keys strings.Builder
	for _, a := range accounts {
		fmt.Fprintf(&keys, "%s=%s\n", eip155.NewSubmitter(1337, a.Address), hex.EncodeToString(crypto.FromECDSA(a.Key)))
	}
	file := filepath.Join(t.TempDir(), "keys")
	check.OK(t)(os.WriteFile(file, []byte(keys.String()), 0o600))
	h := withHooks(t, []string{"*"}, "FENCEPOST_SIGNER_LOCAL_KEYS_FILE="+file,
		"FENCEPOST_RESUBMIT_INTERVAL=1s", "FENCEPOST_CHAIN_BLOCK_TIME=100ms", "FENCEPOST_DATABASE_MAX_CONNS=24")
	for i := range plays {
		seed := rand.Uint64()
		p := &play{
			hooks: h, sub: eip155.NewSubmitter(1337, accounts[i].Address), key: accounts[i], rng: rand.New(rand.NewPCG(seed, 0)),
			used: map[string]string{}, back: map[string]bool{}, voided: map[string]bool{},
		}
		t.Run(fmt.Sprint("window ", 1+i%4, ", seed ", seed), func(t *testing.T) {
			t.Parallel()
			p.t = t
			check.OK(t)(p.Store.Register(t.Context(), store.Registration{Submitter: p.sub, Signer: "local", MaxInFlight: 1 + i%4, Callers: []string{"shop", "hooks"}, CreatedBy: "test"}))
			for range steps {
				p.step()
				p.holds()
			}
			p.finish()
			if t.Failed() {
				t.Log(p.story())
			}
		})
	}
}

// step runs one to three actions at once.
func (p *play) step() {
	var all sync.WaitGroup
	for range 1 + p.rng.IntN(3) {
		act, pick, n := p.rng.IntN(12), p.rng.Uint64(), 1+p.rng.IntN(2)
		all.Go(func() { p.do(act, pick, n) })
	}
	all.Wait()
}

// do runs one action; pick chooses its subject.
func (p *play) do(act int, pick uint64, n int) {
	ctx := p.t.Context()
	switch act {
	case 0, 1:
		p.allocate(n)
	case 2, 3:
		p.mark(pick, true)
	case 4, 5:
		p.mark(pick, false)
	case 6:
		p.create()
	case 7:
		p.timeOut(pick)
	case 8:
		p.cancel(pick)
	case 9:
		p.record("the lease is lost")
		_, _ = p.DB.Exec(ctx, `update submitter_lease set owner_node = '', fencing_token = fencing_token + 1 where submitter = $1`, p.sub)
	default:
		p.advance()
	}
}

func (p *play) record(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.acts = append(p.acts, fmt.Sprintf(format, args...))
}

// story returns the last actions.
func (p *play) story() string { return strings.Join(p.acts[max(0, len(p.acts)-60):], "\n") }

// named returns an unused request name.
func (p *play) named() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.requests++
	return fmt.Sprint("r-", p.requests)
}

func (p *play) allocate(n int) {
	var requests []string
	for range n {
		requests = append(requests, p.named())
	}
	got, err := p.Allocate(p.t.Context(), p.sub, "owner of "+requests[0], requests...)
	for _, r := range got {
		p.record("%s is reserved by %s: nonce %d, %s", r.TxID, r.Owner, r.Nonce, r.State)
	}
	if err != nil {
		p.record("allocate: %v", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lent = append(p.lent, got...)
}

// anyLent returns one of the last reservations.
func (p *play) anyLent(pick uint64) (r functions.Reservation, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.lent) == 0 {
		return r, false
	}
	last := p.lent[max(0, len(p.lent)-4):]
	return last[pick%uint64(len(last))], true
}

// mark marks a reservation as its owner, possibly late or against an earlier mark.
func (p *play) mark(pick uint64, asUsed bool) {
	r, ok := p.anyLent(pick)
	if !ok {
		return
	}
	if !asUsed {
		err := p.MarkRecyclable(p.t.Context(), r.TxID, r.Owner, "not needed")
		p.record("%s is given back: %v", r.TxID, err)
		p.mu.Lock()
		defer p.mu.Unlock()
		p.back[r.TxID] = p.back[r.TxID] || err == nil
		return
	}
	tx := types.MustSignNewTx(p.key.Key, types.LatestSignerForChainID(big.NewInt(1337)), &types.DynamicFeeTx{
		ChainID: big.NewInt(1337), Nonce: r.Nonce, To: &common.Address{0x0e}, Value: new(big.Int).SetUint64(pick % 2), Gas: 21_000,
		GasTipCap: big.NewInt(1_000_000_000), GasFeeCap: big.NewInt(100_000_000_000), Data: nil,
	})
	raw, err := tx.MarshalBinary()
	if err != nil {
		p.t.Error(err)
		return
	}
	err = p.MarkUsed(p.t.Context(), r.TxID, r.Owner, raw)
	p.record("%s is used by %s: %v", r.TxID, tx.Hash(), err)
	if err != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if was := p.used[r.TxID]; was != "" && was != tx.Hash().String() {
		p.t.Errorf("%s: its owner was told that %s are its bytes, and then %s", r.TxID, was, tx.Hash())
	}
	p.used[r.TxID] = tx.Hash().String()
}

func (p *play) create() {
	request := p.named()
	payload := []byte(`{"to":"0x00000000000000000000000000000000000000b0","value":"1","gas":"21000"}`)
	in := store.Intent{
		TxID: uuid.Must(uuid.NewV7()).String(), Submitter: p.sub, RequestID: request, Caller: "shop",
		Payload: payload, Fingerprint: txmanager.Fingerprint("", payload),
	}
	if _, err := p.Store.Create(p.t.Context(), in, 1000); err != nil {
		p.t.Errorf("create: %v", err)
		return
	}
	p.record("%s is an intent", in.TxID)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.intents = append(p.intents, in.TxID)
}

// timeOut expires a reservation without waiting.
func (p *play) timeOut(pick uint64) {
	r, ok := p.anyLent(pick)
	if !ok {
		return
	}
	p.mu.Lock()
	p.voided[r.TxID] = true
	p.mu.Unlock()
	p.record("the time of %s is over", r.TxID)
	p.over(`tx_id = $1`, r.TxID)
}

// over expires the selected reservations. An invocation that has read one before plans its check for the end of its time as
// it was: that never changes but here. So a later call makes the check due.
func (p *play) over(which string, args ...any) {
	err := pgx.BeginFunc(p.t.Context(), p.DB, func(tx pgx.Tx) error {
		_, err := tx.Exec(p.t.Context(), `set local session_replication_role = replica`)
		if err == nil {
			_, err = tx.Exec(p.t.Context(), `update managed_tx set lock_until = clock_timestamp(), next_check_at = clock_timestamp()
				where reservation is not null and state = 'IN_FLIGHT' and requested_action is null and greatest(lock_until, next_check_at) > clock_timestamp() and `+which, args...)
		}
		return err
	})
	if err != nil {
		p.t.Error(err)
	}
}

// cancel cancels an intent or a reservation as an operator.
func (p *play) cancel(pick uint64) {
	p.mu.Lock()
	all := slices.Clone(p.intents[max(0, len(p.intents)-3):])
	for _, r := range p.lent[max(0, len(p.lent)-2):] {
		all = append(all, r.TxID)
	}
	p.mu.Unlock()
	if len(all) == 0 {
		return
	}
	id := all[pick%uint64(len(all))]
	p.mu.Lock()
	p.voided[id] = true
	p.mu.Unlock()
	d, err := p.Store.RecordDecision(p.t.Context(), store.Decision{TxID: id, By: operator, Action: txmanager.ActionCancel, Reason: "r"})
	p.record("%s is cancelled: %+v, %v", id, d, err)
	if err != nil && !errors.Is(err, store.ErrTooLate) {
		p.t.Errorf("cancel: %v", err)
	}
}

var operator = store.Viewer{Caller: "ann@fencepost.example", Operator: true}

// advance runs an invocation and adds a block.
func (p *play) advance() {
	if err := p.Serve(p.t.Context(), p.sub, txmanager.KindAdvance); err != nil {
		p.record("advance: %v", err)
	}
	if err := p.chain.Mine(1); err != nil {
		p.t.Errorf("mine: %v", err)
	}
}

// holds checks the stored rows against the invariants.
func (p *play) holds() {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	var wrong []string
	err := p.DB.QueryRow(p.t.Context(), `
		select array(
		  select 'nonces: ' || coalesce(string_agg(nonce::text, ' ' order by nonce), '') || ', next ' || c.next_nonce
		    from submitter_nonce_cursor c left join managed_tx m on m.submitter = c.submitter and m.nonce is not null
		   where c.submitter = $1 group by c.next_nonce having count(m.nonce) <> c.next_nonce or coalesce(max(m.nonce), -1) <> c.next_nonce - 1
		  union all
		  select 'bytes of several at nonce ' || nonce from tx_version where submitter = $1 and kind <> 'PLACEHOLDER' group by nonce having count(*) > 1
		  union all
		  select 'bytes of ' || v.tx_id || ', which has not their nonce ' || v.nonce from tx_version v join managed_tx m using (tx_id)
		   where v.submitter = $1 and m.nonce is distinct from v.nonce
		  union all
		  select 'PROTECT: ' || evidence::text from protect_incident where submitter = $1)`, p.sub).Scan(&wrong)
	check.OK(p.t)(err)
	for id, hash := range p.used {
		r, err := p.Store.Reservation(p.t.Context(), id)
		if err != nil || r.State != txmanager.Used || r.FirstHash != hash {
			wrong = append(wrong, fmt.Sprintf("%s was marked used by %s: got %+v, %v", id, hash, r, err))
		}
	}
	for id, is := range p.back {
		if r, err := p.Store.Reservation(p.t.Context(), id); is && (err != nil || r.State != txmanager.Recyclable) {
			wrong = append(wrong, fmt.Sprintf("%s was given back: got %+v, %v", id, r, err))
		}
	}
	if len(wrong) > 0 {
		p.t.Fatalf("%s\nafter\n%s", strings.Join(wrong, "\n"), p.story())
	}
}

// finish expires everything and serves until no work is left. Then the chain has consumed every nonce,
// and each transaction has its required end.
func (p *play) finish() {
	p.over(`submitter = $1`, p.sub)
	deadline := time.Now().Add(2 * time.Minute)
	for left := ""; left != "0"; {
		if time.Now().After(deadline) {
			p.t.Fatalf("%s transactions did not end: %s\nafter\n%s", left, p.open(), p.story())
		}
		p.advance()
		left = p.one(`select count(*) from managed_tx where submitter = $1 and state not in ('CONFIRMED', 'FAILED')`, p.sub)
	}
	p.holds()
	client := check.Value(ethclient.DialContext(p.t.Context(), p.chain.URL()))(p.t)
	defer client.Close()
	count := check.Value(client.NonceAt(p.t.Context(), common.Address(eip155.MustBytes(p.key.Address)), nil))(p.t)
	check.Equal(p.t, "the chain's count", fmt.Sprint(count), p.one(`select next_nonce from submitter_nonce_cursor where submitter = $1`, p.sub))
	want, got := map[string]string{}, map[string]string{}
	for id, end := range p.ends() {
		if got[id] = end; p.voided[id] || end == "" {
			want[id] = end
		}
	}
	for id := range got {
		switch _, may := want[id]; {
		case may:
		case p.back[id]:
			want[id] = map[bool]string{true: "FAILED PLACEHOLDER RECYCLABLE", false: "FAILED CANCELLED RECYCLABLE"}[got[id] == "FAILED PLACEHOLDER RECYCLABLE"]
		case p.used[id] != "":
			want[id] = "CONFIRMED USED"
		case slices.Contains(p.intents, id):
			want[id] = "CONFIRMED"
		default: // unmarked, or the mark's answer was lost
			want[id] = got[id]
			if !strings.HasPrefix(got[id], "FAILED PLACEHOLDER") && got[id] != "CONFIRMED USED" && got[id] != "FAILED CANCELLED RECYCLABLE" {
				want[id] = "an end"
			}
		}
	}
	check.Same(p.t, "ends", got, want)
}

// open describes the transactions that have not ended.
func (p *play) open() string {
	return p.one(`select string_agg(jsonb_strip_nulls(to_jsonb(m))::text, E'\n' order by m.seq) from managed_tx m
		where m.submitter = $1 and m.state not in ('CONFIRMED', 'FAILED')`, p.sub)
}

// ends returns state, sub-state and reservation by txId.
func (p *play) ends() map[string]string {
	p.t.Helper()
	all := map[string]string{}
	ends := p.one(`select jsonb_object_agg(tx_id, concat_ws(' ', state, sub_state, reservation)) from managed_tx where submitter = $1`, p.sub)
	check.OK(p.t)(json.Unmarshal([]byte(ends), &all))
	return all
}
