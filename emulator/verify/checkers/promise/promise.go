// Package promise runs checkers, each of which holds evidence to one promise, and lists the violations.
package promise

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/emulator/stack/steps"
)

// Violation is one broken promise, found by one checker.
type Violation struct {
	Checker   string // the checker's name
	Submitter string // or the user
	TxID      string // the transaction or the transfer; "" if the violation concerns no single one
	Detail    string // the observed and the expected value
}

// Checker checks evidence against one promise.
type Checker[E any] struct {
	Name    string
	Promise string // one sentence
	Find    func(E, Reporter)
}

// Reporter takes a violation; txID may be "".
type Reporter func(submitter, txID, format string, args ...any)

// CheckAll lists the violations that the checkers find, in their order.
func CheckAll[E any](all []Checker[E], evidence E) (found []Violation) {
	for _, c := range all {
		c.Find(evidence, func(submitter, txID, format string, args ...any) {
			found = append(found, Violation{c.Name, submitter, txID, fmt.Sprintf(format, args...)})
		})
	}
	return found
}

// Check reads the evidence of a run and lists the violations. An error means that the run could not be
// read, which is no verdict.
func Check[R, E any](ctx context.Context, run R, read func(context.Context, R) (E, error), all []Checker[E]) ([]Violation, error) {
	evidence, err := read(ctx, run)
	if err != nil {
		return nil, err
	}
	return CheckAll(all, evidence), nil
}

// Snapshot reads the database at the URL in one read-only snapshot. It and read are [steps].
func Snapshot(ctx context.Context, url string, read func(pgx.Tx)) {
	db, err := pgx.Connect(ctx, url)
	steps.OK(err, "read the database")
	defer func() { _ = db.Close(context.WithoutCancel(ctx)) }()
	options := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	err = pgx.BeginTxFunc(ctx, db, options, func(tx pgx.Tx) error { return steps.Run(func() { read(tx) }) })
	steps.OK(err, "read the database")
}

// Of returns the violations that the named checker found.
func Of(all []Violation, checker string) []Violation {
	return slices.DeleteFunc(slices.Clone(all), func(v Violation) bool { return v.Checker != checker })
}

// Report formats the violations for a reader: their number, then one a line. The noun names what a TxID
// identifies.
func Report(all []Violation, noun string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "violations: %d\n", len(all))
	for _, v := range all {
		fmt.Fprintf(&b, "  %s: %s", v.Checker, v.Submitter)
		if v.TxID != "" {
			fmt.Fprintf(&b, " %s %s", noun, v.TxID)
		}
		fmt.Fprintf(&b, ": %s\n", v.Detail)
	}
	return b.String()
}
