package faults

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/fencepost/fencepost/emulator/proxy/http/rpcproxy"
	"github.com/fencepost/fencepost/emulator/verify/torture/retry"
)

func nodeFaults() []Fault {
	share := func(r *rand.Rand) float64 { return 0.3 + 0.7*r.Float64() }
	return []Fault{
		{"answer dropped after a send", 2, node(rpcproxy.DropSendAnswer, func(f *rpcproxy.Faults, r *rand.Rand) { f.DropSendAnswer = share(r) })},
		{"answers of the node dropped", 1, node(rpcproxy.Drop, func(f *rpcproxy.Faults, r *rand.Rand) { f.Drop = share(r) })},
		{"node hangs", 1, node(rpcproxy.Hang, func(f *rpcproxy.Faults, r *rand.Rand) { f.Hang = share(r) })},
		{"node answers 503", 1, node(rpcproxy.Unavailable, func(f *rpcproxy.Faults, r *rand.Rand) { f.Unavailable = share(r) })},
		{"node lags behind", 2, node(rpcproxy.Lag, func(f *rpcproxy.Faults, r *rand.Rand) { f.LagShare, f.Lag = share(r), 1+r.Uint64N(12) })},
		{"node's index not ready", 1, node(rpcproxy.NotIndexed, func(f *rpcproxy.Faults, r *rand.Rand) { f.NotIndexed = share(r) })},
		{"sends lost by the node", 2, node(rpcproxy.LoseSend, func(f *rpcproxy.Faults, r *rand.Rand) { f.LoseSend = share(r) })},
		{"receipts forgotten by the node", 2, node(rpcproxy.ForgetReceipt, func(f *rpcproxy.Faults, r *rand.Rand) { f.ForgetReceipt = share(r) })},
	}
}

// node makes a node misbehave for a while, and until it struck once. Among several nodes it
// prefers the first one, which is queried first. It counts every faulty answer.
func node(name string, draw func(*rpcproxy.Faults, *rand.Rand)) inject {
	return func(ctx context.Context, w *World, r *rand.Rand) (int, error) {
		i, seed := r.IntN(2)*r.IntN(len(w.nodes)), r.Uint64()
		proxy := w.Stack.Nodes[i]
		before := proxy.Counts()[name]
		end := w.nodes[i].begin(func(f *rpcproxy.Faults) { draw(f, rand.New(rand.NewPCG(seed, seed))) })
		retry.Pause(ctx, randomDuration(r, time.Second, 5*time.Second))
		until(ctx, targetTimeout, func() bool { return proxy.Counts()[name] > before })
		end()
		sum := 0
		for _, n := range w.Stack.Nodes {
			sum += n.Counts()[name]
		}
		return w.strikes.claim(name, sum), nil
	}
}
