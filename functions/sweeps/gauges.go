package sweeps

import (
	"context"
	"errors"
	"math/big"

	"github.com/fencepost/fencepost/functions/serve"
	"github.com/fencepost/fencepost/shared/store/events"
	"github.com/fencepost/fencepost/shared/telemetry"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/gas"
)

// gauge records the deployment's gauges. Only the sweep calls it, once a minute in one process. The balances
// come last, since slow nodes can delay them.
func (a *Server) gauge(ctx context.Context) error {
	return errors.Join(
		a.readGauges(ctx, "backlog", a.gaugeBacklog), a.readGauges(ctx, "events", a.gaugeEvents), a.readGauges(ctx, "blocked_heads", a.gaugeBlocked),
		a.readGauges(ctx, "chain_unread", a.gaugeUnread), a.readGauges(ctx, balancesQuery, a.gaugeBalances))
}

const balancesQuery = "balances"

// readGauges records gauges by one query, with 1/20 of the sweep's time. If it fails the sweep shows the other gauges.
func (a *Server) readGauges(ctx context.Context, query string, read func(context.Context) error) error {
	err := a.within(ctx, 20, read)
	if err != nil {
		telemetry.GaugeFailures.Add(ctx, 1, telemetry.Query(query))
		a.Log.WarnContext(ctx, "gauges not read", "query", query, "error", err.Error())
	}
	return err
}

func (a *Server) gaugeBacklog(ctx context.Context) error {
	b, err := a.Store.Backlog(ctx)
	if err != nil {
		return err
	}
	telemetry.QueueDepth.Record(ctx, float64(b.Queued))
	telemetry.HeldIntents.Record(ctx, float64(b.Held))
	telemetry.HeldAge.Record(ctx, b.HeldLongest.Seconds())
	telemetry.QueueFullness.Record(ctx, float64(b.Fullest)/float64(a.MaxQueued))
	telemetry.InFlightAge.Record(ctx, b.OldestHeld.Seconds())
	telemetry.ProtectSubmitters.Record(ctx, float64(b.Protected))
	telemetry.StuckTransactions.Record(ctx, float64(b.Stuck))
	telemetry.ReceiptBacklog.Record(ctx, float64(b.NoReceipt))
	telemetry.BalanceWaiting.Record(ctx, float64(b.WaitBalance))
	telemetry.FeeWaiting.Record(ctx, float64(b.WaitFee))
	telemetry.GasBumpHeld.Record(ctx, float64(b.BumpHeld))
	telemetry.TransferHalts.Record(ctx, float64(b.Halts))
	return nil
}

// gaugeBlocked counts the heads of queues by cause, and separately those past the cause's limit. Each
// cause that a head can have is recorded, so that a count returns to 0.
func (a *Server) gaugeBlocked(ctx context.Context) error {
	heads, err := a.Store.BlockedHeads(ctx)
	if err != nil {
		return err
	}
	type group struct {
		cause   txmanager.WaitCause
		overdue bool
	}
	counts := make(map[group]int64)
	for _, cause := range txmanager.WaitCauses() {
		if g := cause.Guide(); g.Limit > 0 || g.Finalities > 0 {
			counts[group{cause, false}], counts[group{cause, true}] = 0, 0
		}
	}
	for _, h := range heads {
		limit := h.Cause.Guide().Limit
		if of, err := a.ChainOf(h.Submitter); err == nil {
			limit = h.Cause.Guide().LimitOn(of.Rules.TimeToFinality())
		}
		counts[group{h.Cause, limit > 0 && h.For > limit}]++
	}
	for g, n := range counts {
		telemetry.BlockedHeads.Record(ctx, float64(n), telemetry.Blocked(string(g.cause), g.overdue))
	}
	return nil
}

// gaugeEvents records the events that endpoints have not received yet.
func (a *Server) gaugeEvents(ctx context.Context) error {
	if len(a.Endpoints) == 0 {
		return nil
	}
	waiting, err := events.New(a.Store).EventBacklogs(ctx, a.Endpoints)
	for _, w := range waiting {
		telemetry.EventBacklog.Record(ctx, float64(w.Streams), telemetry.Endpoint(w.Endpoint))
		telemetry.EventAge.Record(ctx, w.Oldest.Seconds(), telemetry.Endpoint(w.Endpoint))
		telemetry.EndpointPaused.Record(ctx, w.Paused.Seconds(), telemetry.Endpoint(w.Endpoint))
	}
	return err
}

// gaugeUnread records how long ago the payers' chains were read, if the check of conservation reads them.
func (a *Server) gaugeUnread(ctx context.Context) error {
	if a.Unread == nil {
		return nil
	}
	all, err := a.Unread(ctx)
	for chain, since := range all {
		telemetry.ChainUnread.Record(ctx, since.Seconds(), telemetry.Chain(chain))
	}
	return err
}

// gaugeBalances records submitters' balances, in one round trip to each chain and up to the configured
// number. Balances that no node returns are missing, and the log says so.
func (a *Server) gaugeBalances(ctx context.Context) error {
	shown := make([][]txmanager.Submitter, len(a.Chains))
	left := a.ShownBalances
	for i, c := range a.Chains {
		if left == 0 {
			break
		}
		var err error
		if shown[i], err = a.Store.ActiveOn(ctx, c.Namespace, c.ID, left); err != nil {
			return err
		}
		left -= len(shown[i])
	}
	return a.eachChain(func(i int, c *serve.Chain) error {
		if len(shown[i]) == 0 {
			return nil
		}
		if err := gaugeBalancesOn(ctx, c, shown[i]); err != nil { // gauges are informative: the sweep has done its work without them
			telemetry.GaugeFailures.Add(ctx, 1, telemetry.Query(balancesQuery))
			a.Log.WarnContext(ctx, "balances not shown", "chain", c.ID, "error", err.Error())
		}
		return nil
	})
}

func gaugeBalancesOn(ctx context.Context, c *serve.Chain, of []txmanager.Submitter) error {
	balances, err := c.Connector.Balances(ctx, of)
	if err != nil {
		return err
	}
	for i, s := range of {
		gwei := new(big.Int).Quo(balances[i], big.NewInt(gas.WeiPerGwei))
		if gwei.IsInt64() {
			telemetry.SubmitterBalance.Record(ctx, float64(gwei.Int64()), telemetry.Submitter(string(s)))
		}
	}
	return nil
}

// gaugeExcluded records how many of the chain's nodes are excluded, if the chain has several. Only the sweep
// calls it, right after it has queried the nodes.
func gaugeExcluded(ctx context.Context, c *serve.Chain) {
	if c.Several != nil {
		telemetry.NodesExcluded.Record(ctx, float64(len(c.Several.Excluded())), telemetry.Chain(c.ID))
	}
}
