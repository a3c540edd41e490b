package pgcluster

import (
	"cmp"
	"errors"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
)

// packaged is where Debian and Ubuntu keep each version's server programs,
// which are not in the PATH there.
const packaged = "/usr/lib/postgresql/*/bin"

var errNoBinaries = errors.New("no Postgres server (initdb, pg_ctl, postgres) in PATH or " + packaged +
	": install one with `apt-get install postgresql`, `dnf install postgresql-server` or `brew install postgresql`, and put its bin folder in PATH")

// findBinaries returns the folder of the server's programs: the one in the
// PATH, else the highest version that matches the pattern.
func findBinaries(pattern string) (string, error) {
	if path, err := exec.LookPath("pg_ctl"); err == nil {
		// The programs look for each other beside themselves, not beside a link.
		if real, err := filepath.EvalSymlinks(path); err == nil && hasServer(filepath.Dir(real)) {
			return filepath.Dir(real), nil
		}
	}
	folders, err := filepath.Glob(pattern)
	if err != nil {
		return "", err
	}
	folders = slices.DeleteFunc(folders, func(folder string) bool { return !hasServer(folder) })
	if len(folders) == 0 {
		return "", errNoBinaries
	}
	return slices.MaxFunc(folders, func(a, b string) int { return cmp.Compare(version(a), version(b)) }), nil
}

// hasServer reports whether the folder holds every program that is needed.
func hasServer(folder string) bool {
	for _, program := range []string{"initdb", "pg_ctl", "postgres"} {
		if _, err := exec.LookPath(filepath.Join(folder, program)); err != nil {
			return false
		}
	}
	return true
}

// version reads the number in …/15/bin, or 0.
func version(folder string) float64 {
	number, err := strconv.ParseFloat(filepath.Base(filepath.Dir(folder)), 64)
	if err != nil {
		return 0
	}
	return number
}
