package main

import (
	"context"
	"net/http"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/emulator/stack/steps"
	"github.com/fencepost/fencepost/shared/transfer"
)

// transferClients is how many transfers are under way at once.
const transferClients = 128

// openAccounts gives each user money in Funding and an account in Trading.
func (h *environment) openAccounts(ctx context.Context, users int) {
	for id := int64(1); id <= int64(users); id++ {
		for side, units := range map[transfer.AccountType]uint64{transfer.Funding: 1_000_000_000, transfer.Spot: 1} {
			steps.OK(h.Deposit(ctx, side, id, stack.USDT.ID, units))
		}
		h.userTokens = append(h.userTokens, steps.Value(h.Users.UserToken(id, stack.UsersAudience)))
	}
	h.transfers(ctx, "warm", 2*transferClients)
}

// transferAll moves money of all users in turn.
func transferAll(ctx context.Context, r run, h *environment) result {
	from := h.mark()
	done := h.transfers(ctx, measured, r.transactions)
	to := h.mark()
	n := float64(r.transactions)
	f := times(from, to, n)
	f[transactions], f[transferPerS], f[cpuLoad] = n, done.rate(), done.cpu/n*1000
	f[transferP50], f[transferP99] = quantile(done.Latencies, 0.5), quantile(done.Latencies, 0.99)
	f[transferSQL] = float64(to.transfer.SQLRoundTrips-from.transfer.SQLRoundTrips) / n
	f[transferCommit] = float64(to.transfer.Commits-from.transfer.Commits) / n
	h.addWAL(ctx, f, from, to, r.transactions)
	return result{figures: f}
}

// transfers posts n transfers, as fast as they are answered.
func (h *environment) transfers(ctx context.Context, name string, n int) posted {
	l := h.load(name, n)
	l.UserTokens, l.Clients, l.Statuses = h.userTokens, min(transferClients, n), []int{http.StatusOK}
	return steps.Value(l.run(ctx))
}
