package queues

import (
	"context"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/fencepost/fencepost/functions/console/page"
	"github.com/fencepost/fencepost/shared/client"
)

// submitterAct is the form of an act on a submitter, with its state as evidence.
type submitterAct struct {
	submitter
	Verb    string // on the button
	Effect  string // what the act does
	Danger  bool   // it cannot be undone
	Confirm string // the text to type; "": none
	Edit    bool   // the form has the window and the name
}

// readSubmitter reads the submitter of the path for a form.
func readSubmitter(ctx context.Context, call page.Call) (client.Submitter, error) {
	ctx, cancel := page.Redraw(ctx, call)
	defer cancel()
	return call.Admin.Submitter(ctx, call.PathValue("submitter"))
}

// actOnSubmitter reads the submitter, draws the form, and does the act at POST. It makes 1 call, and 1 for the act. After
// a refusal of the API it reads the submitter again.
func actOnSubmitter(ctx context.Context, call page.Call, form submitterAct, do func(ctx context.Context, id, reason string) error) (page.View, error) {
	found, err := readSubmitter(ctx, call)
	if err != nil {
		return page.View{}, err
	}
	form.Submitter = found
	if form.Danger {
		form.Confirm = form.Heading()
	}
	return page.Act(call, func(problem error) page.View {
		if wasSent(problem) {
			if now, err := readSubmitter(ctx, call); err == nil {
				form.Submitter = now
			}
		}
		return page.View{Title: form.Verb + " " + form.Heading(), Body: "queues/submitter-act", Data: form}
	}, func(ctx context.Context, reason string) (string, error) {
		if form.Danger {
			if err := page.Confirmed(call, form.Confirm); err != nil {
				return "", err
			}
		}
		return page.Path("submitter", found.Submitter), do(ctx, found.Submitter, reason)
	})
}

// wasSent reports whether the problem is the API's, so that the state may be another than the form has shown.
func wasSent(problem error) bool { return problem != nil && !page.IsRefused(problem) }

// suspend makes the submitter accept no more intents. It makes 1 call, and 1 for the act.
func suspend(ctx context.Context, call page.Call) (page.View, error) {
	form := submitterAct{Verb: "Suspend", Effect: "It accepts no more intents and gives no more nonces. Transactions that have a nonce go on. Resume ends it."}
	return actOnSubmitter(ctx, call, form, func(ctx context.Context, id, reason string) error {
		_, err := call.Admin.SuspendSubmitter(ctx, id, reason)
		return err
	})
}

// resume ends a suspension. It makes 1 call, and 1 for the act.
func resume(ctx context.Context, call page.Call) (page.View, error) {
	form := submitterAct{Verb: "Resume", Effect: "It accepts intents and gives nonces again. Intents in its queue go on at once."}
	return actOnSubmitter(ctx, call, form, func(ctx context.Context, id, reason string) error {
		_, err := call.Admin.ResumeSubmitter(ctx, id, reason)
		return err
	})
}

// retire ends a submitter for ever. It makes 1 call, and 1 for the act.
func retire(ctx context.Context, call page.Call) (page.View, error) {
	form := submitterAct{Verb: "Retire", Danger: true, Effect: "It takes no intent and signs nothing any more, and the account can never be registered again. It is refused while there is open work."}
	return actOnSubmitter(ctx, call, form, func(ctx context.Context, id, reason string) error {
		_, err := call.Admin.RetireSubmitter(ctx, id, reason)
		return err
	})
}

// edit changes the window or the name. It makes 1 call, and 1 for the act.
func edit(ctx context.Context, call page.Call) (page.View, error) {
	form := submitterAct{Verb: "Edit", Edit: true, Effect: "The window is how many transactions may be open at once. A narrower window stops new nonces only: open transactions go on."}
	return actOnSubmitter(ctx, call, form, func(ctx context.Context, id, reason string) error {
		change, err := updateOf(call)
		if err == nil {
			_, err = call.Admin.UpdateSubmitter(ctx, id, change, reason)
		}
		return err
	})
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

// txAct is the form of an act on a transaction, with the transaction's state and past as evidence.
type txAct struct {
	transaction
	Verb    string
	Effect  string
	Options []option // actions to choose from; none: there is one
	Chosen  string
	Danger  bool
	Confirm string // the text to type
}

// option is an action of the API's decide.
type option struct {
	Value, Name, Effect string
}

const placeholderAction = "placeholder"

var decideOptions = []option{
	{"rebroadcast", "Send again", "The same bytes go to the nodes again. Nothing is signed."},
	{"replace", "Replace with higher fees", "A new version with the same nonce and higher fees is signed and sent. At most one of the versions is mined."},
	{"wait", "Wait", "Records that you looked. Nothing is sent."},
	{placeholderAction, "Give it up", "A placeholder transaction with the same nonce competes with it. If the placeholder is mined, the call is never carried out. This cannot be undone."},
}

// confirmed is what an operator types to confirm an act on a transaction: the end of its txId.
func confirmed(txID string) string { return txID[max(0, len(txID)-6):] }

// read reads the transaction for the form.
func (form *txAct) read(ctx context.Context, call page.Call) (err error) {
	ctx, cancel := page.Redraw(ctx, call)
	defer cancel()
	form.transaction, err = readTx(ctx, call)
	form.Chosen, form.Confirm = call.PostFormValue("action"), confirmed(form.TxID)
	return err
}

func (form *txAct) view() page.View {
	return page.View{Title: form.Verb + " " + form.Heading(), Body: "queues/tx-act", Data: form}
}

// actOnTx reads the transaction, draws the form, and does the act at POST. It makes 5 calls, and 1 for the act. After a
// refusal of the API it makes the 5 again.
func actOnTx(ctx context.Context, call page.Call, form *txAct, do func(ctx context.Context, id, reason string) error) (page.View, error) {
	if err := form.read(ctx, call); err != nil {
		return page.View{}, err
	}
	draw := func(problem error) page.View {
		if now := *form; wasSent(problem) && now.read(ctx, call) == nil {
			return now.view()
		}
		return form.view()
	}
	return page.Act(call, draw, func(ctx context.Context, reason string) (string, error) {
		return page.Path("tx", form.TxID), do(ctx, form.TxID, reason)
	})
}

// decide requests an action on a transaction with a nonce. It makes 5 calls, and 1 for the act.
func decide(ctx context.Context, call page.Call) (page.View, error) {
	form := &txAct{Verb: "Decide about", Options: decideOptions, Effect: "The next lease session of the submitter carries the action out, unless a version has a receipt by then."}
	return actOnTx(ctx, call, form, func(ctx context.Context, id, reason string) error {
		action := call.PostFormValue("action")
		if action == "" {
			return page.Refuse("action", "Choose one of the actions.")
		}
		if action == placeholderAction {
			if err := page.Confirmed(call, form.Confirm); err != nil {
				return err
			}
		}
		_, err := call.Admin.DecideTx(ctx, id, action, reason)
		return err
	})
}

// cancel cancels an intent, if that is still possible. It makes 5 calls, and 1 for the act.
func cancel(ctx context.Context, call page.Call) (page.View, error) {
	form := &txAct{Verb: "Cancel", Danger: true, Effect: "An intent in the queue ends at once. For one with a nonce, a placeholder transaction competes, and the one that is final decides. This cannot be undone, and the requestId can never be used again."}
	return actOnTx(ctx, call, form, func(ctx context.Context, id, reason string) error {
		if err := page.Confirmed(call, form.Confirm); err != nil {
			return err
		}
		_, err := call.Admin.CancelTxAsOperator(ctx, id, reason)
		return err
	})
}

// proceed lets a held intent go on. It makes 5 calls, and 1 for the act.
func proceed(ctx context.Context, call page.Call) (page.View, error) {
	form := &txAct{Verb: "Let go on", Effect: "The held intent goes back to its old place in the queue, gets a nonce and is carried out."}
	return actOnTx(ctx, call, form, func(ctx context.Context, id, reason string) error {
		_, err := call.Admin.Proceed(ctx, id, reason)
		return err
	})
}
