package pgcluster

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/shared/check"
)

// install makes empty programs in the folder.
func install(t *testing.T, folder string, programs ...string) string {
	t.Helper()
	check.OK(t)(os.MkdirAll(folder, 0o755))
	for _, program := range programs {
		check.OK(t)(os.WriteFile(filepath.Join(folder, program), nil, 0o755))
	}
	return folder
}

// These tests set PATH, so they cannot run in parallel.

func TestFindBinariesTakesTheHighestCompleteVersion(t *testing.T) {
	root := t.TempDir()
	t.Setenv("PATH", root)
	install(t, root+"/9.6/bin", "initdb", "pg_ctl", "postgres")
	want := install(t, root+"/10/bin", "initdb", "pg_ctl", "postgres")
	install(t, root+"/11/bin", "pg_ctl")
	got, err := find(errNoBinaries, server, inPath("pg_ctl"), root+"/*/bin")
	if err != nil || got != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
}

func TestFindBinariesPrefersPathAndFollowsLinks(t *testing.T) {
	root := t.TempDir()
	install(t, root+"/16/bin", "initdb", "pg_ctl", "postgres")
	want := install(t, root+"/own", "initdb", "pg_ctl", "postgres")
	path := install(t, root+"/path")
	check.OK(t)(os.Symlink(want+"/pg_ctl", path+"/pg_ctl"))
	t.Setenv("PATH", path)
	got, err := find(errNoBinaries, server, inPath("pg_ctl"), root+"/*/bin")
	if err != nil || got != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
}

func TestFindBinariesSaysWhatToInstall(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := find(errNoBinaries, server, inPath("pg_ctl"), t.TempDir()+"/*/bin")
	if !errors.Is(err, errNoBinaries) || !strings.Contains(err.Error(), "apt-get install postgresql") {
		t.Errorf("got %v, want %v", err, errNoBinaries)
	}
}
