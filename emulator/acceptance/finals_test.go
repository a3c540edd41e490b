package acceptance

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// H12: a reorg deeper than finality is noticed although the submitter has no work: PROTECT opens. The
// final version that was reorged out is sent again, and nothing else; its state stays. Nothing is
// allocated until an operator has released the submitter, who cannot resume before all final
// transactions are back.
func TestH12ReorgDeeperThanFinal(t *testing.T) {
	t.Parallel()
	for name, vanishes := range map[string]bool{"the transaction comes back": false, "the transaction vanishes": true} {
		parallel(t, name, func(t *testing.T) {
			b := setup(t, stack.Options{Settings: quick})
			s := b.Submitters()[0]
			_, id := b.post(t, transfer(s, "final"))
			b.await(t, s, txmanager.Confirmed, 1)
			_, before := b.ask(t, stack.CallerAccount, id)
			b.removeFinal(t, id)
			if vanishes {
				b.Chain.DropPool()
			}
			incident := b.sweptIntoProtect(t, s, `"why": "REORG"`, `"final"`)
			b.until(t, "the final transaction never came back", func() bool { return len(b.mined(t, s)) == 1 })
			b.resumeWhenBack(t, s, incident)
			if _, after := b.ask(t, stack.CallerAccount, id); after.State != "CONFIRMED" || *after.TxHash != *before.TxHash {
				t.Errorf("the transaction: got %s %s, want it CONFIRMED by %s still", after.State, *after.TxHash, *before.TxHash)
			}
			b.post(t, transfer(s, "next"))
			b.await(t, s, txmanager.Confirmed, 2)
			b.ends(t, map[txmanager.Submitter]int{s: 2})
		})
	}
}

// H12: a foreign transaction replaces a final one. Resume is refused and names it. Resync accepts the
// loss and records what the chain lacks.
func TestH12FinalIsSwapped(t *testing.T) {
	t.Parallel()
	b := setup(t, stack.Options{Settings: quick})
	s := b.Submitters()[0]
	_, id := b.post(t, transfer(s, "final"))
	b.await(t, s, txmanager.Confirmed, 1)
	b.removeFinal(t, id, b.foreign(t, 0))
	incident := b.sweptIntoProtect(t, s)
	status, text := b.release(t, s, map[string]any{"incident": incident, "mode": "resume", "reason": "a false alarm"})
	if status != http.StatusBadRequest || !strings.Contains(text, "nonce 0") {
		t.Errorf("resume: got %d %s, want it refused with the nonce that is not back", status, text)
	}
	b.mine(t, 70)
	released := b.released(t, s, "", map[string]any{"incident": incident, "mode": "resync", "count": 1, "reason": "the key was shared"})
	if released.NextNonce != 1 || len(released.NotOnChain) != 1 || released.NotOnChain[0].TxID != id {
		t.Fatalf("resync: got %+v, want next nonce 1 and %s not on chain", released, id)
	}
	b.post(t, transfer(s, "next"))
	b.await(t, s, txmanager.Confirmed, 2)
	b.wantContiguous(t, s, 2)
	equal(t, "what the record of the release names", value[string](t, b, `select released -> 'notOnChain' -> 0 ->> 'txId' from protect_incident`), id)
}

// removeFinal replaces all blocks from the transaction's block on by a longer branch. Its first block
// has the given raw transactions, the rest are empty.
func (b bench) removeFinal(t *testing.T, txID string, raws ...[]byte) {
	t.Helper()
	number := value[uint64](t, b, `select (receipt ->> 'blockNumber')::bigint from managed_tx where tx_id = $1`, txID)
	b.Chain.StopMining()
	depth := b.Chain.Head() - number + 1
	blocks := make([][][]byte, depth+2)
	blocks[0] = raws
	check(t, b.Chain.Reorg(depth, blocks...))
	b.Chain.StartMining()
}

func (b bench) sweptIntoProtect(t *testing.T, s txmanager.Submitter, texts ...string) (incident int) {
	t.Helper()
	_ = b.RunSweep(b.ctx)
	b.swept(t, fmt.Sprintf("%s never went into PROTECT", s), func() bool {
		return b.count(`select count(*) from protect_incident where submitter = $1 and closed_at is null`, s) == 1
	})
	return b.inProtect(t, s, texts...)
}

// resumeWhenBack resumes as soon as the manager sees that the final transaction is back.
func (b bench) resumeWhenBack(t *testing.T, s txmanager.Submitter, incident int) {
	t.Helper()
	var text string
	err := poll(b.ctx, func() bool {
		status := 0
		status, text = b.release(t, s, map[string]any{"incident": incident, "mode": "resume", "reason": "it is back"})
		return status == http.StatusOK
	})
	if err != nil {
		t.Fatalf("resume: never accepted, at last %s", text)
	}
}

// foreign returns a transaction that a foreign signer made with the first dev account's key.
func (b bench) foreign(t *testing.T, n uint64) []byte {
	t.Helper()
	return must(b.Sign(firstAccount, b.Payment(n, unused, 7, 1)).MarshalBinary())(t)
}

// H12: a final transaction is reorged out while PROTECT is open for another reason. It is sent again,
// and the incident can be released once it is back.
func TestH12FinalFallsInAnotherEpisode(t *testing.T) {
	t.Parallel()
	b := setup(t, stack.Options{Settings: quick})
	s := b.Submitters()[0]
	_, id := b.post(t, transfer(s, "final"))
	b.await(t, s, txmanager.Confirmed, 1)
	must(b.DB.Exec(b.ctx, `insert into protect_incident (submitter, incident, evidence) values ($1, 1, '{"what": "a false alarm"}')`, s))(t)
	b.removeFinal(t, id)
	b.Chain.DropPool()
	_ = b.RunSweep(b.ctx)
	b.swept(t, "the final transaction never came back", func() bool { return len(b.mined(t, s)) == 1 })
	b.resumeWhenBack(t, s, 1)
	b.post(t, transfer(s, "next"))
	b.await(t, s, txmanager.Confirmed, 2)
	b.ends(t, map[txmanager.Submitter]int{s: 2})
}
