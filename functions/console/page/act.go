package page

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
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

// Act is an act of operators on things of one kind.
type Act struct {
	Name    string // the last part of its path
	Button  string
	Title   string // of its form, before the name of the thing; "": Button
	Meaning string // what it does, and what cannot be undone
	Danger  bool   // it cannot be undone: its form is confirmed by a text
	Do      func(ctx context.Context, call Call, id, reason string) error
}

// On returns the act on the thing with that id, for [ServeForm]. An act that cannot be undone wants the text confirm.
func (a Act) On(call Call, id, confirm string) func(ctx context.Context, reason string) error {
	return func(ctx context.Context, reason string) error {
		if a.Danger {
			if err := Confirmed(call, confirm); err != nil {
				return err
			}
		}
		return a.Do(ctx, call, id, reason)
	}
}

// ActOfPath returns the act whose name is the parameter {act} of the path. otherwise is the text of a page without it.
func ActOfPath(call Call, acts []Act, otherwise string) (Act, error) {
	i := slices.IndexFunc(acts, func(a Act) bool { return a.Name == call.PathValue("act") })
	if i < 0 {
		return Act{}, NotFound(otherwise)
	}
	return acts[i], nil
}

// NotFound is the error at an address without a page. The detail says where to go.
func NotFound(detail string) error {
	return &client.Problem{Status: http.StatusNotFound, Code: "NOT_FOUND", Title: "No such page", Detail: detail}
}

// Draw draws a form. problem is why its act was refused; nil: it was not.
type Draw func(ctx context.Context, problem error) (View, error)

// ServeForm answers both methods of an act's path. GET draws the form. POST carries the act out with the field
// "reason", and leads to the page at to. If two operators must agree, it leads to the proposal. A refusal draws the
// form again: form gets the error to show other evidence, and the template page/act shows it with the entered values.
func ServeForm(ctx context.Context, call Call, to string, form Draw, do func(ctx context.Context, reason string) error) (View, error) {
	var problem error
	if call.Method == http.MethodPost {
		problem = carryOut(ctx, call, do)
		if p := client.ProposedBy(problem); p != nil {
			return View{SeeOther: Path("proposal", p.ProposalID)}, nil
		}
		if problem == nil {
			return View{SeeOther: to}, nil
		}
	}
	ctx, cancel := Redraw(ctx, call)
	defer cancel()
	v, err := form(ctx, problem)
	if err != nil { // what became of the act is more than that its form cannot be drawn
		return v, cmp.Or(problem, err)
	}
	v.Problem = problem
	return v, nil
}

func carryOut(ctx context.Context, call Call, do func(ctx context.Context, reason string) error) error {
	reason := strings.TrimSpace(call.PostFormValue("reason"))
	if reason == "" || len(reason) > maxReason {
		return Refuse("reason", fmt.Sprintf("Write why you do this, in at most %d bytes. The reason is kept with your name.", maxReason))
	}
	return do(ctx, reason)
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

// Unknown is the way on after an act without a definite answer. It comes before every text of a code: a refusal of a
// repetition, such as TOO_LATE, can be the effect of the first attempt.
const Unknown = "It is not known whether it was carried out. Read the state before you do it again."

// Ways are texts that say how to go on after an act was refused.
type Ways struct {
	Fields map[string]string // by the field that the refusal names
	Codes  map[string]string // by the refusal's code, where no field has a text
	Causes map[string]string // by the code of an act without a definite answer, after [Unknown]
}

// After returns the way on after the error; "": its own text says enough, or there was none.
func (w Ways) After(err error) string {
	code := client.CodeOf(err)
	if errors.Is(err, client.ErrUnknown) {
		return strings.TrimSpace(Unknown + " " + w.Causes[code])
	}
	return cmp.Or(w.Fields[RefusalOf(err).Field], w.Codes[code])
}

// RefusalOf is the refusal in the error. If there is none its members are empty.
func RefusalOf(err error) client.Problem {
	if p, ok := errors.AsType[*client.Problem](err); ok {
		return *p
	}
	return client.Problem{}
}

// StatusOf is the HTTP status of a page that shows the error; 0: there is none.
func StatusOf(err error) int {
	if err == nil {
		return 0
	}
	return problemOf(err).Status
}
