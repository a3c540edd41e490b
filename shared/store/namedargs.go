package store

import (
	"context"
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5"
)

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
