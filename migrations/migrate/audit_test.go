package main

import (
	"strings"
	"testing"

	"github.com/fsouza/fake-gcs-server/fakestorage"
	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/mark"
	"github.com/fencepost/fencepost/shared/mark/gcs"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/storetest"
)

const changed = `
insert into submitter (submitter, signer, start_nonce, max_in_flight, callers, created_by)
values ('eip155:1:0x00000000000000000000000000000000000000a1', 'local', 0, 9, '{*}', 'test');
insert into submitter_change (submitter, action, by, reason) select submitter, 'SUSPEND', 'ann', 'because' from submitter`

// The command reports rows that do not fit the chain, and a chain that does not fit the mark.
func TestVerifyAudit(t *testing.T) {
	databaseURL := storetest.URL(t)
	conn := check.Value(pgx.Connect(t.Context(), databaseURL))(t)
	defer conn.Close(t.Context())
	server := check.Value(fakestorage.NewServerWithOptions(fakestorage.Options{Scheme: "http", Host: "127.0.0.1"}))(t)
	defer server.Stop()
	server.CreateBucketWithOpts(fakestorage.CreateBucketOpts{Name: "marks"})
	endpoint := server.URL() + "/storage/v1/"

	expect := func(code int, words ...string) {
		t.Helper()
		got, out, stderr := migrate(t, databaseURL, "verify-audit")
		for _, w := range words {
			if got != code || !strings.Contains(out+stderr, w) {
				t.Errorf("got exit code %d, %s%s; want %d and %q", got, out, stderr, code, w)
			}
		}
	}
	must := func(statement string) {
		t.Helper()
		check.OK(t)(conn.Exec(t.Context(), statement))
	}
	must(changed)
	expect(0, "1 audit rows of 1 submitters", "not compared with the mark", "the audit rows are complete")

	t.Setenv("FENCEPOST_MARK_BUCKET", "marks")
	t.Setenv("FENCEPOST_MARK_ENDPOINT", endpoint)
	expect(1, "there is no mark")
	advance(t, databaseURL, endpoint)
	expect(0, "the last seal is 1, and 0 rows were written since", "the mark names seal 1, as the database does", "the audit rows are complete")

	must(`begin; set local session_replication_role = replica; update submitter_change set by = 'eve'; commit`)
	expect(1, "NOT COMPLETE: eip155:1:0x00000000000000000000000000000000000000a1: link 1 does not fit its row", "docs/runbooks/audit.md")
	must(`begin; set local session_replication_role = replica; delete from audit_link; delete from audit_head; delete from audit_seal; commit;
		select link_audit(submitter, id, null, session_user) from submitter_change; select seal_audit('m')`)
	expect(1, "NOT COMPLETE: seal 1 differs from the one in the mark")
}

// advance writes the next mark, as a sweep does.
func advance(t *testing.T, databaseURL, endpoint string) {
	t.Helper()
	object := check.Value(gcs.Open(t.Context(), "marks", mark.ObjectName, endpoint))(t)
	defer object.Close()
	s := check.Value(store.Open(t.Context(), store.Options{URL: databaseURL, MaxConns: 1}))(t)
	defer s.Close()
	check.OK(t)((mark.Keeper{Object: object, Book: s}).Advance(t.Context(), store.MarkOfSweep))
}
