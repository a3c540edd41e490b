package transfer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
)

// Coordinator carries transfers to their end. It keeps nothing between two calls:
// any number of coordinators, in any number of processes, may work on one transfer
// at once. One compare-and-set wins, the others see it and stop.
type Coordinator struct {
	// At is passed at each step by its name ([Points]); nil but in tests.
	At func(point string)

	// Stopping says that this process is about to end: a drive stops where it is, and
	// somebody else has to go on. nil: it never is.
	Stopping func() bool

	// Proof says whether the ledgers' journals have the operation of the transfer as
	// applied, by a check of conservation that begins now. nil: there is none.
	Proof func(ctx context.Context, t Transfer, op Op) (applied bool, err error)

	book    Book
	orders  Orders
	ledgers map[AccountType]Ledger
	rules   Rules
	log     *slog.Logger
}

// New is a coordinator between these ledgers. Funding and Spot must be there; Chain
// may be left out where nothing is paid out. The error says what is wrong with the
// rules or the ledgers.
func New(book Book, orders Orders, ledgers map[AccountType]Ledger, rules Rules, log *slog.Logger) (*Coordinator, error) {
	for _, kind := range []AccountType{Funding, Spot} {
		if ledgers[kind] == nil {
			return nil, fmt.Errorf("coordinator: no ledger for %s", kind)
		}
	}
	if err := errors.Join(rules.check(), sound(pairs, accounts)); err != nil {
		return nil, fmt.Errorf("coordinator: %w", err)
	}
	return &Coordinator{book: book, orders: orders, ledgers: ledgers, rules: rules, log: log}, nil
}

// Submit stores the request and drives it as far as it gets, or finds what is
// stored for it and leaves that alone. Once the transfer is stored there is no
// error any more: what went wrong afterwards is logged, and the transfer is
// returned as it was last seen. An error is one that [Book.Create] documents, or
// unknown: the same cid again tells.
func (c *Coordinator) Submit(ctx context.Context, r Request, terms Terms) (Created, error) {
	created, err := c.book.Create(ctx, r, terms)
	if err != nil && ctx.Err() == nil && !definite(err) { // its answer was lost: it finds itself by its req_id
		created, err = c.book.Create(ctx, r, terms)
	}
	if err != nil {
		return Created{}, fmt.Errorf("create transfer %s: %w", r.ReqID, err)
	}
	if !created.New {
		return created, nil
	}
	c.logCreated(ctx, created.Transfer)
	if created.Transfer, err = c.drive(ctx, created.Transfer); err != nil {
		c.log.WarnContext(ctx, "transfer left to a later attempt", append(attrs(created.Transfer), "error", err.Error())...)
	}
	return created, nil
}

// definite says that a create has stored nothing and that asking again is no help.
func definite(err error) bool {
	_, refused := errors.AsType[ErrRefused](err)
	return refused || errors.Is(err, ErrCIDConflict) || errors.Is(err, ErrHalted) || errors.Is(err, ErrForeign) || errors.Is(err, ErrProtected)
}

// Drive carries the transfer as far as it gets now and returns it as it is then. It
// stops where it is terminal, where an answer is unknown, and where another worker
// was faster. An error means that the transfer must be driven again; by then
// nothing is lost. It wraps [ErrNotFound] where there is no such transfer,
// [ErrForeign] in a restored database, where nothing is called.
func (c *Coordinator) Drive(ctx context.Context, reqID string) (Transfer, error) {
	t, err := c.book.Load(ctx, reqID)
	if err != nil {
		return Transfer{}, fmt.Errorf("load transfer %s: %w", reqID, err)
	}
	return c.drive(ctx, t)
}

// ledger is the one that does op for t.
func (c *Coordinator) ledger(t Transfer, op Op) Ledger {
	if op == Deposit {
		return c.ledgers[t.Type.Target()]
	}
	return c.ledgers[t.Type.Source()]
}

// pass tells that a step is done, or about to be.
func (c *Coordinator) pass(point string) {
	if c.At != nil {
		c.At("transfer." + point)
	}
}

// Points lists the names that a coordinator passes: before and after each
// compare-and-set and each call.
func Points() []string {
	return []string{
		"transfer.beginning", "transfer.begun",
		"transfer.withdraw.calling", "transfer.withdraw.called", "transfer.withdraw.recording", "transfer.withdraw.recorded",
		"transfer.advancing", "transfer.advanced",
		"transfer.deposit.calling", "transfer.deposit.called", "transfer.deposit.recording", "transfer.deposit.recorded",
		"transfer.refund.calling", "transfer.refund.called", "transfer.refund.recording", "transfer.refund.recorded",
	}
}
