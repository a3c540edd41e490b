// Command receiver takes the events that Fencepost delivers by webhook, and keeps in Postgres the result of each
// payment. docs/receivers.md explains it.
package main

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strings"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx

	"github.com/fencepost/fencepost/shared/client"
	"github.com/fencepost/fencepost/shared/webhook"
)

const tables = `
create schema if not exists receiver;
create table if not exists receiver.delivery (id text primary key);
create table if not exists receiver.payment (tx_id text primary key, request_id text not null, sequence int not null, result text not null);`

type receiver struct {
	db   *sql.DB
	keys []webhook.Key // two during a rotation
}

func main() {
	if err := run(); err != nil {
		log.Fatal("receiver: ", err)
	}
}

func run() error {
	r := new(receiver)
	for _, text := range strings.Split(os.Getenv("WEBHOOK_SECRETS"), ",") {
		key, err := webhook.ParseKey(text)
		if err != nil {
			return fmt.Errorf("WEBHOOK_SECRETS: %w; two are separated by a comma", err)
		}
		r.keys = append(r.keys, key)
	}
	var err error
	if r.db, err = sql.Open("pgx", os.Getenv("DATABASE_URL")); err != nil {
		return fmt.Errorf("DATABASE_URL: %w", err)
	}
	if _, err := r.db.ExecContext(context.Background(), tables); err != nil {
		return fmt.Errorf("make the tables: %w", err)
	}
	server := http.Server{Addr: cmp.Or(os.Getenv("LISTEN"), "127.0.0.1:8787"), Handler: r, ReadTimeout: 5 * time.Second}
	return server.ListenAndServe()
}

// ServeHTTP answers 204 once the event is stored. Any answer but 2xx has it delivered again.
func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, 1<<20))
	if err != nil {
		http.Error(w, "the body cannot be read", http.StatusBadRequest)
		return
	}
	id, err := webhook.Verify(req.Header, time.Now(), body, r.keys...)
	if err != nil {
		http.Error(w, err.Error(), http.StatusUnauthorized)
		return
	}
	var e client.Event
	if err := json.Unmarshal(body, &e); err != nil {
		http.Error(w, "the body is no event", http.StatusBadRequest)
		return
	}
	outcome := "ignored" // an event of no transaction: an operator tests the endpoint
	if e.TxID != "" {
		outcome, err = r.store(req.Context(), id, e)
	}
	if err != nil {
		log.Print("receiver: ", err)
		http.Error(w, "not stored", http.StatusServiceUnavailable)
		return
	}
	fmt.Println(outcome, id, e.RequestID, result(e))
	w.WriteHeader(http.StatusNoContent)
}

// store keeps the id of the delivery and the effect of the event in one transaction. It returns "stored", or why there
// was no effect: the delivery is "repeated", or the event "older" than another of its transaction.
func (r *receiver) store(ctx context.Context, id string, e client.Event) (outcome string, err error) {
	tx, err := r.db.BeginTx(ctx, nil)
	if err != nil {
		return "", err
	}
	defer func() { _ = tx.Rollback() }() // after a commit it does nothing
	fresh, err := changes(tx.ExecContext(ctx, `insert into receiver.delivery (id) values ($1) on conflict do nothing`, id))
	if err != nil || !fresh {
		return "repeated", err
	}
	newer, err := changes(tx.ExecContext(ctx, `
insert into receiver.payment as known (tx_id, request_id, sequence, result) values ($1, $2, $3, $4)
on conflict (tx_id) do update set sequence = excluded.sequence, result = excluded.result
 where known.sequence < excluded.sequence`, e.TxID, e.RequestID, e.Sequence, result(e)))
	if err != nil {
		return "", err
	}
	outcome = "stored"
	if !newer {
		outcome = "older"
	}
	return outcome, tx.Commit()
}

// changes reports whether a statement has changed a row.
func changes(done sql.Result, err error) (bool, error) {
	if err != nil {
		return false, err
	}
	n, err := done.RowsAffected()
	return n > 0, err
}

// result returns what an event tells about the payment: "paid" and "failed" are final.
func result(e client.Event) string {
	var data struct {
		Final bool `json:"final"`
	}
	switch _ = json.Unmarshal(e.Data, &data); {
	case e.Type == "TxFailed":
		return "failed"
	case e.Type == "TxConfirmed" && data.Final:
		return "paid"
	}
	return "open" // also for a type that a later version adds
}
