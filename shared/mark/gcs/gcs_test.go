package gcs_test

import (
	"errors"
	"testing"

	"github.com/fsouza/fake-gcs-server/fakestorage"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/mark"
	"github.com/fencepost/fencepost/shared/mark/gcs"
	"github.com/fencepost/fencepost/shared/store/storetest"
)

// open returns the object in a separate storage, over HTTP with the real client.
func open(t *testing.T) *gcs.Object {
	t.Helper()
	server := check.Value(fakestorage.NewServerWithOptions(fakestorage.Options{Scheme: "http", Host: "127.0.0.1"}))(t)
	t.Cleanup(server.Stop)
	server.CreateBucketWithOpts(fakestorage.CreateBucketOpts{Name: "marks"})
	o := check.Value(gcs.Open(t.Context(), "marks", "database-mark", server.URL()+"/storage/v1/"))(t)
	t.Cleanup(func() { _ = o.Close() })
	return o
}

// A write over another generation than the present one is refused, also the first write.
func TestWritesOverOneGeneration(t *testing.T) {
	t.Parallel()
	o := open(t)
	check.Err(t, "nothing written", mark.ErrNone)(o.Read(t.Context()))
	check.OK(t)(o.Write(t.Context(), mark.Mark{ID: "1"}, 0))
	first, err := o.Read(t.Context())
	if err != nil || first.ID != "1" || first.Generation == 0 {
		t.Fatalf("read: got %+v, %v", first, err)
	}
	check.Err(t, "over none, where there is one", mark.ErrMoved)(o.Write(t.Context(), mark.Mark{ID: "2"}, 0))
	check.Err(t, "over the one that is there", nil)(o.Write(t.Context(), mark.Mark{ID: "2"}, first.Generation))
	check.Err(t, "over one that is gone", mark.ErrMoved)(o.Write(t.Context(), mark.Mark{ID: "3"}, first.Generation))
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
	check.OK(t)(live.Advance(t.Context(), "test"))
	backup := storetest.Copy(t, db)
	db = storetest.At(t, db.URL, storetest.Rules)
	live.Book = db.Store
	check.OK(t)(live.Advance(t.Context(), "test"))
	current := check.Value(o.Read(t.Context()))(t)
	restored := mark.Keeper{Object: o, Book: backup.Store}
	if !ours(t, backup) {
		t.Fatal("the backup by its identity alone: got it detected, want it accepted, or the test proves nothing")
	}
	check.Err(t, "the backup", mark.ErrForeign)(restored.Advance(t.Context(), "test"))
	if ours(t, backup) || !ours(t, db) {
		t.Errorf("believed: got backup %v, live %v; want the live one alone", ours(t, backup), ours(t, db))
	}
	check.Equal(t, "the mark", check.Value(o.Read(t.Context()))(t), current)
	check.OK(t)(backup.AdoptMark(t.Context(), current, "operator"))
	check.Err(t, "a mark of a database that is not accepted", mark.ErrForeign)(backup.Prepare(t.Context(), current.Generation, "test"))
	check.OK(t)(backup.AcceptDatabase(t.Context(), "operator", "reconciled"))
	check.Err(t, "the accepted backup", nil)(restored.Advance(t.Context(), "accepted"))
	if err := live.Advance(t.Context(), "test"); !errors.Is(err, mark.ErrForeign) || ours(t, db) {
		t.Errorf("the other one: got %v, believed %v; want %v", err, ours(t, db), mark.ErrForeign)
	}
}

// The object was lost with its region. The database that an operator accepts in another region writes
// the first mark of a new object. Otherwise it would never be compared again.
func TestAcceptanceWritesTheFirstMarkOfALostObject(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	check.OK(t)((mark.Keeper{Object: open(t), Book: db.Store}).Advance(t.Context(), "test"))
	anew := mark.Keeper{Object: open(t), Book: db.Store}
	check.OK(t)(db.AdoptMark(t.Context(), mark.Observed{}, "operator"))
	check.Err(t, "a database that is believed", mark.ErrGone)(anew.Advance(t.Context(), "test"))
	check.OK(t)(db.DB.Exec(t.Context(), `update database_identity set timeline_id = -1`))
	check.OK(t)(db.AdoptMark(t.Context(), mark.Observed{}, "operator"))
	check.OK(t)(db.AcceptDatabase(t.Context(), "operator", "the region is lost"))
	check.Err(t, "the accepted database", nil)(anew.Advance(t.Context(), "accepted"))
	check.Err(t, "compare", nil)(anew.Compare(t.Context()))
}

func ours(t *testing.T, db storetest.Bundle) (is bool) {
	t.Helper()
	check.OK(t)(db.DB.QueryRow(t.Context(), `select is_accepted_database()`).Scan(&is))
	return is
}
