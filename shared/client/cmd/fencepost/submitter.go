package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost/shared/client"
)

func (a *app) submitterGroup() *cobra.Command {
	var listed client.SubmitterQuery
	var window int
	var name, policy, signer, of, through string
	var callers []string
	var succeeds map[string]string
	var from uint64
	return group("submitter", "Manage signing accounts (operators)",
		a.list(operator, "list", "List the accounts", []option{
			flag(&listed.State, "state", "only in this `state`: ACTIVE, SUSPENDED, RETIRED or PROTECT", "ACTIVE", "SUSPENDED", "RETIRED", "PROTECT"),
			flag(&listed.Sort, "sort", "`name`: by name"),
		}, func(q call) error {
			return printList(a, q.api.ListSubmitters(q.ctx, listed), "SUBMITTER NAME STATUS IN_FLIGHT NEXT_NONCE QUEUED HELD WINDOW", func(s client.Submitter) []any {
				return []any{s.Submitter, s.Name, s.Status, s.InFlightState, s.NextNonce, s.Queued, s.Held, s.MaxInFlight}
			})
		}),
		show(a, operator, "get SUBMITTER", "Show an account, and what its chain says of it", (*client.Client).Submitter, a.printSubmitter),
		a.submitterRegister(),
		a.act("change SUBMITTER", "Change the window or the name of an account", []option{
			flag(&window, "window", "how many of its transactions may be open at once"),
			flag(&name, "name", "its name for people; empty: none"),
			func(c *cobra.Command) { c.MarkFlagsOneRequired("window", "name") },
		}, func(q call) error {
			u := client.SubmitterUpdate{MaxInFlight: given(a, "window", window), Name: given(a, "name", name)}
			return a.printSubmitter(q.api.UpdateSubmitter(q.ctx, q.args[0], u, a.why))
		}),
		a.act("set-policy SUBMITTER", "Replace the limits of an account", []option{required(&policy, "policy", "its limits, a JSON `file`; - is stdin")},
			func(q call) error {
				p, err := parseFile(a, policy, client.ParsePolicy)
				if err != nil {
					return err
				}
				return a.printSubmitter(q.api.SetPolicy(q.ctx, q.args[0], p, a.why))
			}),
		a.act("set-callers SUBMITTER", "Replace the callers of an account", []option{
			required(&callers, "caller", "who may post for it, as email:… or sub:…; may be given again"),
			flag(&succeeds, "succeeds", "`NEW=OLD`: a caller of the list, and the former caller whose intents it gets"),
		}, func(q call) error {
			return a.printSubmitter(q.api.SetCallers(q.ctx, q.args[0], callers, succeeds, a.why))
		}),
		a.act("change-signer SUBMITTER", "Change the signer of an account to where its key was moved",
			[]option{required(&signer, "signer", "local, kms:… or remote:…")},
			func(q call) error { return a.printSubmitter(q.api.ChangeSigner(q.ctx, q.args[0], signer, a.why)) }),
		actOn(a, "suspend SUBMITTER", "Accept no more intents of an account", (*client.Client).SuspendSubmitter, a.printSubmitter),
		actOn(a, "resume SUBMITTER", "End the suspension of an account", (*client.Client).ResumeSubmitter, a.printSubmitter),
		actOn(a, "retire SUBMITTER", "Retire an account for ever", (*client.Client).RetireSubmitter, a.printSubmitter),
		a.list(operator, "queue SUBMITTER", "List the intents that wait for a nonce, in their order", nil, func(q call) error {
			return printList(a, q.api.ListQueue(q.ctx, q.args[0]), "POSITION TXID REQUESTID STATE CAUSE SINCE CALLER", func(t client.QueuedTx) []any {
				return []any{position(t.Position, t.PositionMore), t.TxID, t.RequestID, t.State, t.Cause, t.Since, t.Caller}
			})
		}),
		a.act("cancel-queue SUBMITTER", "Cancel queued intents without a nonce; repeat it while some remain",
			[]option{flag(&of, "caller", "only those of this `caller`")},
			func(q call) error {
				r, err := q.api.CancelQueue(q.ctx, q.args[0], of, a.why)
				err = a.answer(err, "cancelled", r.Cancelled, "remaining", r.Remaining, "bound to a nonce", r.Bound,
					"payouts", r.Payouts, "held for foreign transactions", r.Beside)
				return cmp.Or(err, someRemain(r.Remaining))
			}),
		a.act("proceed SUBMITTER", "Let held intents proceed; repeat it while some remain",
			[]option{required(&through, "through", "the `txId` of the newest intent that you have seen; later ones stay held")},
			func(q call) error {
				r, err := q.api.ProceedAll(q.ctx, q.args[0], through, a.why)
				err = a.answer(err, "proceeded", r.Proceeded, "remaining", r.Remaining, "newer", r.Newer, "to be cancelled", r.Cancelled,
					"payouts", r.Payouts, "held for foreign transactions", r.Beside)
				return cmp.Or(err, someRemain(r.Remaining))
			}),
		a.list(operator, "lane SUBMITTER", "List the nonces of an account with their transactions",
			[]option{flag(&from, "from", "the first `nonce`; default: where the open ones begin, or the newest")},
			func(q call) error {
				return printList(a, q.api.Lane(q.ctx, q.args[0], given(a, "from", from)), "NONCE KIND STATE SUBSTATE TXID REQUESTID CAUSE SINCE",
					func(n client.LaneNonce) []any {
						return []any{n.Nonce, n.Kind, n.State, n.SubState, n.TxID, n.RequestID, n.Cause, n.Since}
					})
			}),
		a.list(operator, "changes SUBMITTER", "List what operators changed of an account, the newest first", nil, func(q call) error {
			return printList(a, q.api.ListChanges(q.ctx, q.args[0], 0), "AT ACTION BY APPROVED_BY REASON",
				func(h client.SubmitterChange) []any { return []any{h.At, h.Action, h.By, h.ApprovedBy, h.Reason} })
		}),
		a.submitterUse())
}

func (a *app) printSubmitter(s client.Submitter, err error) error {
	pairs := []any{
		"submitter", s.Submitter, "name", s.Name, "status", s.Status, "signer", s.Signer, "callers", s.Callers, "in flight", s.InFlightState,
		"open nonce", s.InFlightNonce, "open tx", s.InFlightTxID, "next nonce", s.NextNonce, "start nonce", s.StartNonce, "window", s.MaxInFlight,
		"queued", s.Queued, "held", s.Held, "created", s.CreatedAt, "by", s.CreatedBy, "leased by", s.LeaseOwner, "until", s.LeaseExpiresAt,
	}
	if p := s.Protect; p != nil {
		pairs = append(pairs, "PROTECT incident", p.Incident, "since", p.Since)
	}
	if s.Policy == nil {
		pairs = append(pairs, "policy", "unlimited")
	} else if text, err := json.Marshal(s.Policy); err == nil {
		pairs = append(pairs, "policy", string(text))
	}
	if n := s.Chain; n != nil {
		pairs = append(pairs, "balance in wei", n.Balance, "chain's count", n.Latest, "pending", n.Pending, "finalized", n.Finalized, "nodes' error", n.Error)
	}
	return a.answer(err, pairs...)
}

func (a *app) submitterRegister() *cobra.Command {
	var in client.Registration
	var policy string
	c := a.call(operator, "register SUBMITTER", "Put a signing account under management", []option{
		flag(&in.Signer, "signer", "who has the key: local, kms:… or remote:…; default: local"),
		required(&in.Callers, "caller", "who may post for it, as email:… or sub:…; may be given again"),
		flag(&in.StartNonce, "start-nonce", "the chain's `count` of the account, if it has sent before"),
		flag(&in.Reason, "reason", "with --start-nonce: why"),
		flag(&in.MaxInFlight, "window", "how many of its transactions may be open at once; default: the deployment's"),
		flag(&policy, "policy", "its limits, a JSON `file`; - is stdin"),
		flag(&in.Unlimited, "unlimited", "without limits: its callers may ask for all that it has"),
	}, func(q call) error {
		in.Submitter = q.args[0]
		if (policy == "") != in.Unlimited {
			return usagef("want --policy FILE, or --unlimited for an account without limits")
		}
		if policy != "" {
			p, err := parseFile(a, policy, client.ParsePolicy)
			if err != nil {
				return err
			}
			in.Policy = &p
		}
		return a.printSubmitter(q.api.RegisterSubmitter(q.ctx, in))
	})
	c.Example = `  fencepost submitter register eip155:1:0x… --caller email:shop@example.com --policy policy.json`
	return c
}

func (a *app) submitterUse() *cobra.Command {
	return a.call(operator, "policy-use SUBMITTER", "Show what counts now against the limits of an account", nil, func(q call) error {
		use, err := q.api.PolicyUse(q.ctx, q.args[0], "")
		several := use.NextPageToken != ""
		for err == nil && use.NextPageToken != "" {
			earlier := use.Scopes
			use, err = q.api.PolicyUse(q.ctx, q.args[0], use.NextPageToken)
			use.Scopes = append(earlier, use.Scopes...)
		}
		if err != nil {
			return err
		}
		if several && a.json {
			return printJSON(a.out, use) // as it was decoded, since the last answer has the last page alone
		}
		pairs := []any{"at", use.At, "intents in 60 s", use.IntentsInMinute, "value in 24 h, wei", use.ValueInDay, "fees in 24 h, wei", use.FeesInDay}
		for _, s := range use.Scopes {
			pairs = append(pairs, s.Scope, strings.TrimSpace(fmt.Sprintf("%s in 24 h, %d intents in 60 s", s.InDay, s.IntentsInMinute)))
		}
		return a.answer(nil, pairs...)
	})
}
