package attacks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/ethereum/go-ethereum/crypto"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/chain/devchain"
	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/client"
	"github.com/fencepost/fencepost/shared/config"
	"github.com/fencepost/fencepost/shared/crash"
)

// twoPeople are the settings of a deployment that demands two operators for everything.
func twoPeople(more map[string]string) map[string]string {
	all := map[string]string{"FENCEPOST_APPROVALS_REQUIRED": strings.Join(config.ApprovalKinds, ",")}
	maps.Copy(all, more)
	return all
}

// second is the other operator.
func (h deployment) second(t *testing.T) *client.Client {
	t.Helper()
	return must(h.Client(stack.SecondAccount))(t)
}

// third is the token of an operator by subject alone.
func (h deployment) third(context.Context) (string, error) {
	return h.Issuer.Mint(stack.PublicAudience, map[string]any{"sub": "third"})
}

// says is the one text that the query says.
func (h deployment) says(t *testing.T, query string, args ...any) (text string) {
	t.Helper()
	check(t, h.DB.QueryRow(h.ctx, `select coalesce((`+query+`)::text, 'null')`, args...).Scan(&text))
	return text
}

// A thief of one operator's token changes no policy, callers or signer, and registers and
// resumes nothing. The thief ends no PROTECT and accepts no database: each such call is a
// proposal, which the same token cannot approve. Another operator does, and it is carried out with
// both names.
func TestOneStolenOperatorTokenDecidesNothingAlone(t *testing.T) {
	t.Parallel()
	accounts := devchain.DevAccounts(4)
	keys, spare := "", eip155.NewSubmitter(devchain.DefaultChainID, accounts[3].Address)
	for _, a := range []devchain.Account{accounts[0], accounts[3]} {
		keys += fmt.Sprintf("%s=0x%x\n", eip155.NewSubmitter(devchain.DefaultChainID, a.Address), crypto.FromECDSA(a.Key))
	}
	path := filepath.Join(t.TempDir(), "keys")
	check(t, os.WriteFile(path, []byte(keys), 0o600))
	h := setup(t, stack.Options{Processes: 1, Split: true, Signer: stack.SignerKMS, Settings: twoPeople(map[string]string{"FENCEPOST_SIGNER_LOCAL_KEYS_FILE": path})})
	s, thief, second := h.Submitters()[0], h.operator(t), h.second(t)
	sub := string(s)
	h.wantCount(t, "registrations of the stack by two operators", 2, `select count(*) from proposal where act = 'register' and status = 'CARRIED_OUT'`)
	policy := client.Policy{MaxValue: "1"}
	must(thief.SetPolicy(h.ctx, sub, policy, "tighter"))(t)
	must(thief.SuspendSubmitter(h.ctx, sub, "a theft"))(t)
	ofSub := func(column string) string {
		return `select ` + column + ` from submitter where submitter = '` + sub + `'`
	}
	for _, c := range []struct {
		act          string
		before       func()
		call         func() error
		is           string // a query
		was, becomes string
	}{
		{"policy", nil, func() error {
			_, err := thief.SetPolicy(h.ctx, sub, client.Policy{MaxValue: "1000000000000000000"}, "r")
			return err
		},
			`select max_value_wei from submitter_policy`, "1", "1000000000000000000"},
		{"callers", nil, func() error {
			_, err := thief.SetCallers(h.ctx, sub, []string{"email:" + stack.CallerAccount, "email:thief@evil.example"}, nil, "r")
			return err
		}, `select 'email:thief@evil.example' = any(callers) from submitter where submitter = '` + sub + `'`, "false", "true"},
		{"succession", nil, func() error {
			_, err := thief.SetCallers(h.ctx, sub, []string{"email:" + stack.CallerAccount, "email:two@evil.example"}, map[string]string{"email:two@evil.example": "email:thief@evil.example"}, "r")
			return err
		}, `select 'email:two@evil.example' = any(callers) from submitter where submitter = '` + sub + `'`, "false", "true"},
		{"signer", nil, func() error { _, err := thief.ChangeSigner(h.ctx, sub, "local", "r"); return err }, ofSub(`split_part(signer, ':', 1)`), "kms", "local"},
		{"register", nil, func() error {
			_, err := thief.RegisterSubmitter(h.ctx, client.Registration{Submitter: string(spare), Signer: "local", Callers: []string{"email:thief@evil.example"}, Unlimited: true})
			return err
		}, `select count(*) from submitter where submitter = '` + string(spare) + `'`, "0", "1"},
		{"resume", nil, func() error { _, err := thief.ResumeSubmitter(h.ctx, sub, "r"); return err }, ofSub(`status`), "SUSPENDED", "ACTIVE"},
		{"release", func() {
			must(h.DB.Exec(h.ctx, `insert into protect_incident (submitter, incident, evidence) values ($1, 1, '{"what": "a false alarm"}')`, sub))(t)
		}, func() error {
			_, err := thief.Release(h.ctx, sub, client.Release{Incident: 1, Mode: "resume", Reason: "r"})
			return err
		}, `select count(*) from protect_incident where closed_at is null`, "1", "0"},
		{"accept", func() {
			must(h.DB.Exec(h.ctx, `update database_identity set timeline_id = timeline_id + 1`))(t)
		}, func() error { return thief.AcceptDatabase(h.ctx, "r") }, `select is_accepted_database()`, "false", "true"},
	} {
		if c.before != nil {
			c.before()
		}
		p := client.ProposedBy(c.call())
		if p == nil {
			t.Fatalf("%s: got it carried out, want it proposed", c.act)
		}
		if got := h.says(t, c.is); got != c.was {
			t.Errorf("%s by one operator: got %s, want it as it was, %s", c.act, got, c.was)
		}
		if _, err := thief.Approve(h.ctx, p.ProposalID, "by myself"); client.CodeOf(err) != "SAME_OPERATOR" {
			t.Errorf("%s: got %v, want the thief's approval refused with SAME_OPERATOR", c.act, err)
		}
		done, err := second.Approve(h.ctx, p.ProposalID, "seen")
		if err != nil || done.Status != "CARRIED_OUT" || done.ApprovedBy != "email:"+stack.SecondAccount || done.Outcome == nil {
			t.Fatalf("%s approved: got %+v, %v; want it carried out", c.act, done, err)
		}
		equal(t, fmt.Sprintf("%s by two operators", c.act), h.says(t, c.is), c.becomes)
	}
	if n := h.count(t, `select count(*) from submitter_change where proposal is not null and approved_by = $1 and by = $2`, "email:"+stack.SecondAccount, "email:"+stack.OperatorAccount); n < 7 {
		t.Errorf("on record with both names: got %d acts, want 7 or more", n)
	}
}

// Two other names of one token are one person, and a state that has moved ends a proposal.
func TestAnotherNameOfTheProposerApprovesNothing(t *testing.T) {
	t.Parallel()
	const ann = "sub:ann-at-work"
	h := setup(t, stack.Options{Processes: 1, Submitters: 1, Settings: map[string]string{
		"FENCEPOST_APPROVALS_REQUIRED": "policy",
		"FENCEPOST_AUTH_OPERATORS":     "email:" + stack.OperatorAccount + ",email:" + stack.SecondAccount + "," + ann,
	}})
	s := h.Submitters()[0]
	path := "/admin/v1/submitters/" + string(s) + "/policy"
	must(h.operator(t).SetPolicy(h.ctx, string(s), client.Policy{MaxValue: "5"}, "r"))(t)
	var proposed struct{ ProposalID string }
	token := h.mint(t, map[string]any{"sub": "ann-at-work", "email": stack.OperatorAccount, "email_verified": true})
	status, text, err := stack.CallWith(h.ctx, token, http.MethodPut, h.URLMap.PublicURL()+path, map[string]any{"maxValue": "6", "reason": "r"})
	if err != nil || status != http.StatusAccepted || json.Unmarshal(text, &proposed) != nil {
		t.Fatalf("propose: got %d %s, %v; want 202", status, text, err)
	}
	approve := func(token string) answer {
		return h.call(t, token, http.MethodPost, "/admin/v1/proposals/"+proposed.ProposalID+"/approve", map[string]any{"reason": "r"})
	}
	for name, claims := range map[string]map[string]any{
		"by the subject alone": {"sub": "ann-at-work"},
		"by the e-mail alone":  {"sub": "another", "email": stack.OperatorAccount, "email_verified": true},
	} {
		approve(h.mint(t, claims)).want(t, name, "403 SAME_OPERATOR")
	}
	must(h.second(t).SetPolicy(h.ctx, string(s), client.Policy{MaxValue: "4"}, "tighter"))(t)
	approve(h.token(t, stack.SecondAccount)).want(t, "once the policy has changed", "409 PROPOSAL_STALE")
	equal(t, "the policy", h.says(t, `select max_value_wei from submitter_policy`), "4")
}

// A process dies between the approval and the act, or between the act and its answer. The
// next call goes on with the proposal, and the act is carried out once. So it is when two
// approve at once.
func TestAProposalOutlivesItsProcess(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	h := setup(t, stack.Options{Processes: 2, Submitters: 1, Settings: map[string]string{
		"FENCEPOST_APPROVALS_REQUIRED": "policy", crash.Variable: folder,
		"FENCEPOST_AUTH_OPERATORS": "email:" + stack.OperatorAccount + ",email:" + stack.SecondAccount + ",sub:third",
	}})
	sub := string(h.Submitters()[0])
	must(h.operator(t).SetPolicy(h.ctx, sub, client.Policy{MaxValue: "5"}, "r"))(t)
	for i, point := range []string{"proposal.approved", "proposal.done", ""} {
		most := fmt.Sprint(10 + i)
		_, err := h.operator(t).SetPolicy(h.ctx, sub, client.Policy{MaxValue: most}, "r")
		p := client.ProposedBy(err)
		if p == nil {
			t.Fatalf("set the policy: got %v, want it proposed", err)
		}
		if point != "" {
			check(t, crash.Arm(folder, point, 1, crash.Kill))
		}
		var all sync.WaitGroup
		errs := make([]error, 2)
		all.Go(func() { _, errs[0] = h.second(t).Approve(h.ctx, p.ProposalID, "r") }) // repeats what got no answer
		all.Go(func() {
			third, err := client.New(client.Options{URL: h.URLMap.PublicURL(), Token: h.third})
			if err == nil {
				_, err = third.Approve(h.ctx, p.ProposalID, "r")
			}
			errs[1] = err
		})
		all.Wait()
		check(t, errors.Join(errs...), point, ": ")
		if point != "" && !crash.Hit(folder, point) {
			t.Errorf("%s: nobody passed it", point)
		}
		if got := h.says(t, `select max_value_wei from submitter_policy`); got != most {
			t.Errorf("%s: got the policy %s, want %s", point, got, most)
		}
		h.wantCount(t, point, 1, `select count(*) from submitter_change where action = 'POLICY' and proposal = $1`, p.ProposalID)
	}
}
