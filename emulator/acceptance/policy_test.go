package acceptance

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/ethereum/go-ethereum/common"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/chain/devchain"
	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/client"
	"github.com/fencepost/fencepost/shared/txmanager"
)

func (b bench) clients(t *testing.T) (shop, operator *client.Client) {
	t.Helper()
	return must(b.Client(stack.CallerAccount))(t), must(b.Client(stack.OperatorAccount))(t)
}

// wantRefused returns a check that a call of the client is refused with the code.
func wantRefused(t *testing.T, what, code string) func(_ any, err error) {
	return func(_ any, err error) {
		t.Helper()
		if got := client.CodeOf(err); got != code {
			t.Errorf("%s: got %v, want %s", what, err, code)
		}
	}
}

func (b bench) refused(t *testing.T, intent map[string]any, want problem) {
	t.Helper()
	token := must(b.Issuer.Token(b.ctx, stack.CallerAccount, stack.PublicAudience))(t)
	body := must(json.Marshal(intent))(t)
	status, header, answer := b.send(t, http.MethodPost, b.URLMap.PublicURL()+"/api/v1/tx", token, string(body))
	b.wantProblem(t, status, header, answer, want)
	b.wantCount(t, fmt.Sprintf("%v: refused, and stored", intent["requestId"]), 0, `select count(*) from managed_tx where request_id = $1`, intent["requestId"])
}

const cafe0 = "0x00000000000000000000000000000000000cafe0"

// paysTo returns intents of the submitter that pay wei to an address.
func paysTo(s txmanager.Submitter) func(request, wei, to string) map[string]any {
	return func(request, wei, to string) map[string]any {
		return map[string]any{"submitter": s, "requestId": request, "payload": map[string]any{"to": to, "value": wei}}
	}
}

// A submitter's policy refuses a forbidden intent before anything is stored, and names the field at
// fault. A stored request is answered whatever the policy now says. A handler's transaction is checked
// before it is signed.
func TestPolicyOverHTTP(t *testing.T) {
	t.Parallel()
	service := openShop(t)
	b := setupShop(t, service, stack.Options{})
	shop, operator := b.clients(t)
	s := b.Submitters()[0]
	paid := paysTo(s)
	terms := client.Policy{MaxValue: "6", MaxValuePerDay: "10", MaxPerMinute: 4, Targets: []string{cafe0}}
	same(t, "set", must(operator.SetPolicy(b.ctx, string(s), terms, "one shop alone"))(t).Policy, &terms)
	first := b.postUntilAnswered(t, paid("first", "6", cafe0))
	b.refused(t, paid("much", "7", cafe0), problem{Status: 403, Code: "POLICY_REFUSED", Field: "payload.value"})
	b.refused(t, paid("astray", "1", "0x00000000000000000000000000000000000cafe1"), problem{Status: 403, Code: "POLICY_REFUSED", Field: "payload.to"})
	b.refused(t, paid("over", "5", cafe0), problem{Status: 429, Code: "DAILY_AMOUNT_EXCEEDED", Field: "payload.value"})
	made := b.postUntilAnswered(t, ordered(s, "made", "")) // 5 wei to another account
	b.postUntilAnswered(t, paid("rest", "4", cafe0))
	b.postUntilAnswered(t, paid("nothing", "0", cafe0))
	b.refused(t, paid("fast", "0", cafe0), problem{Status: 429, Code: "RATE_LIMIT_EXCEEDED"})
	equal(t, "a known request", b.postUntilAnswered(t, paid("first", "6", cafe0)), first)
	b.ends(t, map[txmanager.Submitter]int{s: 4})
	b.wantPlaceholder(t, "what the shop made", made, "policy does not allow this target")
	b.wantCount(t, "what the shop made (nothing that the policy refuses is signed)", 1, `select count(*) from tx_version where tx_id = $1`, made)
	must(operator.SetPolicy(b.ctx, string(s), client.Policy{}, "no limits"))(t)
	must(shop.CreateTx(b.ctx, client.Intent{Submitter: string(s), RequestID: "much", Payload: client.Payload{To: cafe0, Value: "7"}}))(t)
	b.ends(t, map[txmanager.Submitter]int{s: 5})
}

// A policy that is set during a handler call applies to the handler's answer.
func TestPolicyWhileAHandlerIsAsked(t *testing.T) {
	t.Parallel()
	service := openShop(t)
	b := setup(t, stack.Options{Settings: service.settings()})
	b.knowsShop(t, service)
	_, operator := b.clients(t)
	s := b.Submitters()[0]
	id := b.postUntilAnswered(t, ordered(s, "r", "waits"))
	b.until(t, "not asked", func() bool { return len(service.questions("r")) > 0 })
	_, err := operator.SetPolicy(b.ctx, string(s), client.Policy{MaxValue: "4"}, "no more of these")
	close(service.open)
	check(t, err)
	b.ends(t, map[txmanager.Submitter]int{s: 1})
	b.wantPlaceholder(t, "the intent", id, "at most 4 wei")
}

// Addresses are compared by value, in any letter case.
func TestPolicyKnowsAddressesInAnyLetters(t *testing.T) {
	t.Parallel()
	b := setup(t, stack.Options{Processes: 1})
	_, operator := b.clients(t)
	s := b.Submitters()[0]
	pays := func(request, to string) map[string]any { return paysTo(s)(request, "1", to) }
	const upper = "0x00000000000000000000000000000000000CAFE0"
	mixed := common.HexToAddress(upper).Hex()
	for i, target := range []string{upper, mixed, cafe0} {
		must(operator.SetPolicy(b.ctx, string(s), client.Policy{Targets: []string{target}}, "one shop alone"))(t)
		for j, to := range []string{upper, mixed, cafe0} {
			b.postUntilAnswered(t, pays(fmt.Sprintf("r-%d%d", i, j), to))
		}
		b.refused(t, pays("astray", "0x00000000000000000000000000000000000CAFE1"), problem{Status: 403, Code: "POLICY_REFUSED", Field: "payload.to"})
	}
	b.ends(t, map[txmanager.Submitter]int{s: 9})
}

// In a batch each intent that the policy refuses gets its code, field and retry time. The others are
// accepted.
func TestPolicyOfABatchOverHTTP(t *testing.T) {
	t.Parallel()
	b := setup(t, stack.Options{Processes: 1})
	_, operator := b.clients(t)
	s := b.Submitters()[0]
	must(operator.SetPolicy(b.ctx, string(s), client.Policy{MaxValue: "3", MaxValuePerDay: "4", Targets: []string{cafe0}}, "a test"))(t)
	pays := paysTo(s)
	batch := []map[string]any{pays("a", "3", cafe0), pays("b", "4", cafe0), pays("c", "1", "0x00000000000000000000000000000000000cafe1"),
		pays("d", "2", cafe0), pays("e", "1", cafe0), pays("a", "3", cafe0)}
	want := "202, 403 POLICY_REFUSED payload.value, 403 POLICY_REFUSED payload.to, 429 DAILY_AMOUNT_EXCEEDED payload.value later, 202, 200"
	for range 2 {
		var said []string
		for _, r := range b.mustBatch(t, batch...) {
			later := ""
			if r.RetryAfterSeconds > 0 {
				later = "later"
			}
			said = append(said, strings.TrimSpace(strings.Join([]string{fmt.Sprint(r.Status), r.Code, r.Field, later}, " ")))
		}
		equal(t, "the results", strings.Join(said, ", "), want)
		want = strings.ReplaceAll(want, "202", "200") // the second time they are known
	}
	b.ends(t, map[txmanager.Submitter]int{s: 2})
}

// An invalid policy is refused with its field, and only operators can set one.
func TestPolicyTerms(t *testing.T) {
	t.Parallel()
	b := setup(t, stack.Options{Processes: 1})
	shop, _ := b.clients(t)
	s := string(b.Submitters()[0])
	for _, terms := range []struct {
		field string
		value any
	}{
		{"maxValue", "01"}, {"maxValuePerDay", "1.5"}, {"maxPerMinute", 0}, {"reason", " "},
		{"targets", []string{"0x12"}}, {"targets", []string{"0x52908400098527886E0F7030069857D2E4169Ee7"}}, // its checksum ends in EE7
	} {
		body := map[string]any{"reason": "r"}
		body[terms.field] = terms.value
		b.call(t, stack.OperatorAccount, http.MethodPut, "/admin/v1/submitters/"+s+"/policy", body).want(fmt.Sprint(terms), http.StatusBadRequest, `"field":"`+terms.field+`"`)
	}
	wantRefused(t, "by a caller", "FORBIDDEN")(shop.SetPolicy(b.ctx, s, client.Policy{}, "mine"))
	wantRefused(t, "suspended by a caller", "FORBIDDEN")(shop.SuspendSubmitter(b.ctx, s, "mine"))
	b.wantCount(t, "changes on record", 0, `select count(*) from submitter_change`)
}

// A suspended submitter accepts no intent and allocates no nonce, while transactions with a nonce
// continue. After the resume its queue continues without help.
func TestSuspendOverHTTP(t *testing.T) {
	t.Parallel()
	b := setup(t, stack.Options{})
	_, operator := b.clients(t)
	s := b.Submitters()[0]
	flying := b.inFlight(t, transfer(s, "flying"))
	waiting := b.postUntilAnswered(t, transfer(s, "waiting"))
	equal(t, "suspended", must(operator.SuspendSubmitter(b.ctx, string(s), "a leak"))(t).Status, "SUSPENDED")
	b.refused(t, transfer(s, "late"), problem{Status: 403, Code: "FORBIDDEN"})
	equal(t, "a known request", b.postUntilAnswered(t, transfer(s, "waiting")), waiting)
	b.Chain.StartMining()
	b.await(t, s, txmanager.Confirmed, 1)
	b.wantState(t, "what held a nonce", flying, "CONFIRMED")
	_ = b.RunSweep(b.ctx)
	b.wantState(t, "what waits", waiting, "QUEUED")
	wantRefused(t, "suspend again", "TOO_LATE")(operator.SuspendSubmitter(b.ctx, string(s), "again"))
	equal(t, "resumed", must(operator.ResumeSubmitter(b.ctx, string(s), "no leak"))(t).Status, "ACTIVE")
	b.await(t, s, txmanager.Confirmed, 2) // no sweep runs here
	b.ends(t, map[txmanager.Submitter]int{s: 2})
}

// A submitter can be registered with a policy that applies from its first intent. A repeated
// registration succeeds on the same terms and is refused on others.
func TestRegisteredWithAPolicy(t *testing.T) {
	t.Parallel()
	b := setup(t, stack.Options{Submitters: 1, Signer: stack.SignerKMS})
	_, operator := b.clients(t)
	account := devchain.DevAccounts(3)[2]
	fresh := eip155.NewSubmitter(b.Chain.ChainID(), account.Address)
	signer := "kms:" + b.KMS.Add(account.Address.String(), account.Key)
	terms := client.Registration{Submitter: string(fresh), Signer: signer, Callers: []string{"email:" + stack.CallerAccount}, Policy: &client.Policy{MaxValue: "1", Targets: []string{cafe0}}}
	for range 2 {
		same(t, "registered", must(operator.RegisterSubmitter(b.ctx, terms))(t).Policy, terms.Policy)
	}
	b.refused(t, paysTo(fresh)("r", "2", cafe0), problem{Status: 403, Code: "POLICY_REFUSED", Field: "payload.value"})
	terms.Policy = &client.Policy{MaxValue: "2", Targets: []string{cafe0}}
	var p *client.Problem
	wantRefused(t, "on other terms", "SUBMITTER_EXISTS")(operator.RegisterSubmitter(b.ctx, terms))
	terms.Policy, terms.Unlimited = nil, true
	wantRefused(t, "without limits", "SUBMITTER_EXISTS")(operator.RegisterSubmitter(b.ctx, terms))
	b.wantCount(t, "changes on record", 1, `select count(*) from submitter_change where submitter = $1`, fresh)
	other := devchain.DevAccounts(4)[3]
	free := client.Registration{Submitter: string(eip155.NewSubmitter(b.Chain.ChainID(), other.Address)), Callers: terms.Callers,
		Signer: "kms:" + b.KMS.Add(other.Address.String(), other.Key)}
	if _, err := operator.RegisterSubmitter(b.ctx, free); !errors.As(err, &p) || p.Code != "INVALID_FIELD" || p.Field != "policy" {
		t.Errorf("without a policy: got %v, want INVALID_FIELD for policy", err)
	}
	free.Unlimited = true
	for range 2 {
		equal(t, "the policy without limits, by its word", must(operator.RegisterSubmitter(b.ctx, free))(t).Policy, nil)
	}
	must(operator.SetPolicy(b.ctx, free.Submitter, client.Policy{MaxValue: "1"}, "has limits now"))(t)
	wantRefused(t, "without limits, once it has some", "SUBMITTER_EXISTS")(operator.RegisterSubmitter(b.ctx, free))
}

// A handler that the submitter's callers do not name, or that does not exist, is refused, and nothing
// is stored.
func TestHandlerMustBeNamed(t *testing.T) {
	t.Parallel()
	service := openShop(t)
	b := setupShop(t, service, stack.Options{})
	s := b.Submitters()[0]
	must(b.DB.Exec(b.ctx, `update submitter set callers = array_remove(callers, 'handler:shop')`))(t)
	b.refused(t, ordered(s, "barred", ""), problem{Status: 403, Code: "POLICY_REFUSED", Field: "handler"})
	unknown := ordered(s, "unknown", "")
	unknown["handler"] = "nobody"
	b.refused(t, unknown, problem{Status: 400, Code: "INVALID_FIELD", Field: "handler"})
	equal(t, "questions", len(service.questions("barred")), 0)
}
