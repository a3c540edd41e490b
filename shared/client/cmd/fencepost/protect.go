package main

import (
	"cmp"
	"encoding/csv"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost/shared/client"
)

func (a *app) protectGroup() *cobra.Command {
	var nonce uint64
	var txID string
	return group("protect", "Look into PROTECT incidents and end them (operators)",
		a.list(operator, "list", "List the accounts in PROTECT", nil, func(q call) error {
			return printList(a, q.api.ListSubmitters(q.ctx, client.SubmitterQuery{State: "PROTECT"}), "SUBMITTER INCIDENT SINCE NEXT_NONCE QUEUED EVIDENCE", func(s client.Submitter) []any {
				p := cmp.Or(s.Protect, &client.ProtectIncident{})
				return []any{s.Submitter, p.Incident, p.Since, s.NextNonce, s.Queued, p.Evidence}
			})
		}),
		show(a, operator, "show SUBMITTER", "Show the open incident of an account with its evidence", (*client.Client).Submitter, a.printIncident),
		a.protectLost(), a.protectRelease(),
		a.list(operator, "incidents SUBMITTER", "List the incidents of an account, the newest first", nil, func(q call) error {
			return printList(a, q.api.ListIncidents(q.ctx, q.args[0]), "INCIDENT OPENED CLOSED BY MODE REASON EVIDENCE",
				func(i client.PastIncident) []any {
					return []any{i.Incident, i.OpenedAt, i.ClosedAt, i.ClosedBy, i.Mode, i.Reason, i.Evidence}
				})
		}),
		a.list(operator, "foreign SUBMITTER", "List the foreign transactions of an account whose requests are unknown", nil, func(q call) error {
			return printList(a, q.api.ListForeign(q.ctx, q.args[0], 0), "NONCE TXHASH TO WEI SUCCEEDED HELD_TXID HELD_REQUESTID SINCE",
				func(f client.OpenForeign) []any {
					return []any{f.Nonce, f.TxHash, f.To, f.ValueWei, f.Succeeded, f.TxID, f.RequestID, f.Since}
				})
		}),
		a.act("match SUBMITTER", "State that a foreign transaction was the request of a held intent, which ends", []option{
			required(&nonce, "nonce", "the foreign transaction's `nonce`"),
			required(&txID, "tx", "the held intent's `txId`"),
		}, func(q call) error {
			r, err := q.api.MatchForeign(q.ctx, q.args[0], nonce, txID, a.why)
			return a.answer(err, "txId", r.TxID, "state", r.State, "subState", r.SubState)
		}),
		a.protectWriteOff(),
		a.act("accept-database", "Accept a restored database: see docs/runbooks/restore.md", nil, func(q call) error {
			return a.answer(q.api.AcceptDatabase(q.ctx, a.why), "database", "accepted", "accounts", "each stays in PROTECT until it is released")
		}),
		a.protectUntouched())
}

func (a *app) printIncident(s client.Submitter, err error) error {
	if s.Protect == nil {
		return a.answer(err, "submitter", s.Submitter, "protect", "no incident is open")
	}
	pairs := []any{"submitter", s.Submitter, "incident", s.Protect.Incident, "since", s.Protect.Since, "evidence", s.Protect.Evidence, "next nonce", s.NextNonce, "queued", s.Queued}
	if n := s.Chain; n != nil {
		pairs = append(pairs, "chain's count", n.Latest, "pending", n.Pending, "finalized", n.Finalized)
	}
	return a.answer(err, append(pairs, "runbook", "docs/runbooks/protect.md", "next", "fencepost protect lost "+s.Submitter)...)
}

func (a *app) protectLost() *cobra.Command {
	var token string
	return a.call(operator, "lost SUBMITTER", "List the nonces that foreign transactions consumed, 20 at a time", []option{
		flag(&token, "page-token", "the `token` of the next page, as the page before has it"),
	}, func(q call) error {
		page, err := q.api.Lost(q.ctx, q.args[0], token)
		pairs := []any{"chain's count", page.ChainCount, "final count", page.FinalCount, "next nonce", page.NextNonce, "unknown calls", page.UnknownCalls}
		for _, n := range page.Nonces {
			pairs = append(pairs, fmt.Sprint("nonce ", n.Nonce), lostText(n))
		}
		return a.answer(err, append(pairs, "next page", page.NextPageToken)...)
	})
}

// lostText describes a lost nonce: the transaction that consumed it, and the requests that want the same.
func lostText(n client.LostNonce) string {
	text := n.Unknown
	if tx := n.ConsumingTx; tx != nil {
		text = fmt.Sprintf("%s to %s value %s", tx.Hash, cmp.Or(tx.To, "a new contract"), tx.Value)
	}
	for _, i := range n.Intents {
		text += fmt.Sprintf("; like request %s (%s)", i.RequestID, i.State)
	}
	for _, id := range n.Payouts {
		text += "; like payout " + id
	}
	return text
}

func (a *app) protectRelease() *cobra.Command {
	var in client.Release
	var count uint64
	var requests, hashes, executed byNonce
	c := a.act("release SUBMITTER", "End the incident of an account, or try it with --dry-run", []option{
		required(&in.Incident, "incident", "the `number` of the incident that you looked at"),
		required(&in.Mode, "mode", "resume: the observation was wrong; resync: the loss is accepted", "resume", "resync"),
		flag(&in.DryRun, "dry-run", "with resync: report what would happen, and change nothing"),
		flag(&count, "count", "with resync: the chain's `count` at its finalized block"),
		flag(&requests, "request", "`NONCE=REQUESTID` that the lost transaction was, or NONCE=none; may be given again"),
		flag(&hashes, "hash", "`NONCE=HASH` of the transaction that consumed it; may be given again"),
		flag(&executed, "executed", "`NONCE=TEXT`: how you know that the request was carried out; may be given again"),
		flag(&in.Others, "others", "matching: each other nonce gets its only match", "matching"),
		flag(&in.Fill, "fill", "how many nonces from --count on placeholders consume"),
	}, func(q call) error {
		in.Reason, in.Count = a.why, given(a, "count", count)
		in.Requests, in.Hashes, in.Executed = requests, hashes, executed
		return a.printRelease(q.api.Release(q.ctx, q.args[0], in))
	})
	c.Long = "Release ends a PROTECT incident. Read docs/runbooks/protect.md first, and try it with --dry-run, which changes nothing."
	c.Example = `  fencepost protect release eip155:1:0x… --incident 3 --mode resume --reason 'the node was behind'
  fencepost protect release eip155:1:0x… --incident 3 --mode resync --count 18 --request 17=order-4711 --reason 'paid by hand' --dry-run`
	return c
}

// byNonce has the values of a flag by nonce. It implements [pflag.Value].
type byNonce map[uint64]string

// String is the default.
func (*byNonce) String() string { return "" }

// Type names the value.
func (*byNonce) Type() string { return "NONCE=VALUE" }

// Set adds NONCE=VALUE, or several of them with commas between. A nonce has one value: of two, one is a mistake.
func (b *byNonce) Set(text string) error {
	pairs := []string{text}
	if strings.Count(text, "=") > 1 {
		var err error
		if pairs, err = csv.NewReader(strings.NewReader(text)).Read(); err != nil {
			return err
		}
	}
	if *b == nil {
		*b = byNonce{}
	}
	for _, pair := range pairs {
		number, value, ok := strings.Cut(pair, "=")
		nonce, err := strconv.ParseUint(number, 10, 64)
		if !ok || err != nil {
			return fmt.Errorf("%s: want a nonce before =", pair)
		}
		if _, twice := (*b)[nonce]; twice {
			return fmt.Errorf("%s: nonce %d is given twice", pair, nonce)
		}
		(*b)[nonce] = value
	}
	return nil
}

func (a *app) printRelease(r client.ReleaseReport, err error) error {
	pairs := []any{"submitter", r.Submitter, "incident", r.Incident, "dry run, nothing was changed", r.DryRun, "next nonce", r.NextNonce}
	for _, nonce := range r.Displaced {
		pairs = append(pairs, fmt.Sprint("nonce ", nonce), "displaced")
	}
	for _, n := range r.Named {
		pairs = append(pairs, fmt.Sprint("nonce ", n.Nonce), fmt.Sprintf("request %s: %s %s", n.RequestID, n.Effect, n.TxHash))
	}
	for _, n := range r.NotOnChain {
		pairs = append(pairs, fmt.Sprint("nonce ", n.Nonce), "not on the chain: "+n.Hash)
	}
	if r.Filling != nil {
		pairs = append(pairs, "placeholders fill", fmt.Sprintf("from %d to below %d", r.Filling.From, r.Filling.Below))
	}
	return a.answer(err, pairs...)
}

func (a *app) protectWriteOff() *cobra.Command {
	var nonce, through uint64
	return a.act("write-off SUBMITTER", "State that foreign transactions were no requests; held intents proceed", []option{
		flag(&nonce, "nonce", "the one with this `nonce`"),
		flag(&through, "through", "all up to this `nonce`, 100 at a time"),
		func(c *cobra.Command) {
			c.MarkFlagsMutuallyExclusive("nonce", "through")
			c.MarkFlagsOneRequired("nonce", "through")
		},
	}, func(q call) error {
		one, all := given(a, "nonce", nonce), given(a, "through", through)
		r, err := q.api.WriteOffForeign(q.ctx, q.args[0], one, all, a.why)
		if err = a.answer(err, "written off", r.WrittenOff, "proceeded", r.Proceeded, "remaining", r.Remaining); err != nil || one != nil || r.WrittenOff == 0 {
			return err // remaining also counts later nonces: the last call writes none off
		}
		return someRemain(r.Remaining)
	})
}

func (a *app) protectUntouched() *cobra.Command {
	var query client.UntouchedQuery
	return a.act("release-untouched", "Release accounts after a planned move, one page at a time", []option{
		flag(&query.PageSize, "page-size", "how many accounts, up to 1000; default: 100"),
		flag(&query.PageToken, "page-token", "the `token` of the next page, as the page before has it"),
	}, func(q call) error {
		query.Reason = a.why
		r, err := q.api.ReleaseUntouched(q.ctx, query)
		pairs := []any{"released", r.Released, "remaining", r.Remaining}
		for _, one := range r.Left {
			pairs = append(pairs, one.Submitter, one.Why)
		}
		next := "release each by fencepost protect release"
		if r.NextPageToken != "" {
			next = "run the same command with --page-token " + r.NextPageToken
		}
		return cmp.Or(a.answer(err, append(pairs, "next page", r.NextPageToken)...),
			endIf(r.Remaining != 0, exitUnknown, "%d accounts are still in PROTECT: %s", r.Remaining, next))
	})
}
