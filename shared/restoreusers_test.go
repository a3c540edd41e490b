package shared_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/shared/check"
)

// restoreUsers runs the script beside a fake terraform that shows the state and records its other calls.
func restoreUsers(t *testing.T, state string, arguments ...string) (calls []string, status int) {
	t.Helper()
	if _, err := exec.LookPath("jq"); err != nil {
		t.Skip("jq is not installed")
	}
	folder := t.TempDir()
	fake := "#!/bin/sh\nif [ \"$2\" = show ]; then cat " + folder + "/state; else shift; echo \"$*\" >> " + folder + "/calls; fi\n"
	check.OK(t)(0, os.WriteFile(filepath.Join(folder, "terraform"), []byte(fake), 0o755))
	check.OK(t)(0, os.WriteFile(filepath.Join(folder, "state"), []byte(state), 0o600))
	c := exec.Command("../scripts/restore-users", arguments...)
	c.Env = append(os.Environ(), "PATH="+folder+":"+os.Getenv("PATH"))
	out, err := c.CombinedOutput()
	t.Logf("%v: %s", err, out)
	text, _ := os.ReadFile(filepath.Join(folder, "calls"))
	return strings.Split(strings.TrimSpace(string(text)), "\n"), c.ProcessState.ExitCode()
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
	calls, status := restoreUsers(t, state("fencepost", ""), "restored", "-var-file=a.tfvars")
	check.Equal(t, "status", status, 0)
	check.Equal(t, "calls", strings.Join(calls, "\n"), strings.Join(append([]string{"state rm module.database"}, imported...), "\n"))

	again := state("restored", `, {"address": "module.database.google_sql_user.function[\"create\"]", "type": "google_sql_user", "name": "function", "values": {}}`)
	calls, status = restoreUsers(t, again, "restored", "-var-file=a.tfvars")
	check.Equal(t, "status after an error", status, 0)
	check.Equal(t, "calls after an error", strings.Join(calls, "\n"), strings.Join([]string{imported[1], imported[3], imported[4]}, "\n"))

	calls, status = restoreUsers(t, `{"values": {"root_module": {}}}`, "restored")
	check.Equal(t, "calls and status of another state", strings.Join(calls, "\n")+" "+string(rune('0'+status)), " 1")
	_, status = restoreUsers(t, "{}")
	check.Equal(t, "status without an instance", status, 2)
}
