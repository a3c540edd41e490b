package acceptance

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ethereum/go-ethereum/crypto"

	"github.com/fencepost/fencepost/emulator/fake/kms"
	"github.com/fencepost/fencepost/emulator/fake/remotesigner"
	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/chain/devchain"
	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/crash"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// asked returns what the stack's signer was asked to sign, answered or not.
func (b bench) asked() []string {
	if b.KMS != nil {
		return b.KMS.Asked()
	}
	return b.Signing.Asked()
}

// A signer that gives no answer or a wrong one blocks only its submitter. Nothing is stored, nothing
// passes, and the signer is asked again until its answer is right. A remote service sees what it signs
// and is asked for the same each time, for an allocated nonce. With Cloud KMS none is allocated yet.
func TestSignerWithoutAnswerHoldsTheQueue(t *testing.T) {
	t.Parallel()
	impatient := withSettings(quick, map[string]string{"FENCEPOST_SIGNER_TIMEOUT": "200ms"})
	byKMS := func(f kms.Fault) func(bench) { return func(b bench) { b.KMS.SetFault(f) } }
	remotely := func(f remotesigner.Fault) func(bench) { return func(b bench) { b.Signing.SetFault(f) } }
	for name, c := range map[string]struct {
		signer stack.SignerKind
		spoil  func(bench)
		mend   func(bench)
	}{
		"KMS is silent":             {stack.SignerKMS, byKMS(kms.Hanging), byKMS(kms.None)},
		"KMS is away":               {stack.SignerKMS, byKMS(kms.Unavailable), byKMS(kms.None)},
		"KMS signs by another key":  {stack.SignerKMS, byKMS(kms.AnotherKey), byKMS(kms.None)},
		"a service is silent":       {stack.SignerRemote, remotely(remotesigner.Hanging), remotely(remotesigner.None)},
		"a service signs the next":  {stack.SignerRemote, remotely(remotesigner.AnotherNonce), remotely(remotesigner.None)},
		"a service signs by itself": {stack.SignerRemote, remotely(remotesigner.AnotherKey), remotely(remotesigner.None)},
	} {
		parallel(t, name, func(t *testing.T) {
			b := setup(t, stack.Options{Settings: impatient, Signer: c.signer})
			s, other := b.Submitters()[0], b.Submitters()[1]
			before := len(b.asked())
			c.spoil(b)
			first := b.postUntilAnswered(t, transfer(s, "first"))
			b.postUntilAnswered(t, transfer(s, "second"))
			if err := poll(b.ctx, func() bool { return len(b.asked()) >= before+3 }); err != nil {
				t.Fatalf("asked %d times, want at least 3: %v", len(b.asked())-before, err)
			}
			bound := c.signer == stack.SignerRemote
			b.heldUnsigned(t, first, bound)
			questions := slices.Clone(b.asked()[before:])
			slices.Sort(questions)
			if different := slices.Compact(questions); bound && len(different) != 1 {
				t.Errorf("questions for one nonce: got %d different ones, want one: %v", len(different), different)
			}
			c.mend(b)
			b.postUntilAnswered(t, transfer(other, "beside it"))
			b.ends(t, map[txmanager.Submitter]int{s: 2, other: 1})
			b.signedOnce(t, first)
		})
	}
}

// signedOnce requires one version of the transaction, its original.
func (b bench) signedOnce(t *testing.T, txID string) {
	t.Helper()
	b.versions(t, txID, "ORIGINAL")
	b.wantCount(t, fmt.Sprintf("versions of %s", txID), 1, `select count(*) from tx_version where tx_id = $1`, txID)
}

// heldUnsigned waits until the transaction says that its signer gave no answer. It requires an
// allocated nonce if bound is true and none otherwise, no bytes, and no allocation behind it.
func (b bench) heldUnsigned(t *testing.T, txID string, bound bool) {
	t.Helper()
	r := b.becomes(t, txID, "told why it waits", func(r record) bool { return r.LastError != nil })
	want, nonces := "QUEUED", 0
	if bound {
		want, nonces = "IN_FLIGHT", 1
	}
	if r.State != want || (r.Nonce != nil) != bound || *r.LastError != "not signed: the signer gave no answer" {
		t.Errorf("unsigned: got %s, nonce %v, %s; want %s with %d nonces, and why", r.State, r.Nonce, text(r.LastError), want, nonces)
	}
	b.wantCount(t, "versions", 0, `select count(*) from tx_version`)
	b.wantCount(t, "nonces", nonces, `select count(*) from managed_tx where nonce is not null`)
}

// A process dies between the signer's answer and the commit, so that its bytes are lost unseen.
// Another process asks again, and one version is stored and mined.
func TestKilledBesideASignerElsewhere(t *testing.T) {
	t.Parallel()
	for signer, points := range map[stack.SignerKind][]string{
		stack.SignerKMS:    {"advance.signed", "advance.stored"},
		stack.SignerRemote: {"advance.stored", "advance.version_signed", "advance.version_stored"},
	} {
		parallel(t, string(signer), func(t *testing.T) {
			killedInTurn(t, stack.Options{Signer: signer}, points, func(t *testing.T, b bench, folder, point string) {
				s := b.Submitters()[0]
				var ids []string
				for i := range 2 {
					ids = append(ids, b.postUntilAnswered(t, transfer(s, fmt.Sprintf("r-%d", i))))
				}
				b.killed(t, folder, point)
				b.ends(t, map[txmanager.Submitter]int{s: 2})
				for _, id := range ids {
					b.signedOnce(t, id)
				}
			})
		})
	}
	if !slices.Contains(crash.All(), "advance.version_signed") {
		t.Error("advance.version_signed is no point any more")
	}
}

// A registration names the account's signer. It is refused if that signer does not exist or has
// another account's key, and is never changed.
func TestRegistrationNamesTheSigner(t *testing.T) {
	t.Parallel()
	b := setup(t, stack.Options{Signer: stack.SignerKMS})
	stranger := eip155.NewSubmitter(b.Chain.ChainID(), eip155.Address([20]byte{0xba, 0xd0}))
	register := func(s txmanager.Submitter, signer string) (status int, answer string) {
		t.Helper()
		a := b.call(t, stack.OperatorAccount, http.MethodPost, "/admin/v1/submitters", map[string]any{"submitter": s, "callers": []string{"email:" + stack.CallerAccount}, "signer": signer, "policy": "unlimited"})
		return a.status, a.text
	}
	key := func(i int) string {
		return "kms:" + kms.Version(b.Submitters()[i].Address().String())
	}
	for _, c := range []struct {
		of     txmanager.Submitter
		signer string
		status int
	}{
		{stranger, key(0), http.StatusBadRequest},
		{stranger, key(0)[:len(key(0))-1] + "2", http.StatusBadRequest},
		{stranger, "kms:treasury", http.StatusBadRequest},
		{stranger, "remote:treasury", http.StatusBadRequest},
		{stranger, "HSM", http.StatusBadRequest},
		{b.Submitters()[0], key(1), http.StatusBadRequest},
		{b.Submitters()[0], "local", http.StatusConflict},
	} {
		if status, answer := register(c.of, c.signer); status != c.status || (status == http.StatusBadRequest && !(strings.Contains(answer, `"signer"`) && strings.Contains(answer, "INVALID_FIELD"))) {
			t.Errorf("%s by %s: got %d %s, want %d about the signer", c.of, c.signer, status, answer, c.status)
		}
	}
	// By this a person learns the account of a new key.
	_, answer := register(stranger, key(0))
	says(t, "a key of another account", answer, "is the key of the account "+b.Submitters()[0].Address().String())
	b.KMS.SetFault(kms.Unavailable)
	if status, answer := register(stranger, key(0)); status != http.StatusServiceUnavailable {
		t.Errorf("KMS is away: got %d %s, want 503", status, answer)
	}
	b.wantCount(t, "registered", 2, `select count(*) from submitter`)
}

// moveKey makes another signer sign for an account.
func (b bench) moveKey(t *testing.T, of txmanager.Submitter, to, reason string) (status int, answer string) {
	t.Helper()
	a := b.call(t, stack.OperatorAccount, http.MethodPost, "/admin/v1/submitters/"+string(of)+"/signer", map[string]any{"signer": to, "reason": reason})
	return a.status, a.text
}

// A key moves back and forth between a remote signer and the process. Meanwhile one transaction is
// signed, replaced and cancelled, a handler has its wage signed, and a recycled nonce is signed for.
// The signer with the key signs the next version, and nothing else differs.
func TestKeyMovesInTheMiddle(t *testing.T) {
	t.Parallel()
	for _, kind := range []stack.SignerKind{stack.SignerKMS, stack.SignerRemote} {
		parallel(t, string(kind), func(t *testing.T) {
			b := setupWithKeys(t, kind)
			s := b.Submitters()[0]
			away := value[string](t, b, `select signer from submitter where submitter = $1`, s)
			moves := func(to, when string) {
				t.Helper()
				b.operates(t, "/admin/v1/submitters/"+string(s)+"/signer", map[string]any{"signer": to, "reason": when})
			}
			b.Chain.StopMining()
			id := b.postUntilAnswered(t, transfer(s, "cheap"))
			b.await(t, s, txmanager.Stuck, 1)
			before := len(b.asked())
			moves("local", "before it is replaced")
			b.decide(t, id, "replace")
			b.replaced(t, id, "BUMP")
			equal(t, "questions to the signer that has the key no more", len(b.asked()), before)
			moves(away, "before it is cancelled")
			if status, got := b.cancel(t, id); status != http.StatusAccepted {
				t.Fatalf("cancel: got %d %+v, want 202", status, got)
			}
			b.versions(t, id, "ORIGINAL", "BUMP", "PLACEHOLDER")
			b.reachesPool(t, id, 3)
			if got := len(b.asked()); got == before {
				t.Error("the signer that has the key again: got it not asked for the placeholder")
			}
			b.Chain.StartMining()
			b.await(t, s, txmanager.Failed, 1)
			wage, slip := b.wage(t, s, "wage", "signs")
			b.slip(t, slip)
			moves("local", "after a handler's wage")
			next, _ := b.wage(t, s, "next wage", "signs")
			b.ends(t, map[txmanager.Submitter]int{s: 3})
			lent := b.allocate(t, s, "mover", "m-0")[0]
			behind := b.postUntilAnswered(t, transfer(s, "behind it"))
			moves(away, "before a nonce is given back")
			b.hookUntilAnswered(t, "recyclable", lent.TxID, "mover", "not needed")
			b.ends(t, map[txmanager.Submitter]int{s: 4})
			b.wantFate(t, "cancelled", id, "FAILED/PLACEHOLDER", 0)
			b.wantFate(t, "a wage", wage, "CONFIRMED", 1)
			b.wantFate(t, "the next", next, "CONFIRMED", 2)
			b.wantFate(t, "behind what was given back", behind, "CONFIRMED", 3)
		})
	}
}

// setupWithKeys returns a bench with a remote signer and the same keys in the process.
func setupWithKeys(t *testing.T, kind stack.SignerKind) bench {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keys")
	account := devchain.DevAccounts(1)[0]
	line := fmt.Sprintf("%s=0x%x\n", eip155.NewSubmitter(devchain.DefaultChainID, account.Address), crypto.FromECDSA(account.Key))
	check(t, os.WriteFile(path, []byte(line), 0o600))
	b := setup(t, withPayroll(t, stack.Options{Signer: kind, Settings: withHooks(map[string]string{
		"FENCEPOST_SIGNER_LOCAL_KEYS_FILE": path, "FENCEPOST_RESUBMIT_INTERVAL": "1s", "FENCEPOST_RESUBMIT_MAX_ATTEMPTS": "2",
	})}))
	b.payer(t)
	return b
}

// When a key moves, an operator changes the submitter's signer with a reason. The new signer must have
// the same account's key.
func TestKeyMovesToAnotherSigner(t *testing.T) {
	t.Parallel()
	b := setup(t, stack.Options{Signer: stack.SignerKMS})
	s := b.Submitters()[0]
	to := b.KMS.Import(s.Address().String(), "moved")
	other := "kms:" + kms.Version(b.Submitters()[1].Address().String())
	for _, c := range []struct {
		of         txmanager.Submitter
		to, reason string
		status     int
	}{
		{s, other, "of another account", http.StatusBadRequest},
		{s, "remote:treasury", "not here", http.StatusBadRequest},
		{s, "kms:" + to, " ", http.StatusBadRequest},
		{eip155.NewSubmitter(b.Chain.ChainID(), eip155.Address([20]byte{0xba, 0xd0})), "kms:" + to, "nobody", http.StatusNotFound},
	} {
		if status, answer := b.moveKey(t, c.of, c.to, c.reason); status != c.status {
			t.Errorf("%s to %s: got %d %s, want %d", c.of, c.to, status, answer, c.status)
		}
	}
	b.KMS.SetFault(kms.Unavailable)
	if status, answer := b.moveKey(t, s, "kms:"+to, "KMS is away"); status != http.StatusServiceUnavailable {
		t.Errorf("KMS is away: got %d %s, want 503", status, answer)
	}
	b.KMS.SetFault(kms.None)
	b.wantCount(t, "changes", 0, `select count(*) from submitter_change where action = 'SIGNER'`)
	b.postUntilAnswered(t, transfer(s, "before"))
	for range 2 {
		if status, answer := b.moveKey(t, s, "kms:"+to, "a key ring of its own"); status != http.StatusOK || !strings.Contains(answer, to) {
			t.Fatalf("got %d %s, want 200 and the new signer", status, answer)
		}
	}
	b.postUntilAnswered(t, transfer(s, "after"))
	b.ends(t, map[txmanager.Submitter]int{s: 2})
	b.wantCount(t, "changes", 1, `select count(*) from submitter_change where action = 'SIGNER' and reason = 'a key ring of its own'`)
}
