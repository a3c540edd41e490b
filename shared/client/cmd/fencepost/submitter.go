package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost/shared/client"
)

func (a *app) submitterGroup() *cobra.Command {
	return group("submitter", "Manage signing accounts (operators)", a.submitterList(),
		show(a, operator, "get SUBMITTER", "Show an account, and what its chain says of it", (*client.Client).Submitter, a.printSubmitter),
		a.submitterRegister(), a.submitterChange(), a.submitterPolicy(), a.submitterCallers(), a.submitterSigner(),
		act(a, "suspend SUBMITTER", "Accept no more intents of an account", (*client.Client).SuspendSubmitter, a.printSubmitter),
		act(a, "resume SUBMITTER", "End the suspension of an account", (*client.Client).ResumeSubmitter, a.printSubmitter),
		act(a, "retire SUBMITTER", "Retire an account for ever", (*client.Client).RetireSubmitter, a.printSubmitter),
		a.submitterQueue(), a.submitterCancelQueue(), a.submitterProceed(), a.submitterLane(), a.submitterChanges(), a.submitterUse())
}

func (a *app) submitterList() *cobra.Command {
	var q client.SubmitterQuery
	c := a.list(operator, "list", "List the accounts", 0, func(ctx context.Context, api *client.Client, _ []string) error {
		return printList(a, api.ListSubmitters(ctx, q), "SUBMITTER NAME STATUS IN_FLIGHT NEXT_NONCE QUEUED HELD WINDOW", func(s client.Submitter) []any {
			return []any{s.Submitter, s.Name, s.Status, s.InFlightState, s.NextNonce, s.Queued, s.Held, s.MaxInFlight}
		})
	})
	c.Flags().StringVar(&q.State, "state", "", "only in this `state`: ACTIVE, SUSPENDED, RETIRED or PROTECT")
	c.Flags().StringVar(&q.Sort, "sort", "", "`name`: by name")
	values(c, "state", "ACTIVE", "SUSPENDED", "RETIRED", "PROTECT")
	return c
}

func (a *app) printSubmitter(s client.Submitter) error {
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
	return a.printAnswer(pairs...)
}

func (a *app) submitterRegister() *cobra.Command {
	var in client.Registration
	var policy string
	c := a.command("register SUBMITTER", "Put a signing account under management", 1, func(ctx context.Context, args []string) error {
		in.Submitter = args[0]
		if (policy == "") != in.Unlimited {
			return usagef("want --policy FILE, or --unlimited for an account without limits")
		}
		if policy != "" {
			p, err := a.readPolicy(policy)
			if err != nil {
				return err
			}
			in.Policy = &p
		}
		api, err := a.client(operator)
		if err != nil {
			return err
		}
		return printing(a.printSubmitter)(api.RegisterSubmitter(ctx, in))
	})
	c.Example = `  fencepost submitter register eip155:1:0x… --caller email:shop@example.com --policy policy.json`
	flags := c.Flags()
	flags.StringVar(&in.Signer, "signer", "", "who has the key: local, kms:… or remote:…; default: local")
	flags.StringArrayVar(&in.Callers, "caller", nil, "who may post for it, as email:… or sub:…; may be given again")
	flags.Uint64Var(&in.StartNonce, "start-nonce", 0, "the chain's `count` of the account, if it has sent before")
	flags.StringVar(&in.Reason, "reason", "", "with --start-nonce: why")
	flags.IntVar(&in.MaxInFlight, "window", 0, "how many of its transactions may be open at once; default: the deployment's")
	flags.StringVar(&policy, "policy", "", "its limits, a JSON `file`; - is stdin")
	flags.BoolVar(&in.Unlimited, "unlimited", false, "without limits: its callers may ask for all that it has")
	require(c, "caller")
	return c
}

// readPolicy reads a policy from a file, or from stdin as "-".
func (a *app) readPolicy(path string) (client.Policy, error) {
	text, err := readFile(path, a.in)
	if err != nil {
		return client.Policy{}, err
	}
	p, err := client.ParsePolicy(text)
	if err != nil {
		return p, usagef("%s: %v", path, err)
	}
	return p, nil
}

func (a *app) submitterChange() *cobra.Command {
	var window int
	var name string
	var c *cobra.Command
	c = a.onRecord("change SUBMITTER", "Change the window or the name of an account", 1, func(ctx context.Context, api *client.Client, args []string) error {
		u := client.SubmitterUpdate{MaxInFlight: given(c, "window", window), Name: given(c, "name", name)}
		return printing(a.printSubmitter)(api.UpdateSubmitter(ctx, args[0], u, a.why))
	})
	c.Flags().IntVar(&window, "window", 0, "how many of its transactions may be open at once")
	c.Flags().StringVar(&name, "name", "", "its name for people; empty: none")
	c.MarkFlagsOneRequired("window", "name")
	return c
}

func (a *app) submitterPolicy() *cobra.Command {
	var path string
	c := a.onRecord("set-policy SUBMITTER", "Replace the limits of an account", 1, func(ctx context.Context, api *client.Client, args []string) error {
		p, err := a.readPolicy(path)
		if err != nil {
			return err
		}
		return printing(a.printSubmitter)(api.SetPolicy(ctx, args[0], p, a.why))
	})
	c.Flags().StringVar(&path, "policy", "", "its limits, a JSON `file`; - is stdin")
	require(c, "policy")
	return c
}

func (a *app) submitterCallers() *cobra.Command {
	var callers []string
	var succeeds map[string]string
	c := a.onRecord("set-callers SUBMITTER", "Replace the callers of an account", 1, func(ctx context.Context, api *client.Client, args []string) error {
		return printing(a.printSubmitter)(api.SetCallers(ctx, args[0], callers, succeeds, a.why))
	})
	c.Flags().StringArrayVar(&callers, "caller", nil, "who may post for it, as email:… or sub:…; may be given again")
	c.Flags().StringToStringVar(&succeeds, "succeeds", nil, "`NEW=OLD`: a caller of the list, and the former caller whose intents it gets")
	require(c, "caller")
	return c
}

func (a *app) submitterSigner() *cobra.Command {
	var signer string
	c := a.onRecord("change-signer SUBMITTER", "Change the signer of an account to where its key was moved", 1, func(ctx context.Context, api *client.Client, args []string) error {
		return printing(a.printSubmitter)(api.ChangeSigner(ctx, args[0], signer, a.why))
	})
	c.Flags().StringVar(&signer, "signer", "", "local, kms:… or remote:…")
	require(c, "signer")
	return c
}

func (a *app) submitterQueue() *cobra.Command {
	return a.list(operator, "queue SUBMITTER", "List the intents that wait for a nonce, in their order", 1, func(ctx context.Context, api *client.Client, args []string) error {
		return printList(a, api.ListQueue(ctx, args[0]), "POSITION TXID REQUESTID STATE CAUSE SINCE CALLER", func(q client.QueuedTx) []any {
			return []any{position(q.Position, q.PositionMore), q.TxID, q.RequestID, q.State, q.Cause, q.Since, q.Caller}
		})
	})
}

func (a *app) submitterCancelQueue() *cobra.Command {
	var of string
	c := a.onRecord("cancel-queue SUBMITTER", "Cancel queued intents without a nonce; repeat it while some remain", 1, func(ctx context.Context, api *client.Client, args []string) error {
		r, err := api.CancelQueue(ctx, args[0], of, a.why)
		err = a.answer(err, "cancelled", r.Cancelled, "remaining", r.Remaining, "bound to a nonce", r.Bound, "payouts", r.Payouts, "held for foreign transactions", r.Beside)
		return cmp.Or(err, someRemain(r.Remaining))
	})
	c.Flags().StringVar(&of, "caller", "", "only those of this `caller`")
	return c
}

func (a *app) submitterProceed() *cobra.Command {
	var through string
	c := a.onRecord("proceed SUBMITTER", "Let held intents proceed; repeat it while some remain", 1, func(ctx context.Context, api *client.Client, args []string) error {
		r, err := api.ProceedAll(ctx, args[0], through, a.why)
		err = a.answer(err, "proceeded", r.Proceeded, "remaining", r.Remaining, "newer", r.Newer, "to be cancelled", r.Cancelled, "payouts", r.Payouts, "held for foreign transactions", r.Beside)
		return cmp.Or(err, someRemain(r.Remaining))
	})
	c.Flags().StringVar(&through, "through", "", "the `txId` of the newest intent that you have seen; later ones stay held")
	require(c, "through")
	return c
}

func (a *app) submitterLane() *cobra.Command {
	var from uint64
	var c *cobra.Command
	c = a.list(operator, "lane SUBMITTER", "List the nonces of an account with their transactions", 1, func(ctx context.Context, api *client.Client, args []string) error {
		return printList(a, api.Lane(ctx, args[0], given(c, "from", from)), "NONCE KIND STATE SUBSTATE TXID REQUESTID CAUSE SINCE", func(n client.LaneNonce) []any {
			return []any{n.Nonce, n.Kind, n.State, n.SubState, n.TxID, n.RequestID, n.Cause, n.Since}
		})
	})
	c.Flags().Uint64Var(&from, "from", 0, "the first `nonce`; default: where the open ones begin, or the newest")
	return c
}

func (a *app) submitterChanges() *cobra.Command {
	return a.list(operator, "changes SUBMITTER", "List what operators changed of an account, the newest first", 1, func(ctx context.Context, api *client.Client, args []string) error {
		return printList(a, api.ListChanges(ctx, args[0], 0), "AT ACTION BY APPROVED_BY REASON", func(h client.SubmitterChange) []any {
			return []any{h.At, h.Action, h.By, h.ApprovedBy, h.Reason}
		})
	})
}

func (a *app) submitterUse() *cobra.Command {
	return a.call(operator, "policy-use SUBMITTER", "Show what counts now against the limits of an account", 1, func(ctx context.Context, api *client.Client, args []string) error {
		use, err := api.PolicyUse(ctx, args[0], "")
		several := use.NextPageToken != ""
		for err == nil && use.NextPageToken != "" {
			earlier := use.Scopes
			use, err = api.PolicyUse(ctx, args[0], use.NextPageToken)
			use.Scopes = append(earlier, use.Scopes...)
		}
		if err != nil {
			return err
		}
		if several && a.json {
			return a.printJSON(use) // as it was decoded, since the last answer has the last page alone
		}
		pairs := []any{"at", use.At, "intents in 60 s", use.IntentsInMinute, "value in 24 h, wei", use.ValueInDay, "fees in 24 h, wei", use.FeesInDay}
		for _, s := range use.Scopes {
			pairs = append(pairs, s.Scope, strings.TrimSpace(fmt.Sprintf("%s in 24 h, %d intents in 60 s", s.InDay, s.IntentsInMinute)))
		}
		return a.printAnswer(pairs...)
	})
}
