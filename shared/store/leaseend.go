package store

import (
	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/shared/store/internal/results"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// releaseLease ends lease sessions, unless the rerun flag is set. A session that ends anyway clears the
// flag and raises the token.
var releaseLease = `
update submitter_lease l
   set owner_node = '', rerun_requested = l.rerun_requested and not w.anyway,
       fencing_token = l.fencing_token + w.anyway::int, updated_at = clock_timestamp()
  from ` + RecordSet(releaseColumns, 0, "w") + `
 where l.submitter = w.submitter and l.fencing_token = w.token and (w.anyway or not l.rerun_requested)
   and ` + isHeld + `
returning l.submitter, l.fencing_token`

// releaseColumns are what the end of a session gives to [releaseLease].
var releaseColumns = fencedColumns(partValue("anyway", "boolean", func(e *txmanager.LeaseEnd) bool { return *e == txmanager.ReleaseAnyway }))

// queueRelease adds the ends of the lease sessions to a fenced batch.
func queueRelease(b *pgx.Batch, all fencedCommits) {
	ends := partsOf(all, func(c *fencedCommit) []txmanager.LeaseEnd {
		if c.LeaseEnd == txmanager.KeepLease {
			return nil
		}
		return []txmanager.LeaseEnd{c.LeaseEnd}
	})
	if len(ends) == 0 {
		return
	}
	var submitter string
	var token int64
	b.Queue(releaseLease, RecordArrays(nil, releaseColumns, ends)...).Query(results.Each([]any{&submitter, &token}, func() {
		done := &all.of(submitter).result
		done.Released, done.Token = true, token
	}))
}

// recheckQueue runs after a release has committed. A create that saw the lease held, or the
// window full, enqueued no task: it relied on this query to find its intent. A query in the
// release's own transaction would not see that intent.
var recheckQueue = `
select w.submitter, q.queued, s.status <> 'ACTIVE'
  from unnest($1::text[]) as w (submitter)
  join submitter s on s.submitter = w.submitter
 cross join lateral (
       with recursive ` + openQueue("w.submitter", "$3", "$2") + `
       select count(*) as queued from (select from open limit $2) as few) as q`

// queueRecheck adds that query after the commit.
func (s *Store) queueRecheck(b *pgx.Batch, all fencedCommits) {
	var submitters []string
	for _, c := range all {
		if c.LeaseEnd == txmanager.ReleaseUnlessRerun {
			submitters = append(submitters, c.Lease.Submitter)
		}
	}
	if len(submitters) == 0 {
		return
	}
	var submitter string
	var queued int
	var suspended bool
	b.Queue(recheckQueue, submitters, txmanager.AdvanceNowQueue, s.opts.MACKeys).Query(results.Each([]any{&submitter, &queued, &suspended}, func() {
		done := &all.of(submitter).result
		done.Queued, done.Suspended = queued, suspended
	}))
}
