package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencepost/fencepost/shared/mark"
	"github.com/fencepost/fencepost/shared/store"
)

const verifyAudit = "verify-audit"

// errAudit reports that the audit has findings, which were printed.
var errAudit = errors.New("the audit rows are not complete; docs/runbooks/audit.md says what to do")

// audit verifies the rows that record decisions and who made them.
func audit(ctx context.Context, c call, dial pgconn.DialFunc) error {
	marked, err := sealOfMark(ctx)
	if err != nil {
		return err
	}
	s, err := store.Open(ctx, store.Options{URL: c.databaseURL, Dial: dial, MaxConns: 1,
		StatementTimeout: time.Hour, LockTimeout: 5 * time.Second, IdleInTransactionTimeout: time.Minute})
	if err != nil {
		return err
	}
	defer s.Close()
	found, err := s.VerifyAudit(ctx, marked, func(done, all int64) {
		fmt.Fprintf(os.Stderr, "read %d of %d links\n", done, all)
	})
	if err != nil {
		return err
	}
	printAudit(os.Stdout, found, marked)
	if len(found.Findings) > 0 {
		return errAudit
	}
	return nil
}

// sealOfMark returns the seal in the mark; nil: the deployment has no mark.
func sealOfMark(ctx context.Context) (seal *mark.Seal, err error) {
	object, err := openMark(ctx)
	if object == nil || err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, object.Close()) }()
	seen, err := object.Read(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the mark: %w", err)
	}
	return &seen.Audit, nil
}

func printAudit(out io.Writer, a store.Audit, marked *mark.Seal) {
	fmt.Fprintf(out, "%d audit rows of %d submitters; the last seal is %d, and %d rows were written since\n", a.Links, a.Submitters, a.Seal.Number, a.Unsealed)
	for _, login := range slices.Sorted(maps.Keys(a.Logins)) {
		fmt.Fprintf(out, "written by the database login %s: %d\n", login, a.Logins[login])
	}
	if a.Older > 0 {
		fmt.Fprintf(out, "older than the chain, by a login that is not known: %d\n", a.Older)
	}
	for _, finding := range a.Findings {
		fmt.Fprintln(out, "NOT COMPLETE:", finding)
	}
	if a.More > 0 {
		fmt.Fprintf(out, "NOT COMPLETE: %d findings more\n", a.More)
	}
	switch {
	case marked == nil:
		fmt.Fprintln(out, "not compared with the mark: FENCEPOST_MARK_BUCKET is not set. Who owns the database can have written all of it anew")
	case len(a.Findings) == 0:
		fmt.Fprintf(out, "the mark names seal %d, as the database does\n", marked.Number)
	}
	if len(a.Findings) == 0 {
		fmt.Fprintln(out, "the audit rows are complete")
	}
}
