package shared_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/shared/check"
)

// restoreUsers runs the script beside a fake terraform that shows the state and records its other calls, and a fake gcloud
// that knows the instance restored.
func restoreUsers(t *testing.T, state string, arguments ...string) (calls []string, out string, status int) {
	t.Helper()
	if _, err := exec.LookPath("jq"); err != nil {
		t.Skip("jq is not installed")
	}
	folder := t.TempDir()
	fake := "#!/bin/sh\nif [ \"$2\" = show ]; then cat " + folder + "/state; else shift; echo \"$*\" >> " + folder + "/calls; fi\n"
	check.OK(t)(os.WriteFile(filepath.Join(folder, "terraform"), []byte(fake), 0o755))
	gcloud := "#!/bin/sh\ncase \"$*\" in 'sql instances describe restored --project=p '*) echo restored;; *) echo 'HTTPError 404' >&2; exit 1;; esac\n"
	check.OK(t)(os.WriteFile(filepath.Join(folder, "gcloud"), []byte(gcloud), 0o755))
	check.OK(t)(os.WriteFile(filepath.Join(folder, "state"), []byte(state), 0o600))
	c := exec.Command("../scripts/restore-users", arguments...)
	c.Env = append(os.Environ(), "PATH="+folder+":"+os.Getenv("PATH"))
	printed, err := c.CombinedOutput()
	t.Logf("%v: %s", err, printed)
	text, _ := os.ReadFile(filepath.Join(folder, "calls"))
	return strings.Split(strings.TrimSpace(string(text)), "\n"), string(printed), c.ProcessState.ExitCode()
}

const accountsInState = `
	{"address": "google_service_account.function[\"create\"]", "type": "google_service_account", "name": "function", "index": "create", "values": {"account_id": "fencepost-create", "project": "p"}},
	{"address": "google_service_account.migrate", "type": "google_service_account", "name": "migrate", "values": {"account_id": "fencepost-migrate", "project": "p"}},
	{"address": "google_project_iam_member.account[\"x\"]", "type": "google_project_iam_member", "name": "account", "index": "x", "values": {"role": "roles/cloudsql.instanceUser", "member": "user:ada@example.com", "project": "p"}},
	{"address": "google_project_iam_member.account[\"y\"]", "type": "google_project_iam_member", "name": "account", "index": "y", "values": {"role": "roles/cloudsql.client", "member": "user:ada@example.com", "project": "p"}}`

// The restored instance takes the old one's place with its database and each user, also after an error
// in the middle, and no other state is taken.
func TestRestoreUsersImportsWhatIsMissing(t *testing.T) {
	t.Parallel()
	const database = `{"address": "module.database", "resources": [{"address": "module.database.google_sql_database_instance.this", "type": "google_sql_database_instance", "name": "this", "values": {"name": "NAME"}}%]}`
	state := func(name, more string) string {
		return `{"values": {"root_module": {"resources": [` + accountsInState + `], "child_modules": [` + strings.NewReplacer("NAME", name, "%", more).Replace(database) + `]}}}`
	}
	imported := []string{
		`import -var-file=a.tfvars module.database.google_sql_database_instance.this projects/p/instances/restored`,
		`import -var-file=a.tfvars module.database.google_sql_database.this projects/p/instances/restored/databases/fencepost`,
		`import -var-file=a.tfvars module.database.google_sql_user.function["create"] p/restored/fencepost-create@p.iam`,
		`import -var-file=a.tfvars module.database.google_sql_user.migrator p/restored/fencepost-migrate@p.iam`,
		`import -var-file=a.tfvars module.database.google_sql_user.reader["ada@example.com"] p/restored/ada@example.com`,
	}
	const user = `, {"address": "module.database.google_sql_user.function[\"create\"]", "type": "google_sql_user", "name": "function", "values": {}}`
	replica := func(name string) string {
		return `, {"address": "module.database.google_sql_database_instance.replica[0]", "type": "google_sql_database_instance", "name": "replica", "index": 0, "values": {"name": "` + name + `"}}`
	}
	const old = `module.database.google_sql_database_instance.this`
	for _, test := range []struct {
		name, state string
		want        []string
	}{
		{"a restored instance", state("fencepost", ""), append([]string{"state rm " + old}, imported...)},
		{"again after an error", state("restored", user), []string{imported[1], imported[3], imported[4]}},
		// The replica is still the old instance's: out of the state, a plan would no longer show it.
		{"beside a replica", state("fencepost", user+replica("fencepost-replica")), append([]string{`state rm ` + old + ` module.database.google_sql_user.function["create"]`}, imported...)},
		{"a promoted replica", state("fencepost", replica("restored")), append([]string{`state rm ` + old + ` module.database.google_sql_database_instance.replica[0]`}, imported...)},
	} {
		calls, out, status := restoreUsers(t, test.state, "restored", "-var-file=a.tfvars")
		check.Equal(t, test.name+": status", status, 0)
		check.Equal(t, test.name+": calls", strings.Join(calls, "\n"), strings.Join(test.want, "\n"))
		for _, call := range test.want {
			words := strings.Fields(call)
			if last := words[len(words)-1]; !strings.Contains(out, last+"\n") {
				t.Errorf("%s: got\n%s\nwant %s printed", test.name, out, last)
			}
		}
		if kept := strings.Contains(out, "fencepost-replica is the old instance's"); kept != strings.Contains(test.state, "fencepost-replica") {
			t.Errorf("%s: got a replica that stays: %t, in\n%s", test.name, kept, out)
		}
	}
}

// Nothing is removed for an instance that is not there, or from another state.
func TestRestoreUsersStopsBeforeItRemoves(t *testing.T) {
	t.Parallel()
	state := `{"values": {"root_module": {"resources": [` + accountsInState + `, {"address": "module.database.google_sql_database_instance.this", "type": "google_sql_database_instance", "values": {"name": "fencepost"}}]}}}`
	calls, out, status := restoreUsers(t, state, "mistyped")
	check.Equal(t, "calls and status of a missing instance", strings.Join(calls, "\n")+" "+string(rune('0'+status)), " 1")
	if !strings.Contains(out, "nothing was changed") {
		t.Errorf("a missing instance: got %q, want that nothing was changed", out)
	}
	calls, _, status = restoreUsers(t, `{"values": {"root_module": {}}}`, "restored")
	check.Equal(t, "calls and status of another state", strings.Join(calls, "\n")+" "+string(rune('0'+status)), " 1")
	_, _, status = restoreUsers(t, "{}")
	check.Equal(t, "status without an instance", status, 2)
}
