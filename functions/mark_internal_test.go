package functions

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/fencepost/fencepost/shared/mark"
)

// foreignMark is an object of another database's mark, and a database that knows no mark.
type foreignMark struct {
	mark.Object
	mark.Book
	judged int
}

func (f *foreignMark) Read(ctx context.Context) (mark.Seen, error) {
	return mark.Seen{Mark: mark.Mark{ID: "other"}, Generation: 1}, ctx.Err()
}

func (f *foreignMark) Judge(ctx context.Context, _ mark.Seen) (mark.Verdict, error) {
	f.judged++
	return mark.Foreign, ctx.Err()
}

// A caller that hangs up does not keep the process from comparing the database.
func TestLookOutlivesItsCaller(t *testing.T) {
	t.Parallel()
	f := &foreignMark{}
	m := &marks{keeper: mark.Keeper{Object: f, Book: f}}
	gone, hangUp := context.WithCancel(t.Context())
	hangUp()
	for _, ctx := range []context.Context{gone, t.Context()} {
		if err := m.look(ctx, slog.New(slog.DiscardHandler)); err != nil && !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
	if f.judged == 0 {
		t.Error("the caller hung up: the database was not compared, and the next request was let through")
	}
}
