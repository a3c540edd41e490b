package store

import (
	"context"
	"fmt"
	"math"
	"math/big"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/fencepost/fencepost/shared/txmanager"
)

// RecordColumn is a column of the records that Go gives to a statement.
type RecordColumn[Record any] struct {
	name, pgType string
	array        func([]Record) any
}

// RecordValue is the column with the value of each record.
func RecordValue[Record, Value any](name, pgType string, value func(*Record) Value) RecordColumn[Record] {
	return RecordColumn[Record]{name, pgType, func(records []Record) any { return each(records, value) }}
}

// each is the value of each record.
func each[Record, Value any](records []Record, value func(*Record) Value) []Value {
	all := make([]Value, len(records))
	for i := range records {
		all[i] = value(&records[i])
	}
	return all
}

// RecordSet is a "from" item: the records as rows, from the parameters that [RecordArrays] appends, each with its place
// from 1 on. The planner expects few rows of unnest, and so uses an index; of json_to_recordset it expects many.
func RecordSet[Record any](columns []RecordColumn[Record], parametersBefore int, alias string) string {
	parameters, names := "", ""
	for i, c := range columns {
		parameters += fmt.Sprintf("$%d::%s[], ", parametersBefore+i+1, c.pgType)
		names += c.name + ", "
	}
	return `unnest(` + strings.TrimSuffix(parameters, ", ") + `) with ordinality as ` + alias + ` (` + names + `place)`
}

// RecordArrays appends the records' values, one array for each column.
func RecordArrays[Record any](before []any, columns []RecordColumn[Record], records []Record) []any {
	for _, c := range columns {
		before = append(before, c.array(records))
	}
	return before
}

// NamedArgs are the parameters of a statement by their names, as [pgx.StrictNamedArgs]: each name of the
// statement has a value, and each value a name. The statement's text is read once and not for each call,
// so only constant statements may have them.
type NamedArgs map[string]any

// numbered is a statement with the names of its parameters in their order.
type numbered struct {
	sql   string
	names []any
}

var numberedStatements sync.Map // by the text with names

// RewriteQuery implements [pgx.QueryRewriter].
func (a NamedArgs) RewriteQuery(ctx context.Context, conn *pgx.Conn, sql string, _ []any) (string, []any, error) {
	known, ok := numberedStatements.Load(sql)
	if !ok {
		statement, err := a.number(ctx, conn, sql)
		if err != nil {
			return "", nil, err
		}
		known, _ = numberedStatements.LoadOrStore(sql, statement)
	}
	statement := known.(numbered)
	if len(a) != len(statement.names) {
		return "", nil, fmt.Errorf("%d named parameters for a statement with %d", len(a), len(statement.names))
	}
	values := make([]any, len(statement.names))
	for i, name := range statement.names {
		if values[i], ok = a[name.(string)]; !ok {
			return "", nil, fmt.Errorf("the parameter %s of the statement has no value", name)
		}
	}
	return statement.sql, values, nil
}

// number reads the names of a statement: it gives each parameter its own name as the value.
func (a NamedArgs) number(ctx context.Context, conn *pgx.Conn, sql string) (numbered, error) {
	names := make(pgx.StrictNamedArgs, len(a))
	for name := range a {
		names[name] = name
	}
	text, ordered, err := names.RewriteQuery(ctx, conn, sql, nil)
	return numbered{text, ordered}, err
}

// micros truncates to microseconds, the precision of Postgres.
func micros(t *time.Time) *time.Time {
	return orNull(t, func(t *time.Time) time.Time { return t.Truncate(time.Microsecond) })
}

// orNull is the value of what p points to; nil, which is null in the database, if p is nil.
func orNull[T, Value any](p *T, value func(*T) Value) *Value {
	if p == nil {
		return nil
	}
	return new(value(p))
}

// decimalOrNull is the amount as a decimal text; nil: there is none.
func decimalOrNull(n *big.Int) *string { return orNull(n, (*big.Int).String) }

// bigintOrNull is [Bigint] of what n points to; nil: there is none.
func bigintOrNull(n *uint64) *int64 { return orNull(n, func(n *uint64) int64 { return Bigint(*n) }) }

// hashText is a target of a scan for a hash in a text column.
type hashText struct{ *txmanager.Hash }

// ScanText implements [pgtype.TextScanner].
func (h hashText) ScanText(text pgtype.Text) (err error) {
	*h.Hash, err = txmanager.ParseHash(text.String)
	return err
}

// Bigint converts n to a Postgres bigint. A higher nonce is impossible in practice: EIP-2681
// limits nonces to 2^64 - 2, and no account can send 2^63 transactions.
func Bigint(n uint64) int64 {
	return int64(min(n, math.MaxInt64))
}
