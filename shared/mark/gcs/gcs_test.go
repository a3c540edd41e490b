package gcs_test

import (
	"errors"
	"testing"

	"github.com/fsouza/fake-gcs-server/fakestorage"

	"github.com/fencepost/fencepost/shared/mark"
	"github.com/fencepost/fencepost/shared/mark/gcs"
	"github.com/fencepost/fencepost/shared/store/storetest"
)

// open returns the object in a separate storage, over HTTP with the real client.
func open(t *testing.T) *gcs.Object {
	t.Helper()
	server, err := fakestorage.NewServerWithOptions(fakestorage.Options{Scheme: "http", Host: "127.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	server.CreateBucketWithOpts(fakestorage.CreateBucketOpts{Name: "marks"})
	o, err := gcs.Open(t.Context(), "marks", "database-mark", server.URL()+"/storage/v1/")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = o.Close() })
	return o
}

// A write over another generation than the present one is refused, also the first write.
func TestWritesOverOneGeneration(t *testing.T) {
	t.Parallel()
	o := open(t)
	if _, err := o.Read(t.Context()); !errors.Is(err, mark.ErrNone) {
		t.Fatalf("nothing written: got %v, want %v", err, mark.ErrNone)
	}
	if err := o.Write(t.Context(), mark.Mark{ID: "1"}, 0); err != nil {
		t.Fatalf("the first mark: %v", err)
	}
	first, err := o.Read(t.Context())
	if err != nil || first.ID != "1" || first.Generation == 0 {
		t.Fatalf("read: got %+v, %v", first, err)
	}
	if err := o.Write(t.Context(), mark.Mark{ID: "2"}, 0); !errors.Is(err, mark.ErrMoved) {
		t.Errorf("over none, where there is one: got %v, want %v", err, mark.ErrMoved)
	}
	if err := o.Write(t.Context(), mark.Mark{ID: "2"}, first.Generation); err != nil {
		t.Errorf("over the one that is there: %v", err)
	}
	if err := o.Write(t.Context(), mark.Mark{ID: "3"}, first.Generation); !errors.Is(err, mark.ErrMoved) {
		t.Errorf("over one that is gone: got %v, want %v", err, mark.ErrMoved)
	}
	if second, err := o.Read(t.Context()); err != nil || second.ID != "2" || second.Generation <= first.Generation {
		t.Errorf("read: got %+v, %v; want the second, of a later generation", second, err)
	}
}

// A backup that is restored into the same cluster has the same identity. The mark detects it: its own
// rows distrust it, and the mark is unchanged. An operator accepts it, and then the other database is
// foreign.
func TestH08RestoredBackupIsDetected(t *testing.T) {
	t.Parallel()
	o := open(t)
	db := storetest.New(t)
	live := mark.Keeper{Object: o, Book: db.Store}
	if err := live.Advance(t.Context(), "test"); err != nil {
		t.Fatalf("the first mark: %v", err)
	}
	backup := storetest.Copy(t, db)
	db = storetest.Again(t, db)
	live.Book = db.Store
	if err := live.Advance(t.Context(), "test"); err != nil {
		t.Fatalf("the second mark: %v", err)
	}
	current, err := o.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	restored := mark.Keeper{Object: o, Book: backup.Store}
	if !ours(t, backup) {
		t.Fatal("the backup by its identity alone: got it detected, want it accepted, or the test proves nothing")
	}
	if err := restored.Advance(t.Context(), "test"); !errors.Is(err, mark.ErrForeign) {
		t.Errorf("the backup: got %v, want %v", err, mark.ErrForeign)
	}
	if ours(t, backup) || !ours(t, db) {
		t.Errorf("believed: got backup %v, live %v; want the live one alone", ours(t, backup), ours(t, db))
	}
	if now, err := o.Read(t.Context()); err != nil || now != current {
		t.Errorf("the mark: got %+v, %v; want %+v untouched", now, err, current)
	}
	if err := backup.AdoptMark(t.Context(), current, "operator"); err != nil {
		t.Fatal(err)
	}
	if _, err := backup.Prepare(t.Context(), current.Generation, "test"); !errors.Is(err, mark.ErrForeign) {
		t.Errorf("a mark of a database that is not accepted: got %v, want %v", err, mark.ErrForeign)
	}
	if err := backup.AcceptDatabase(t.Context(), "operator", "reconciled"); err != nil {
		t.Fatal(err)
	}
	if err := restored.Advance(t.Context(), "accepted"); err != nil {
		t.Errorf("the accepted backup: %v", err)
	}
	if err := live.Advance(t.Context(), "test"); !errors.Is(err, mark.ErrForeign) || ours(t, db) {
		t.Errorf("the other one: got %v, believed %v; want %v", err, ours(t, db), mark.ErrForeign)
	}
}

// The object was lost with its region. The database that an operator accepts in another region writes
// the first mark of a new object. Otherwise it would never be compared again.
func TestAcceptanceWritesTheFirstMarkOfALostObject(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	if err := (mark.Keeper{Object: open(t), Book: db.Store}).Advance(t.Context(), "test"); err != nil {
		t.Fatalf("the first mark: %v", err)
	}
	anew := mark.Keeper{Object: open(t), Book: db.Store}
	if err := db.AdoptMark(t.Context(), mark.Observed{}, "operator"); err != nil {
		t.Fatal(err)
	}
	if err := anew.Advance(t.Context(), "test"); !errors.Is(err, mark.ErrGone) {
		t.Fatalf("a database that is believed: got %v, want %v, and no new mark", err, mark.ErrGone)
	}
	if _, err := db.DB.Exec(t.Context(), `update database_identity set timeline_id = -1`); err != nil {
		t.Fatal(err)
	}
	if err := db.AdoptMark(t.Context(), mark.Observed{}, "operator"); err != nil {
		t.Fatal(err)
	}
	if err := db.AcceptDatabase(t.Context(), "operator", "the region is lost"); err != nil {
		t.Fatal(err)
	}
	if err := anew.Advance(t.Context(), "accepted"); err != nil {
		t.Errorf("the accepted database: %v", err)
	}
	if _, err := anew.Compare(t.Context()); err != nil {
		t.Errorf("compare: %v", err)
	}
}

func ours(t *testing.T, db storetest.Bundle) (is bool) {
	t.Helper()
	if err := db.DB.QueryRow(t.Context(), `select is_accepted_database()`).Scan(&is); err != nil {
		t.Fatal(err)
	}
	return is
}
