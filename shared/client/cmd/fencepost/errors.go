package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/fencepost/fencepost/shared/client"
)

// The exit codes.
const (
	exitOK      = 0
	exitFailed  = 1 // it ended, and not as wanted: FAILED, ROLLED_BACK, EXECUTED
	exitUsage   = 2 // the command line or the environment is wrong; nothing was sent
	exitUnknown = 3 // the outcome is not known yet
	exitRefused = 4 // this call was refused, which says nothing about earlier calls
)

// endError is an error that decides the exit code: a wrong command line, or an answer that is no error of the call.
type endError struct {
	code int
	text string
}

// Error implements [error].
func (e *endError) Error() string { return e.text }

func endf(code int, format string, values ...any) error {
	return &endError{code, fmt.Sprintf(format, values...)}
}

func usagef(format string, values ...any) error { return endf(exitUsage, format, values...) }

// endIf is [endf] where the condition holds; else nil. A command gives it to [cmp.Or] behind the error of its call and its output.
func endIf(holds bool, code int, format string, values ...any) error {
	if !holds {
		return nil
	}
	return endf(code, format, values...)
}

// someRemain is the end of an act that does a part at a time.
func someRemain(n int) error {
	return endIf(n != 0, exitUnknown, "%d remain: run the same command again", n)
}

// failure is an error as it is printed with --json.
type failure struct {
	Outcome string          `json:"outcome"` // failed, refused, usage, unknown or proposed
	Error   string          `json:"error"`
	Code    string          `json:"code,omitempty"`
	Field   string          `json:"field,omitempty"`
	ToDo    string          `json:"toDo,omitempty"`
	Problem json.RawMessage `json:"problem,omitempty"` // as the API answered
	exit    int
}

// report prints the error of a command, and returns the exit code.
func (a *app) report(ctx context.Context, err error) int {
	if err == nil {
		return exitOK
	}
	f := a.classify(ctx, err)
	if errors.Is(err, syscall.EPIPE) && !a.answers.acted {
		return f.exit // such as head, which has all that it wants
	}
	if a.json {
		_ = printJSON(a.err, f)
		return f.exit
	}
	fmt.Fprintf(a.err, "fencepost: %s: %s\n", f.Outcome, clean(f.Error))
	if f.ToDo != "" {
		fmt.Fprintf(a.err, "  What to do: %s\n", clean(f.ToDo))
	}
	return f.exit
}

// afterUnknown returns what to do where the outcome is not known.
func (a *app) afterUnknown() string {
	switch {
	case a.keyed:
		return "read the state, or repeat the command with the same --request-id, --cid or --id, never with another: a repeat has no second effect"
	case a.answers.acted:
		return "read the state before you repeat the command: it may have been carried out"
	}
	return "repeat the command"
}

// classify decides what an error says about the outcome. Exit code 1 is for an end alone: a script that reads it may send
// another request.
func (a *app) classify(ctx context.Context, err error) failure {
	end, _ := errors.AsType[*endError](err)
	problem, _ := errors.AsType[*client.Problem](err)
	usage, unknown := end != nil && end.code == exitUsage, errors.Is(err, client.ErrUnknown)
	switch proposal := client.ProposedBy(err); {
	case end != nil && end.code == exitUnknown:
		return failure{Outcome: "unknown", Error: end.text, exit: exitUnknown}
	case end != nil && !usage:
		return failure{Outcome: "failed", Error: end.text, exit: end.code}
	case proposal != nil:
		return failure{Outcome: "proposed", Error: err.Error(), exit: exitUnknown,
			ToDo: "another operator runs: fencepost proposal approve " + proposal.ProposalID + " --reason TEXT"}
	case !unknown && client.CodeOf(err) != "":
		return a.refusal(ctx, problem)
	case !unknown && (!a.running || !a.answers.sent && (usage || ctx.Err() == nil)): // also a file without a token
		return failure{Outcome: "usage", Error: err.Error(), exit: exitUsage}
	}
	return failure{Outcome: "unknown", Error: err.Error(), exit: exitUnknown, ToDo: a.afterUnknown(), Code: client.CodeOf(err)}
}

// refusal describes the answer to this call. FAILED is also the end of the transfer that it has, and REFUSED that of a
// deposit or withdrawal, for ever. REQUEST_RECORDED means that the chain has the request already, so that it is no reason to send it under
// another key.
func (a *app) refusal(ctx context.Context, problem *client.Problem) failure {
	f := failure{Outcome: "refused", Code: problem.Code, Field: problem.Field, exit: exitRefused}
	if json.Valid(a.answers.body) { // the problem, since it came last
		f.Problem = a.answers.body
	}
	switch {
	case problem.Code == "REQUEST_RECORDED":
		f.Outcome, f.exit = "unknown", exitUnknown
	case a.keyed && (problem.State == client.TransferFailed || problem.State == client.TransferRolledBack || problem.State == "REFUSED"):
		f.Outcome, f.exit = "failed", exitFailed
	}
	f.Error = fmt.Sprintf("%s (%d)", problem.Code, problem.Status)
	for _, part := range []struct{ name, value string }{{", field ", problem.Field}, {": ", cmp.Or(problem.Detail, problem.Title)}} {
		if part.value != "" {
			f.Error += part.name + part.value
		}
	}
	f.ToDo = a.explain(ctx, problem.Code)
	return f
}

var codeForm = regexp.MustCompile(`^[A-Z][A-Z0-9_]{0,63}$`)

// explain returns what a caller does about an error code, and whether the same request may be sent again. The
// deployment has a page for each code, which needs no token.
func (a *app) explain(ctx context.Context, code string) string {
	const page = "see docs/errors.md"
	if !codeForm.MatchString(code) {
		return page
	}
	text, err := a.public(ctx, "/errors/"+code)
	if err != nil {
		return page
	}
	var parts []string
	for line := range strings.Lines(text) {
		if todo, ok := strings.CutPrefix(line, "What to do: "); ok {
			parts = append(parts, strings.TrimSpace(todo))
		}
		if again, ok := strings.CutPrefix(line, "May the same request be sent again? "); ok {
			parts = append(parts, "Send the same again? "+strings.TrimSpace(again))
		}
	}
	return cmp.Or(strings.Join(parts, " "), page)
}

// public reads a page that needs no token, of at most 64 KiB.
func (a *app) public(ctx context.Context, path string) (string, error) {
	base, err := a.base()
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, base+path, nil)
	if err != nil {
		return "", err
	}
	q.Header.Set("Accept", "text/plain, application/json")
	resp, err := http.DefaultClient.Do(q)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("GET %s: answer %d", path, resp.StatusCode)
	}
	return string(text), err
}
