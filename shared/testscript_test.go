package shared_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/shared/check"
)

// CI tests the version that Terraform deploys or fails; elsewhere another version is a warning. Here the only Postgres is one
// in PATH.
func TestOtherPostgresIsRefusedWhereItIsRequired(t *testing.T) {
	t.Parallel()
	for version, refused := range map[string]bool{"17.10": false, "15.14 (Debian 15.14-0+deb12u1)": true, "18.1": true} {
		folder := t.TempDir()
		for name, text := range map[string]string{"pg_ctl": "", "postgres": fmt.Sprintf("echo 'postgres (PostgreSQL) %s'\n", version)} {
			check.OK(t)(os.WriteFile(filepath.Join(folder, name), []byte("#!/bin/sh\n"+text), 0o755))
		}
		for _, require := range []bool{false, true} {
			script := `set -euo pipefail; source ../scripts/lib/postgres.sh; postgres_complete() { return 1; }; use_postgres_17`
			if require {
				script += `; refuse_other_postgres`
			}
			c := exec.Command("bash", "-c", script)
			c.Env = append(os.Environ(), "PATH="+folder+":"+os.Getenv("PATH"))
			out, err := c.CombinedOutput()
			if (err != nil) != (refused && require) || strings.Contains(string(out), "not the version 17") != refused {
				t.Errorf("%s, required %t: got %v and\n%s\nwant it refused: %t", version, require, err, out, refused)
			}
		}
	}
	ci := string(check.Value(os.ReadFile("../.ci/run"))(t))
	if !regexp.MustCompile(`\./scripts/test .*--require-postgres-17\b`).MatchString(ci) {
		t.Errorf(".ci/run: got\n%s\nwant another Postgres refused", ci)
	}
	c := exec.Command("../scripts/test", "--require-nothing")
	if out, _ := c.CombinedOutput(); c.ProcessState.ExitCode() != 2 || !strings.Contains(string(out), "--require-nothing") {
		t.Errorf("another flag: got %d and %q, want 2", c.ProcessState.ExitCode(), out)
	}
}
