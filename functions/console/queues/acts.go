package queues

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/fencepost/fencepost/functions/console/page"
	"github.com/fencepost/fencepost/shared/client"
	"github.com/fencepost/fencepost/shared/web"
)

// submitterAct is an act on a submitter, and its form with the submitter's state as evidence.
type submitterAct struct {
	submitter
	Path    string // the last part of the form's path; the template draws the fields of that form
	Verb    string // on the button
	Effect  string // what the act does
	Danger  bool   // it cannot be undone
	Confirm string // the text to type; "": none
	do      func(ctx context.Context, call page.Call, id, reason string) error
}

var submitterActs = []submitterAct{
	{Path: "suspend", Verb: "Suspend", do: page.ActOf((*client.Client).SuspendSubmitter),
		Effect: "It accepts no more intents and gives no more nonces. Transactions that have a nonce go on. Resume ends it."},
	{Path: "resume", Verb: "Resume", do: page.ActOf((*client.Client).ResumeSubmitter),
		Effect: "It accepts intents and gives nonces again. Intents in its queue go on at once."},
	{Path: "edit", Verb: "Edit", do: edit,
		Effect: "The window is how many transactions may be open at once. A narrower window stops new nonces only: open transactions go on."},
	{Path: "policy", Verb: "Set the policy", do: setPolicy,
		Effect: "The policy in the form replaces the present one as a whole. A limit that is left out no longer holds. A queued intent that the policy forbids ends without a nonce."},
	{Path: "callers", Verb: "Set the callers", do: setCallers,
		Effect: "The callers in the form replace the present ones. A caller that is left out is refused at once, and its queued intents end without a nonce, unless another caller succeeds it."},
	{Path: "signer", Verb: "Change the signer", do: changeSigner,
		Effect: "The new signer, which must have the account's key, is used from the next lease session on. The holder of the lease may sign by the old one until then."},
	{Path: "retire", Verb: "Retire", Danger: true, do: page.ActOf((*client.Client).RetireSubmitter),
		Effect: "It takes no intent and signs nothing any more, and the account can never be registered again. It is refused while there is open work."},
}

// Title is the form's heading.
func (form submitterAct) Title() string {
	switch form.Path {
	case "policy", "callers", "signer":
		return form.Verb + " of " + form.Heading()
	}
	return form.Verb + " " + form.Heading()
}

// read reads the submitter of the path, and for the form of the policy its use.
func (form *submitterAct) read(ctx context.Context, call page.Call) error {
	ctx, cancel := page.Redraw(ctx, call)
	defer cancel()
	id := call.PathValue("submitter")
	var main part[client.Submitter]
	all := calls{ctx: ctx}
	ask(&all, &main, func(ctx context.Context) (client.Submitter, error) { return call.Admin.Submitter(ctx, id) })
	if form.Path == "policy" {
		ask(&all, &form.Use, func(ctx context.Context) (client.PolicyUse, error) { return call.Admin.PolicyUse(ctx, id, "") })
	}
	all.Wait()
	if main.Err == nil {
		form.Submitter = main.Value
	}
	return main.Err
}

// handle reads the submitter, draws the form, and does the act at POST. It makes 1 call, 2 for the form of the policy, and
// 1 for the act. After a refusal of the API it reads again.
func (form submitterAct) handle(ctx context.Context, call page.Call) (page.View, error) {
	if err := form.read(ctx, call); err != nil {
		return page.View{}, err
	}
	id := form.Submitter.Submitter
	if form.Danger {
		form.Confirm = form.Heading()
	}
	return page.Act(call, func(problem error) page.View {
		if now := form; wasSent(problem) && now.read(ctx, call) == nil {
			form = now
		}
		return page.View{Title: form.Title(), Body: "queues/submitter-act", Data: form}
	}, func(ctx context.Context, reason string) (string, error) {
		if form.Danger {
			if err := page.Confirmed(call, form.Confirm); err != nil {
				return "", err
			}
		}
		return page.Path("submitter", id), form.do(ctx, call, id, reason)
	})
}

// wasSent reports whether the problem is the API's, so that the state may be another than the form has shown.
func wasSent(problem error) bool { return problem != nil && !page.IsRefused(problem) }

// edit changes the window or the name.
func edit(ctx context.Context, call page.Call, id, reason string) error {
	change, err := updateOf(call)
	if err == nil {
		_, err = call.Admin.UpdateSubmitter(ctx, id, change, reason)
	}
	return err
}

// updateOf reads the fields of the form. The API leaves a value that is the same as it was.
func updateOf(call page.Call) (client.SubmitterUpdate, error) {
	name := strings.TrimSpace(call.PostFormValue("name"))
	window, err := strconv.Atoi(strings.TrimSpace(call.PostFormValue("maxInFlight")))
	switch {
	case err != nil || window < 1 || window > 10_000:
		return client.SubmitterUpdate{}, page.Refuse("maxInFlight", "The window must be a whole number from 1 to 10,000.")
	case utf8.RuneCountInString(name) > 100:
		return client.SubmitterUpdate{}, page.Refuse("name", "The name must have at most 100 characters.")
	}
	return client.SubmitterUpdate{MaxInFlight: &window, Name: &name}, nil
}

// setPolicy replaces the policy.
func setPolicy(ctx context.Context, call page.Call, id, reason string) error {
	policy, err := policyOf(call.PostFormValue("policy"))
	if err == nil {
		_, err = call.Admin.SetPolicy(ctx, id, policy, reason)
	}
	return err
}

// PolicyText is the present policy as the form shows it.
func (form submitterAct) PolicyText() (string, error) {
	if form.Policy == nil {
		return "{}", nil
	}
	text, err := json.MarshalIndent(form.Policy, "", "  ")
	return string(text), err
}

// policyOf reads the policy of the form, as strictly as the API reads it.
func policyOf(text string) (client.Policy, error) {
	if strings.TrimSpace(text) == "" {
		return client.Policy{}, page.Refuse("policy", "The policy is empty. Write {} for a policy without limits.")
	}
	if syntax, ok := errors.AsType[*json.SyntaxError](json.Unmarshal([]byte(text), new(any))); ok {
		line := 1 + strings.Count(text[:syntax.Offset], "\n")
		return client.Policy{}, page.Refuse("policy", fmt.Sprintf("The policy is not JSON: line %d: %v.", line, syntax))
	}
	p, err := web.DecodeText[client.Policy]([]byte(text))
	if wrong, ok := errors.AsType[*web.Problem](err); ok {
		return p, page.Refuse("policy", strings.TrimPrefix(wrong.Field+": ", ": ")+wrong.Detail+".")
	}
	if _, unsent := client.ParsePolicy([]byte(text)); err == nil && unsent != nil {
		return p, page.Refuse("policy", "The policy has an empty member (0, \"\", [] or {}). Leave out what is no limit.")
	}
	return p, err
}

// setCallers replaces the callers.
func setCallers(ctx context.Context, call page.Call, id, reason string) error {
	callers := linesOf(call.PostFormValue("callers"))
	if len(callers) == 0 {
		return page.Refuse("callers", "Name at least one caller, each on its own line.")
	}
	succeeds, err := successionsOf(call.PostFormValue("succeeds"))
	if err == nil {
		_, err = call.Admin.SetCallers(ctx, id, callers, succeeds, reason)
	}
	return err
}

// CallersText has the present callers, one a line.
func (form submitterAct) CallersText() string { return strings.Join(form.Callers, "\n") }

// successionsOf reads which caller succeeds which.
func successionsOf(text string) (map[string]string, error) {
	of := map[string]string{}
	for _, line := range linesOf(text) {
		successor, former, ok := strings.Cut(line, "=")
		successor, former = strings.TrimSpace(successor), strings.TrimSpace(former)
		if !ok || successor == "" || former == "" {
			return nil, page.Refuse("succeeds", "Write each succession on its own line as NEW=OLD, such as sub:1034=email:shop@example.com.")
		}
		if of[successor] != "" {
			return nil, page.Refuse("succeeds", "The successions name "+successor+" twice as the new caller.")
		}
		of[successor] = former
	}
	return of, nil
}

// linesOf are the lines of the text that are not empty, without spaces at their ends.
func linesOf(text string) (lines []string) {
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return lines
}

// changeSigner names the signer that the key was moved to.
func changeSigner(ctx context.Context, call page.Call, id, reason string) error {
	signer := strings.TrimSpace(call.PostFormValue("signer"))
	if signer == "" {
		return page.Refuse("signer", "Name the signer: local, kms:… or remote:….")
	}
	_, err := call.Admin.ChangeSigner(ctx, id, signer, reason)
	return err
}

// txAct is an act on a transaction, and its form with the transaction's state and past as evidence.
type txAct struct {
	transaction
	Path    string // the last part of the form's path
	Verb    string
	Effect  string
	Options []option // actions to choose from; none: there is one
	Chosen  string
	Danger  bool
	Confirm string // the text to type
	do      func(ctx context.Context, call page.Call, id, reason string) error
}

// option is an action of the API's decide.
type option struct {
	Value, Name, Effect string
}

var txActs = []txAct{
	{Path: "decide", Verb: "Decide about", Options: decideOptions, do: decide,
		Effect: "The next lease session of the submitter carries the action out, unless a version has a receipt by then."},
	{Path: "cancel", Verb: "Cancel", Danger: true, do: page.ActOf((*client.Client).CancelTxAsOperator),
		Effect: "An intent in the queue ends at once. For one with a nonce, a placeholder transaction competes, and the one that is final decides. This cannot be undone, and the requestId can never be used again."},
	{Path: "proceed", Verb: "Let go on", do: page.ActOf((*client.Client).Proceed),
		Effect: "The held intent goes back to its old place in the queue, gets a nonce and is carried out."},
}

const placeholderAction = "placeholder"

var decideOptions = []option{
	{"rebroadcast", "Send again", "The same bytes go to the nodes again. Nothing is signed."},
	{"replace", "Replace with higher fees", "A new version with the same nonce and higher fees is signed and sent. At most one of the versions is mined."},
	{"wait", "Wait", "Records that you looked. Nothing is sent."},
	{placeholderAction, "Give it up", "A placeholder transaction with the same nonce competes with it. If the placeholder is mined, the call is never carried out. This cannot be undone."},
}

// read reads the transaction for the form.
func (form *txAct) read(ctx context.Context, call page.Call) (err error) {
	ctx, cancel := page.Redraw(ctx, call)
	defer cancel()
	form.transaction, err = readTx(ctx, call)
	form.Chosen, form.Confirm = call.PostFormValue("action"), page.Confirmation(form.TxID)
	return err
}

// handle reads the transaction, draws the form, and does the act at POST. It makes 5 calls, and 1 for the act. After a
// refusal of the API it makes the 5 again.
func (form txAct) handle(ctx context.Context, call page.Call) (page.View, error) {
	if err := form.read(ctx, call); err != nil {
		return page.View{}, err
	}
	return page.Act(call, func(problem error) page.View {
		if now := form; wasSent(problem) && now.read(ctx, call) == nil {
			form = now
		}
		return page.View{Title: form.Verb + " " + form.Heading(), Body: "queues/tx-act", Data: form}
	}, func(ctx context.Context, reason string) (string, error) {
		if form.Danger {
			if err := page.Confirmed(call, form.Confirm); err != nil {
				return "", err
			}
		}
		return page.Path("tx", form.TxID), form.do(ctx, call, form.TxID, reason)
	})
}

// decide requests an action on a transaction with a nonce.
func decide(ctx context.Context, call page.Call, id, reason string) error {
	action := call.PostFormValue("action")
	if action == "" {
		return page.Refuse("action", "Choose one of the actions.")
	}
	if action == placeholderAction {
		if err := page.Confirmed(call, page.Confirmation(id)); err != nil {
			return err
		}
	}
	_, err := call.Admin.DecideTx(ctx, id, action, reason)
	return err
}
