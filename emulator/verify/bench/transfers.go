package main

import (
	"context"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/transfer"
)

// transferClients is how many transfers are under way at once.
const transferClients = 128

// openAccounts gives each user money in Funding and an account in Trading.
func (h *environment) openAccounts(ctx context.Context, users int) error {
	for id := int64(1); id <= int64(users); id++ {
		for side, units := range map[transfer.AccountType]uint64{transfer.Funding: 1_000_000_000, transfer.Spot: 1} {
			if err := h.Deposit(ctx, side, id, stack.USDT.ID, units); err != nil {
				return err
			}
		}
		token, err := h.Users.UserToken(id, stack.UsersAudience)
		if err != nil {
			return err
		}
		h.users = append(h.users, user{token})
	}
	_, err := h.transfers(ctx, "warm", 2*transferClients)
	return err
}

// transferAll moves money of all users in turn.
func transferAll(ctx context.Context, r run, h *environment) (result, error) {
	var done posted
	from, to, err := h.during(func() (err error) {
		done, err = h.transfers(ctx, measured, r.transactions)
		return err
	})
	if err != nil {
		return result{}, err
	}
	n := float64(r.transactions)
	f := times(from, to, n)
	f[transactions], f[transferPerS], f[cpuLoad] = n, done.rate(), done.cpu/n*1000
	f[transferP50], f[transferP99] = quantile(done.Latencies, 0.5), quantile(done.Latencies, 0.99)
	f[transferSQL] = float64(to.transfer.SQLRoundTrips-from.transfer.SQLRoundTrips) / n
	f[transferCommit] = float64(to.transfer.Commits-from.transfer.Commits) / n
	return result{figures: f}, h.addWAL(ctx, f, from, to, r.transactions)
}

// transfers posts n transfers, as fast as they are answered.
func (h *environment) transfers(ctx context.Context, name string, n int) (posted, error) {
	l := h.load(name, n)
	l.Users, l.Clients = h.users, min(transferClients, n)
	return l.run(ctx)
}
