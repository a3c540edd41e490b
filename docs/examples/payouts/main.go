// Command payouts pays a list. Each row becomes one transaction under the row's own requestId, so it is safe to run the
// command again after any interruption: no row is paid twice.
//
//	go run ./docs/examples/payouts docs/examples/payouts/payouts.csv
package main

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"text/tabwriter"

	"github.com/fencepost/fencepost/shared/client"
)

// row is one payout of the list, and its result.
type row struct {
	requestID, to, wei string

	txID string    // "": it was not accepted
	tx   client.Tx // as it was read last
	err  error     // why it was not accepted, or not waited for
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "payouts:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	if len(args) != 1 {
		return errors.New("want one argument: the list, such as docs/examples/payouts/payouts.csv")
	}
	rows, err := read(args[0])
	if err != nil {
		return err
	}
	c, err := client.New(client.Options{URL: os.Getenv("API"), Token: token})
	if err != nil {
		return err
	}
	for i := range rows { // all are accepted first, and carried out in this order
		rows[i].post(ctx, c, os.Getenv("SUBMITTER"))
	}
	for i := range rows {
		if rows[i].txID != "" {
			rows[i].tx, rows[i].err = c.WaitTx(ctx, rows[i].txID)
		}
	}
	return report(rows, out)
}

// token returns the bearer token of each call. A program that runs for more than an hour fetches a new one here.
func token(context.Context) (string, error) { return os.Getenv("TOKEN"), nil }

var names = []string{"requestId", "to", "wei"}

// read reads the list: a line of names, then requestId, to and wei of each payout.
func read(name string) ([]row, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	lines := csv.NewReader(file)
	lines.FieldsPerRecord = 3
	all, err := lines.ReadAll()
	if err != nil {
		return nil, fmt.Errorf("%s: want lines of requestId,to,wei: %w", name, err)
	}
	if len(all) == 0 || !slices.Equal(all[0], names) {
		return nil, fmt.Errorf("%s: want the line requestId,to,wei first", name)
	}
	var rows []row
	seen := make(map[string]bool)
	for _, one := range all[1:] {
		if seen[one[0]] { // the two would be one payment
			return nil, fmt.Errorf("%s: the requestId %s is there twice", name, one[0])
		}
		seen[one[0]] = true
		rows = append(rows, row{requestID: one[0], to: one[1], wei: one[2]})
	}
	return rows, nil
}

// post has the payout accepted. Posted again, it is the same transaction. The client repeats a call without an answer.
func (r *row) post(ctx context.Context, c *client.Client, submitter string) {
	created, err := c.CreateTx(ctx, client.Intent{
		Submitter: submitter, RequestID: r.requestID, Payload: client.Payload{To: r.to, Value: r.wei},
	})
	r.txID, r.err = created.TxID, err
}

// result returns the state of the payout, and its transaction or the reason.
func (r *row) result() (state, detail string) {
	switch {
	case r.txID == "":
		return unaccepted(r.err)
	case r.err != nil:
		return "OPEN", "run this again: " + r.err.Error()
	case r.tx.State == client.Failed:
		return "FAILED", r.tx.SubState + " " + r.tx.LastError
	}
	return string(r.tx.State), r.tx.TxHash
}

// unaccepted returns what a post without a txId means. After most refusals, such as 401 and 403, it is unknown whether
// an earlier post of the row was accepted.
func unaccepted(err error) (state, detail string) {
	var p *client.Problem
	if !errors.As(err, &p) || errors.Is(err, client.ErrUnknown) {
		p = new(client.Problem)
	}
	switch {
	case p.Code == "REQUEST_RECORDED":
		return "RECORDED", "on the chain already: do not pay: " + p.Detail
	case p.Status == http.StatusBadRequest, p.Status == http.StatusUnprocessableEntity, p.Code == "REQUEST_ID_CONFLICT":
		return "REFUSED", p.Error()
	}
	return "UNKNOWN", "run this again: " + err.Error()
}

// report prints a table of the results. It returns an error unless each payout has CONFIRMED.
func report(rows []row, out io.Writer) error {
	table, open := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0), 0
	fmt.Fprintln(table, "requestId\tto\twei\tstate\ttransaction")
	for i := range rows {
		state, detail := rows[i].result()
		if state != string(client.Confirmed) {
			open++
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", rows[i].requestID, rows[i].to, rows[i].wei, state, detail)
	}
	if err := table.Flush(); err != nil || open == 0 {
		return err
	}
	return fmt.Errorf("%d of %d are not CONFIRMED", open, len(rows))
}
