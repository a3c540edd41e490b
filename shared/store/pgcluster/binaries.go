package pgcluster

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
)

// packaged is the folder of each version's server programs in Debian and Ubuntu, where they are not in
// the PATH.
const packaged = "/usr/lib/postgresql/*/bin"

var errNoBinaries = errors.New("no Postgres server (initdb, pg_ctl, postgres) in PATH or " + packaged +
	": install one with `apt-get install postgresql`, `dnf install postgresql-server` or `brew install postgresql`, and put its bin folder in PATH")

// findBinaries returns the folder of the server's programs: the one in the
// PATH, else the highest version that matches the pattern.
func findBinaries(pattern string) (string, error) {
	if path, err := exec.LookPath("pg_ctl"); err == nil {
		// The programs search for each other in their own folder, not beside a link.
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

// ErrNoVersion reports that this machine has no server of a version. The wrapping error says how to get
// one.
var ErrNoVersion = errors.New("there is no Postgres of this version")

// FindVersion returns the folder of the server's programs of a major version, for [Options.Binaries]:
// Debian's, or the one that ./scripts/test has fetched. The error wraps [ErrNoVersion] if there is
// none.
func FindVersion(major int) (string, error) {
	cache := "/var/cache" // a server that root starts runs under another account, which can read this folder
	if os.Geteuid() != 0 {
		var err error
		if cache, err = os.UserCacheDir(); err != nil {
			return "", fmt.Errorf("%w: %w", ErrNoVersion, err)
		}
	}
	for _, pattern := range []string{
		fmt.Sprintf("/usr/lib/postgresql/%d/bin", major), fmt.Sprintf("%s/fencepost/postgres-%d.*/bin", cache, major),
	} {
		folders, err := filepath.Glob(pattern)
		if err != nil {
			return "", err
		}
		if i := slices.IndexFunc(folders, hasServer); i >= 0 {
			return folders[i], nil
		}
	}
	return "", fmt.Errorf("%w: %d; ./scripts/test fetches 17 with npm for Linux on x86_64", ErrNoVersion, major)
}

// FindTools returns the folder of a server that can be copied and upgraded ([Cluster.Backup],
// [Cluster.Replica], [Cluster.Upgrade]), for [Options.Binaries]. The programs for that are not in npm's package.
// The error wraps [ErrNoVersion] if there is none.
func FindTools() (string, error) {
	folders, err := filepath.Glob(packaged)
	if err != nil {
		return "", err
	}
	if path, err := exec.LookPath("pg_upgrade"); err == nil {
		if real, err := filepath.EvalSymlinks(path); err == nil {
			folders = append(folders, filepath.Dir(real))
		}
	}
	for _, folder := range slices.Backward(folders) {
		if hasServer(folder) && hasPrograms(folder, "pg_basebackup", "pg_upgrade") {
			return folder, nil
		}
	}
	return "", fmt.Errorf("%w: one with pg_basebackup and pg_upgrade; install one with `apt-get install postgresql`", ErrNoVersion)
}

// hasServer reports whether the folder has every program that a cluster needs.
func hasServer(folder string) bool {
	return hasPrograms(folder, "initdb", "pg_ctl", "postgres")
}

func hasPrograms(folder string, programs ...string) bool {
	for _, program := range programs {
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
