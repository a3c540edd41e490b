package transfer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
)

// Coordinator carries transfers to a terminal state. It keeps no state between two calls. Any
// number of coordinators, in any number of processes, can work on one transfer at once: one
// compare-and-set wins, and the others read its result and stop.
type Coordinator struct {
	// At is called with the name of each crash point that is reached ([Points]); nil outside
	// tests.
	At func(point string)

	// Stopping reports whether this process is about to end. A drive then stops, and another
	// process continues the transfer. nil: never.
	Stopping func() bool

	// Proof runs a check of conservation now and reports whether the ledgers' journals have the
	// operation of the transfer as applied. nil: this deployment has no such check.
	Proof func(ctx context.Context, t Transfer, op Op) (applied bool, err error)

	book    Store
	orders  ActionStore
	ledgers map[AccountType]Ledger
	rules   Rules
	log     *slog.Logger
}

// New returns a coordinator between these ledgers. Funding and Spot are required. Chain is needed
// for payouts only. The error reports invalid rules or a missing ledger.
func New(book Store, orders ActionStore, ledgers map[AccountType]Ledger, rules Rules, log *slog.Logger) (*Coordinator, error) {
	for _, kind := range []AccountType{Funding, Spot} {
		if ledgers[kind] == nil {
			return nil, fmt.Errorf("coordinator: no ledger for %s", kind)
		}
	}
	if err := errors.Join(rules.check(), checkPairs(pairs, accounts)); err != nil {
		return nil, fmt.Errorf("coordinator: %w", err)
	}
	return &Coordinator{book: book, orders: orders, ledgers: ledgers, rules: rules, log: log}, nil
}

// Submit stores the request and drives it as far as it gets, or returns the transfer that is
// already stored for it, without driving that. Once the transfer is stored Submit returns no
// error: it logs later failures and returns the transfer as last read. An error is one that
// [Book.Create] documents, or unknown; then the caller learns the result by sending the same cid
// again.
func (c *Coordinator) Submit(ctx context.Context, r Request, terms Terms) (Created, error) {
	created, err := c.book.Create(ctx, r, terms)
	if err != nil && ctx.Err() == nil && !definite(err) { // the answer was lost: Create finds the stored row by its req_id
		created, err = c.book.Create(ctx, r, terms)
	}
	if err != nil {
		return Created{}, fmt.Errorf("create transfer %s: %w", r.ReqID, err)
	}
	if !created.New {
		return created, nil
	}
	c.log.InfoContext(ctx, "transfer accepted", append(attrs(created.Transfer),
		"from", created.Type.Source(), "to", created.Type.Target(), "asset", created.Asset, "amount", created.Amount())...)
	if created.Transfer, err = c.drive(ctx, created.Transfer); err != nil {
		c.log.WarnContext(ctx, "transfer left to a later attempt", append(attrs(created.Transfer), "error", err.Error())...)
	}
	return created, nil
}

// definite reports whether a create has stored nothing and a repeat gives the same answer.
func definite(err error) bool {
	_, refused := errors.AsType[RefusedError](err)
	return refused || errors.Is(err, ErrCIDConflict) || errors.Is(err, ErrHalted) || errors.Is(err, ErrForeign) || errors.Is(err, ErrProtected) || errors.Is(err, ErrRetired)
}

// Drive carries the transfer as far as it gets now and returns it as last read. It stops in a
// terminal state, after an unknown answer, and if another worker was faster. After an error the
// transfer must be driven again; nothing is lost. The error wraps [ErrNotFound] if there is no
// such transfer. It wraps [ErrForeign] in a restored database, and then no ledger is called.
func (c *Coordinator) Drive(ctx context.Context, reqID string) (Transfer, error) {
	t, err := c.book.Load(ctx, reqID)
	if err != nil {
		return Transfer{}, fmt.Errorf("load transfer %s: %w", reqID, err)
	}
	return c.drive(ctx, t)
}

// ledger returns the ledger that carries out op for t.
func (c *Coordinator) ledger(t Transfer, op Op) Ledger {
	if op == Deposit {
		return c.ledgers[t.Type.Target()]
	}
	return c.ledgers[t.Type.Source()]
}

// reach reports a crash point to At.
func (c *Coordinator) reach(point string) {
	if c.At != nil {
		c.At("transfer." + point)
	}
}
