package queues

import (
	"cmp"
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

var submitterActs = []page.Act{
	{Name: "suspend", Button: "Suspend", Do: page.ActOf((*client.Client).SuspendSubmitter),
		Meaning: "It accepts no more intents and gives no more nonces. Transactions that have a nonce go on. Resume ends it."},
	{Name: "resume", Button: "Resume", Do: page.ActOf((*client.Client).ResumeSubmitter),
		Meaning: "It accepts intents and gives nonces again. Intents in its queue go on at once."},
	{Name: "edit", Button: "Edit", Do: edit,
		Meaning: "The window is how many transactions may be open at once. A narrower window stops new nonces only: open transactions go on."},
	{Name: "policy", Button: "Set the policy", Title: "Set the policy of", Do: setPolicy,
		Meaning: "The policy in the form replaces the present one as a whole. A limit that is left out no longer holds. A queued intent that the policy forbids ends without a nonce."},
	{Name: "callers", Button: "Set the callers", Title: "Set the callers of", Do: setCallers,
		Meaning: "The callers in the form replace the present ones. A caller that is left out is refused at once, and its queued intents end without a nonce, unless another caller succeeds it."},
	{Name: "signer", Button: "Change the signer", Title: "Change the signer of", Do: changeSigner,
		Meaning: "The new signer, which must have the account's key, is used from the next lease session on. The holder of the lease may sign by the old one until then."},
	{Name: "retire", Button: "Retire", Danger: true, Do: page.ActOf((*client.Client).RetireSubmitter),
		Meaning: "It takes no intent and signs nothing any more, and the account can never be registered again. It is refused while there is open work."},
}

// txActs are the acts on a transaction. Some of the actions of the act decide cannot be undone.
var txActs = []page.Act{
	{Name: "decide", Button: "Decide", Title: "Decide about", Do: decide,
		Meaning: "The next lease session of the submitter carries the action out, unless a version has a receipt by then."},
	{Name: "cancel", Button: "Cancel", Danger: true, Do: page.ActOf((*client.Client).CancelTxAsOperator),
		Meaning: "An intent in the queue ends at once. For one with a nonce, a placeholder transaction competes, and the one that is final decides. This cannot be undone, and the requestId can never be used again."},
	{Name: "proceed", Button: "Let go on", Do: page.ActOf((*client.Client).Proceed),
		Meaning: "The held intent goes back to its old place in the queue, gets a nonce and is carried out."},
}

// subject is what an act is about: a submitter or a transaction.
type subject interface {
	Heading() string
	id() string
	Confirmation() string // the text to type where the act cannot be undone
}

// form is the form of an act, with the state of its subject as evidence.
type form[T subject] struct {
	Act page.Act
	Of  T
}

// serveAct reads the subject, draws the form, and does the act at POST. It makes the calls of read, and 1 for the act. After
// a refusal of the API it reads again.
func serveAct[T subject](act page.Act, kind, body string, read func(context.Context, page.Call) (T, error)) page.Handler {
	return func(ctx context.Context, call page.Call) (page.View, error) {
		of, err := read(ctx, call)
		if err != nil {
			return page.View{}, err
		}
		draw := func(ctx context.Context, problem error) (page.View, error) {
			if problem != nil && !page.IsRefused(problem) { // it was sent, so that the state may be another
				if now, err := read(ctx, call); err == nil {
					of = now
				}
			}
			return page.View{Title: cmp.Or(act.Title, act.Button) + " " + of.Heading(), Body: body, Data: form[T]{act, of}}, nil
		}
		return page.ServeForm(ctx, call, page.Path(kind, of.id()), draw, act.On(call, of.id(), of.Confirmation()))
	}
}

// edit changes the window or the name. The API leaves a value that is the same as it was.
func edit(ctx context.Context, call page.Call, id, reason string) error {
	name := strings.TrimSpace(call.PostFormValue("name"))
	window, err := strconv.Atoi(strings.TrimSpace(call.PostFormValue("maxInFlight")))
	switch {
	case err != nil || window < 1 || window > 10_000:
		return page.Refuse("maxInFlight", "The window must be a whole number from 1 to 10,000.")
	case utf8.RuneCountInString(name) > 100:
		return page.Refuse("name", "The name must have at most 100 characters.")
	}
	_, err = call.Admin.UpdateSubmitter(ctx, id, client.SubmitterUpdate{MaxInFlight: &window, Name: &name}, reason)
	return err
}

// PolicyText is the present policy as the form shows it.
func (s submitter) PolicyText() (string, error) {
	if s.Policy == nil {
		return "{}", nil
	}
	text, err := json.MarshalIndent(s.Policy, "", "  ")
	return string(text), err
}

// setPolicy replaces the policy. It reads that of the form as strictly as the API does.
func setPolicy(ctx context.Context, call page.Call, id, reason string) error {
	text := call.PostFormValue("policy")
	if strings.TrimSpace(text) == "" {
		return page.Refuse("policy", "The policy is empty. Write {} for a policy without limits.")
	}
	if syntax, ok := errors.AsType[*json.SyntaxError](json.Unmarshal([]byte(text), new(any))); ok {
		line := 1 + strings.Count(text[:syntax.Offset], "\n")
		return page.Refuse("policy", fmt.Sprintf("The policy is not JSON: line %d: %v.", line, syntax))
	}
	policy, err := web.DecodeText[client.Policy]([]byte(text))
	if wrong, ok := errors.AsType[*web.Problem](err); ok {
		return page.Refuse("policy", strings.TrimPrefix(wrong.Field+": ", ": ")+wrong.Detail+".")
	}
	if _, unsent := client.ParsePolicy([]byte(text)); err == nil && unsent != nil {
		return page.Refuse("policy", "The policy has an empty member (0, \"\", [] or {}). Leave out what is no limit.")
	}
	if err == nil {
		_, err = call.Admin.SetPolicy(ctx, id, policy, reason)
	}
	return err
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

// option is an action of the API's decide.
type option struct {
	Value, Name, Effect string
}

const placeholderAction = "placeholder"

// Options are the actions of the act decide.
func (transaction) Options() []option {
	return []option{
		{"rebroadcast", "Send again", "The same bytes go to the nodes again. Nothing is signed."},
		{"replace", "Replace with higher fees", "A new version with the same nonce and higher fees is signed and sent. At most one of the versions is mined."},
		{"wait", "Wait", "Records that you looked. Nothing is sent."},
		{placeholderAction, "Give it up", "A placeholder transaction with the same nonce competes with it. If the placeholder is mined, the call is never carried out. This cannot be undone."},
	}
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
