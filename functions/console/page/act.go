package page

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/fencepost/fencepost/shared/client"
)

// maxReason is the longest reason of an act, in bytes.
const maxReason = 1000

// redrawWithin bounds the reads of a form that is drawn again.
const redrawWithin = 10 * time.Second

// Redraw is the context of a form's reads. After an act, which may have used its whole time, they have their own.
func Redraw(ctx context.Context, call Call) (context.Context, context.CancelFunc) {
	if call.Method != http.MethodPost {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(context.WithoutCancel(ctx), redrawWithin)
}

// Act answers both methods of an act's path. GET draws the form. POST carries the act out with the field
// "reason", and leads to the page that do returns. If two operators must agree, it leads to the proposal. A
// refusal draws the form again: form gets the error to show other evidence, and the template page/act shows
// it with the entered values.
func Act(call Call, form func(problem error) View, do func(ctx context.Context, reason string) (seeOther string, err error)) (View, error) {
	if call.Method != http.MethodPost {
		return form(nil), nil
	}
	to, err := carryOut(call, do)
	if p := client.ProposedBy(err); p != nil {
		return View{SeeOther: Path("proposal", p.ProposalID)}, nil
	}
	if err != nil {
		v := form(err)
		v.Problem, v.Status = err, problemOf(err).Status
		return v, nil
	}
	return View{SeeOther: to}, nil
}

func carryOut(call Call, do func(ctx context.Context, reason string) (string, error)) (string, error) {
	reason := strings.TrimSpace(call.PostFormValue("reason"))
	if reason == "" || len(reason) > maxReason {
		return "", Refuse("reason", fmt.Sprintf("Write why you do this, in at most %d bytes. The reason is kept with your name.", maxReason))
	}
	return do(call.Context(), reason)
}

// ActOf is an act that needs the id of its subject and a reason alone.
func ActOf[T any](do func(c *client.Client, ctx context.Context, id, reason string) (T, error)) func(ctx context.Context, call Call, id, reason string) error {
	return func(ctx context.Context, call Call, id, reason string) error {
		_, err := do(call.Admin, ctx, id, reason)
		return err
	}
}

const invalidForm = "INVALID_FORM"

// Refuse is the error of a form with a field that is wrong. The detail says what to enter.
func Refuse(field, detail string) error {
	return &client.Problem{Status: http.StatusBadRequest, Title: "The act was not carried out", Code: invalidForm, Field: field, Detail: detail}
}

// IsRefused reports whether the error is of [Refuse], so that nothing was sent.
func IsRefused(err error) bool { return client.CodeOf(err) == invalidForm }

// Confirmation is the text that an operator types to confirm an act: the end of the id of its subject.
func Confirmation(id string) string { return id[max(0, len(id)-6):] }

// Confirmed is nil if the field "confirm", which the template page/confirm draws, has the wanted text.
func Confirmed(call Call, want string) error {
	if strings.TrimSpace(call.PostFormValue("confirm")) == want {
		return nil
	}
	return Refuse("confirm", "Type "+want+" to confirm: the act cannot be undone.")
}
