package moves

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/mark"
)

const copied = "the database is not the one written last"

// noticed waits until every submitter is in PROTECT, and checks that nothing is accepted
// or signed any more. A submitter may be in PROTECT by what the chain shows: that is
// seen before the mark is read, where the copy is used at once.
func (d *deployment) noticed(l *load) {
	d.t.Helper()
	var in int
	d.poll("every submitter is in PROTECT", func() bool {
		err := d.DB.QueryRow(d.ctx, `select count(*) from protect_incident where closed_at is null`).Scan(&in)
		return err == nil && in == len(d.everyone())
	})
	d.poll("the database is not believed", func() bool { return !value[bool](d, `select is_accepted_database()`) })
	for _, s := range d.Submitters() {
		var status int
		var text string
		d.poll("a post is answered", func() bool {
			status, text = l.post(s)
			return status != 0 && status != http.StatusServiceUnavailable
		})
		if status != http.StatusConflict || !strings.Contains(text, "SUBMITTER_PROTECTED") {
			d.t.Errorf("a post for %s: got %d %s, want 409 SUBMITTER_PROTECTED", s, status, text)
		}
	}
	transfers := value[int](d, `select count(*) from transfers_tb`)
	if status, text := l.pay(); status != http.StatusServiceUnavailable {
		d.t.Errorf("a payout: got %d %s, want 503", status, text)
	}
	signed := value[int](d, `select count(*) from tx_version`)
	for range 3 {
		d.sweep()
	}
	wantValue(d, "signed versions (nothing is signed in PROTECT)", signed, `select count(*) from tx_version`)
	wantValue(d, "transfers (none is accepted)", transfers, `select count(*) from transfers_tb`)
}

// accept is the operator's acceptance, after which transfers are halted until a person resumes them.
func (d *deployment) accept() {
	d.t.Helper()
	if status, text := d.operate("/admin/v1/database/accept", map[string]any{"reason": "the rehearsal"}); status != http.StatusNoContent {
		d.t.Fatalf("accept: got %d %s, want 204", status, text)
	}
	wantValue(d, "halts of all transfers", 1, `select count(*) from transfer_halt where scope = 'all' and resumed_at is null`)
}

// A file backup that is put back under load keeps system and timeline. The mark alone
// tells it: every submitter is in PROTECT, transfers stand still, the copy never writes
// the mark, and nothing that ran after the backup runs again.
func TestABackupThatIsPutBackIsNoticedByTheMark(t *testing.T) {
	t.Parallel()
	d := deploy(t, true, stack.Options{})
	l := d.run()
	l.more(40)
	check(t, d.cluster.Backup(d.ctx))
	at := d.marked() // at the latest of the backup
	l.more(40)
	d.minuteLater()
	d.poll("a mark was written after the backup", func() bool { return d.marked().Generation > at.Generation })
	identity := d.identity()
	check(t, d.cluster.PutBack(d.ctx))
	l.stop()

	d.noticed(l)
	written := d.marked()
	d.sweep()
	equal(t, "system and timeline (as before)", d.identity(), identity)
	why := value[string](d, `select accepted_by from database_identity`)
	if !strings.Contains(why, "the mark outside the database is not of this database: id ") {
		t.Errorf("the reason on record: got %q, want that the mark is not of this database", why)
	}
	equal(t, "the mark (a foreign database never writes it)", d.marked(), written)
	wantValue(d, fmt.Sprintf("the copy holds the mark %s", written.ID), 0, `select count(*) from database_mark where id = $1`, written.ID)
	if !d.Log.Has(`PROTECT on every submitter`) {
		t.Error("the log has no line to alert upon")
	}
	d.notCheap()
	d.accept()
	d.notCheap()
	d.sweep()
	if got := d.marked(); got.Generation <= written.Generation {
		t.Errorf("the mark after the acceptance: got generation %d, want one above %d", got.Generation, written.Generation)
	}
	if !value[bool](d, `select is_accepted_database()`) {
		t.Error("the accepted database is not believed")
	}
	d.once()
}

// Without a mark the same restore is not noticed by its identity. This is the limit of the promise
// while mark.bucket is not set.
func TestWithoutTheMarkABackupThatIsPutBackIsNotNoticed(t *testing.T) {
	t.Parallel()
	d := deploy(t, false, stack.Options{SweepEvery: -1})
	d.wantUnnoticed(false)
}

// A copy that is younger than the last mark contains the mark's id. It is not recognised, and later
// commits are lost without notice.
func TestACopyYoungerThanTheLastMarkIsNotDetected(t *testing.T) {
	t.Parallel()
	d := deploy(t, true, stack.Options{SweepEvery: -1})
	d.wantUnnoticed(true)
}

// wantUnnoticed puts back a backup younger than the last mark, and wants it unnoticed.
func (d *deployment) wantUnnoticed(marked bool) {
	d.t.Helper()
	l := d.run()
	l.more(10)
	l.stop()
	l.all()
	d.sweep()
	check(d.t, d.cluster.Backup(d.ctx))
	s := d.Submitters()[0]
	before := value[int64](d, `select count(*) from managed_tx where submitter = $1`, s)
	if status, text := l.post(s); status != http.StatusAccepted {
		d.t.Fatalf("a post after the backup: got %d %s", status, text)
	}
	check(d.t, d.cluster.PutBack(d.ctx))
	d.sweep()
	d.sweep()
	wantValue(d, fmt.Sprintf("intents of %s (what came after the backup is lost)", s), before, `select count(*) from managed_tx where submitter = $1`, s)
	wantValue(d, "the copy is not believed: it is promised more than docs/guarantees.md says", true, `select is_accepted_database()`)
	wantValue(d, "submitters in PROTECT because of the database", 0, `select count(*) from protect_incident where evidence->>'what' like $1 || '%'`, copied)
	other := d.Submitters()[1]
	d.poll("the copy accepts intents", func() bool { status, _ := l.post(other); return status == http.StatusAccepted })
	if marked {
		d.minuteLater()
		d.sweep()
		wantValue(d, "the copy is not believed after its own mark", true, `select is_accepted_database()`)
	}
}

// The mark's object is deleted: the sweep tells, nothing stops, and no other mark is
// written. Once an operator has put the newest version back, marks go on.
func TestAMarkThatIsPutBackIsComparedAgain(t *testing.T) {
	t.Parallel()
	d := deploy(t, true, stack.Options{SweepEvery: -1})
	l := d.run()
	l.more(5)
	d.sweep()
	newest := d.marked()
	d.deleteMark()
	d.minuteLater()
	d.sweep()
	if _, err := d.object.Read(d.ctx); !errors.Is(err, mark.ErrNone) {
		t.Errorf("the deleted mark, after a sweep: got %v, want %v", err, mark.ErrNone)
	}
	if !d.Log.Has(`"message":"the database could not be compared with the mark outside it"`) {
		t.Error("the log does not tell")
	}
	l.more(5)
	check(t, d.object.Write(d.ctx, newest.Mark, 0))
	back := d.marked()
	d.minuteLater()
	d.sweep()
	if now := d.marked(); now.Generation <= back.Generation || now.ID == newest.ID {
		t.Errorf("the mark after a sweep: got %+v, want a new one over %+v", now, back)
	}
	if !value[bool](d, `select is_accepted_database()`) {
		t.Error("the database is not believed")
	}
	l.stop()
	l.all()
	d.once()
}

// deleteMark deletes the object.
func (d *deployment) deleteMark() {
	d.t.Helper()
	request := must(http.NewRequestWithContext(d.ctx, http.MethodDelete, d.Storage.Endpoint()+"b/"+d.Storage.Bucket()+"/o/"+mark.ObjectName, nil))(d.t)
	answer := must(http.DefaultClient.Do(request))(d.t)
	_ = answer.Body.Close()
	if answer.StatusCode >= 300 {
		d.t.Fatalf("delete the mark: got %s", answer.Status)
	}
}
