package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost/shared/client"
)

// checkup is one line of the doctor.
type checkup struct {
	Check   string `json:"check"`
	OK      bool   `json:"ok"`
	Detail  string `json:"detail"`
	ToDo    string `json:"toDo,omitempty"`
	Runbook string `json:"runbook,omitempty"`
}

// doctor checks a deployment.
type doctor struct {
	*app
	problems int
	failed   error // of the output
}

func (a *app) doctorCommand() *cobra.Command {
	c := a.command("doctor", "Check the deployment: one line for each part, and what to do (operators)", nil, func(q call) error {
		d := &doctor{app: a}
		err := d.examine(q.ctx)
		return cmp.Or(errors.Join(err, d.failed), endIf(d.problems > 0, exitFailed, "lines with a PROBLEM: %d", d.problems))
	})
	c.Long = `Doctor checks in this order: the API, the identity, the clock, the settings, the sweep, the nodes of each
chain, and what needs a person: the database and its identity, accounts, queues, money, webhooks, approvals. An operator's or
a viewer's token is enough; it changes nothing. The exit status is 1 if there is a problem.`
	return c
}

// examine makes the checks. It stops where a further one would only repeat the problem. The error is one of the
// environment.
func (d *doctor) examine(ctx context.Context) error {
	api, err := d.client(operator)
	if err != nil {
		return err
	}
	if _, err := d.public(ctx, "/errors/NOT_FOUND"); err != nil { // a page without a token: health is for load balancers alone
		d.tell(checkup{Check: "api", Detail: fmt.Sprintf("no answer: %v", err), Runbook: "docs/runbooks/unreachable.md",
			ToDo: "see whether the deployment runs, and compare its URL with FENCEPOST_API or --api"})
		return nil
	}
	d.tell(checkup{Check: "api", OK: true, Detail: "it answers"})
	overview, err := api.GetOverview(ctx)
	if err != nil {
		d.noAnswer(ctx, err)
		return nil
	}
	d.tell(checkup{Check: "identity", OK: true, Detail: "the operator's token is accepted"})
	err = d.identity(ctx)
	d.tell(clock(overview))
	d.tell(settings(overview))
	d.tell(sweep(overview))
	d.nodes(ctx, api)
	d.attention(ctx, api, overview)
	return err
}

// tell prints the line of a check.
func (d *doctor) tell(c checkup) {
	if !c.OK {
		d.problems++
	}
	if d.json {
		d.failed = errors.Join(d.failed, printJSON(d.out, c))
		return
	}
	verdict := "ok"
	if !c.OK {
		verdict = "PROBLEM"
	}
	text := c.Detail
	if c.ToDo != "" {
		text += "; do: " + c.ToDo
	}
	if c.Runbook != "" {
		text += " (" + c.Runbook + ")"
	}
	_, err := fmt.Fprintf(d.out, "%-8s %-10s %s\n", verdict, c.Check, clean(text))
	d.failed = errors.Join(d.failed, err)
}

// refused tells that a call of a check failed.
func (d *doctor) refused(ctx context.Context, check string, err error) {
	f := d.classify(ctx, err)
	d.tell(checkup{Check: check, Detail: f.Error, ToDo: cmp.Or(f.ToDo, "give a token as docs/cli.md says under Sign in")})
}

// noAnswer tells why a call failed that needs a token and the database. A refusal, and an error before the call, are
// about the token.
func (d *doctor) noAnswer(ctx context.Context, err error) {
	p := new(client.Problem)
	errors.As(err, &p)
	if !errors.Is(err, client.ErrUnknown) && (p.Status == 0 || p.Status == http.StatusUnauthorized || p.Status == http.StatusForbidden) {
		d.refused(ctx, "identity", err)
		return
	}
	d.tell(checkup{Check: "database", Detail: d.classify(ctx, err).Error, ToDo: "see whether the database answers, and the service's log", Runbook: "docs/runbooks/database.md"})
}

// identity checks the caller's token, if there is one beside the operator's. The transaction that it asks for never exists.
func (d *doctor) identity(ctx context.Context) error {
	if d.env("FENCEPOST_TOKEN") == "" && d.env("FENCEPOST_TOKEN_FILE") == "" {
		return nil
	}
	api, err := d.client(caller)
	if err != nil {
		return err
	}
	const none = "00000000-0000-0000-0000-000000000000"
	if _, err := api.Tx(ctx, none); err != nil && client.CodeOf(err) != "NOT_FOUND" {
		d.noAnswer(ctx, fmt.Errorf("the caller's token: %w", err))
		return nil
	}
	d.tell(checkup{Check: "identity", OK: true, Detail: "the caller's token is accepted"})
	return nil
}

// clock compares the database's clock with that of this machine.
func clock(o client.Overview) checkup {
	const most = 30 * time.Second
	apart := time.Since(o.At).Abs()
	if apart <= most {
		return checkup{Check: "clock", OK: true, Detail: fmt.Sprintf("the database's and this machine's are within %s", most)}
	}
	return checkup{Check: "clock", Detail: fmt.Sprintf("the database's and this machine's differ by %s", apart.Round(time.Second)), ToDo: "set this machine's clock: tokens are valid by time"}
}

// settings lists those that differ. It finds no problem: a process with a wrong setting does not start.
func settings(o client.Overview) checkup {
	names := make([]string, len(o.Settings))
	for i, s := range o.Settings {
		names[i] = s.Name
	}
	detail := fmt.Sprintf("version %s; %d differ from their defaults", o.Build.Version, len(names))
	if len(names) > 0 {
		detail += ": " + strings.Join(names, ", ")
	}
	return checkup{Check: "settings", OK: true, Detail: detail}
}

// sweep checks that the sweep runs, which counts each minute.
func sweep(o client.Overview) checkup {
	const most = 5 * time.Minute
	c := checkup{Check: "sweep", ToDo: "see whether Cloud Scheduler calls it; after a first start wait for two minutes", Runbook: "docs/runbooks/sweep-missed.md"}
	switch {
	case o.RatesUpTo == nil:
		c.Detail = "it has counted no minute in the last hour"
	case o.At.Sub(*o.RatesUpTo) > most:
		c.Detail = "it has counted no minute since " + cell(*o.RatesUpTo)
	default:
		return checkup{Check: "sweep", OK: true, Detail: "it has counted the minutes to " + cell(*o.RatesUpTo)}
	}
	return c
}

// nodes checks each chain: enough nodes answer, and none is left behind.
func (d *doctor) nodes(ctx context.Context, api *client.Client) {
	chains, err := api.ListChains(ctx)
	if err != nil {
		d.refused(ctx, "nodes", err)
	}
	for _, c := range chains {
		d.tell(chainCheck(c))
		for _, n := range c.Nodes {
			text := n.Error
			if n.Excluded != "" {
				text = "not used: " + n.Excluded
			}
			if text != "" {
				d.tell(checkup{Check: "nodes", Detail: fmt.Sprintf("chain %d, node %s: %s", c.ChainID, n.Name, text),
					ToDo: "check the node, or replace it in rpc.urls", Runbook: "docs/runbooks/node-excluded.md"})
			}
		}
	}
}

func chainCheck(c client.Chain) checkup {
	answer := 0
	var head uint64
	for _, n := range c.Nodes {
		if n.Head != nil {
			answer++
			head = max(head, *n.Head)
		}
	}
	detail := fmt.Sprintf("chain %d: %d of %d nodes answer, %d must agree, block %d", c.ChainID, answer, len(c.Nodes), c.Quorum, head)
	if answer < c.Quorum {
		return checkup{Check: "nodes", Detail: detail, ToDo: "bring nodes back, or add some to rpc.urls", Runbook: "docs/runbooks/chain-unread.md"}
	}
	return checkup{Check: "nodes", OK: true, Detail: detail}
}

// others is the check of items whose kind this program does not know: the deployment is newer.
const others = "others"

// concerns are the checks of what needs a person, in their order.
var concerns = []string{"database", "accounts", "queues", "money", "webhooks", "approvals", others}

// concernOf is the check of a kind of item.
var concernOf = map[string]string{
	"DATABASE": "database", "MOVE": "database",
	"PROTECT": "accounts",
	"STUCK":   "queues", "BLOCKED": "queues", "FOREIGN": "queues", "HELD": "queues",
	"HALT": "money", "FINDING": "money", "PAYOUT": "money", "TRANSFER": "money", "REFUND": "money", "ACCOUNT": "money",
	"ENDPOINT": "webhooks", "PAUSED": "webhooks",
	"PROPOSAL": "approvals",
}

// attention tells what needs a person.
func (d *doctor) attention(ctx context.Context, api *client.Client, o client.Overview) {
	const most = 50                              // lines of one check
	items := map[string][]client.AttentionItem{} // overdue, by their check
	waiting := map[string]int{}                  // not overdue
	for one, err := range api.ListAttention(ctx) {
		if err != nil {
			d.refused(ctx, "attention", err)
			return
		}
		if check := cmp.Or(concernOf[one.Kind], others); one.Overdue {
			items[check] = append(items[check], one)
		} else {
			waiting[check]++
		}
	}
	for _, check := range concerns {
		for _, one := range items[check][:min(most, len(items[check]))] {
			d.tell(checkup{Check: check, ToDo: one.Action, Runbook: one.Runbook,
				Detail: fmt.Sprintf("%s since %s: %s (%s)", one.Kind, cell(one.Since), one.Why, subjectText(one.Subject))})
		}
		if more := len(items[check]) - most; more > 0 {
			d.tell(checkup{Check: check, Detail: fmt.Sprintf("%d more like these", more), ToDo: "see all in the console, or by GET /admin/v1/attention"})
		}
		if len(items[check]) == 0 && (check != others || waiting[check] > 0) {
			d.tell(checkup{Check: check, OK: true, Detail: concernText(check, waiting[check], o)})
		}
	}
}

// concernText describes a concern in which nothing is overdue.
func concernText(check string, waiting int, o client.Overview) string {
	text := "nothing needs a person"
	if waiting > 0 {
		text = fmt.Sprintf("%d wait, none for too long", waiting)
	}
	if check == "database" {
		return "it answers; " + text
	}
	if check != "queues" {
		return text
	}
	for _, s := range o.States {
		text += fmt.Sprintf(", %s %d", s.State, s.Count)
	}
	if o.Oldest != nil {
		text += ", the oldest since " + cell(o.Oldest.CreatedAt)
	}
	return text
}

// subjectText names what an item is about.
func subjectText(s client.AttentionSubject) string {
	var parts []string
	for pair := range slices.Chunk([]any{"submitter", s.Submitter, "txId", s.TxID, "req_id", s.ReqID, "incident", s.Incident, "halt", s.Halt,
		"finding", s.Finding, "account", s.Account, "act", s.ActID, "endpoint", s.Endpoint, "proposal", s.ProposalID}, 2) {
		if text := cell(pair[1]); text != "" && text != "0" {
			parts = append(parts, cell(pair[0])+" "+text)
		}
	}
	return strings.Join(parts, ", ")
}
