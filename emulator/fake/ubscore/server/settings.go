package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/fencepost/fencepost/emulator/fake/ubscore/core"
)

// settings are the values of the command line and the environment.
type settings struct {
	core.Options
	host, port string
	secret     string // never printed
}

const usage = `ubscore keeps trading accounts in memory and on disk, and serves the protocol of
docs/ubscore.md until SIGTERM; then it ends what is in flight, 8 s at most.
--version prints the version and the commit instead.
GET /healthz answers 200 once it has recovered, 503 HALTED if it could not.

Each flag can be given as the variable in its brackets; the flag goes first. The
secret that callers show comes by UBSCORE_SECRET, or from the file, less the
white space at its end.

`

// minSecret is the least length of the secret in bytes: a shorter one can be guessed.
const minSecret = 16

func parse(args []string, env func(string) string) (settings, error) {
	var s settings
	var horizon, every, secretFile string
	set := flag.NewFlagSet("ubscore", flag.ContinueOnError)
	set.StringVar(&s.Folder, "folder", env("UBSCORE_FOLDER"), "the `folder` of log and snapshots, made if there is none [UBSCORE_FOLDER]")
	set.StringVar(&s.host, "host", cmp.Or(env("UBSCORE_HOST"), "127.0.0.1"), "the `address` to listen on; empty text: all [UBSCORE_HOST]")
	set.StringVar(&s.port, "port", cmp.Or(env("PORT"), "8090"), "the TCP `port` to listen on [PORT]")
	set.StringVar(&secretFile, "secret-file", env("UBSCORE_SECRET_FILE"), "a `file` with the callers' secret [UBSCORE_SECRET_FILE]")
	set.StringVar(&horizon, "horizon", cmp.Or(env("UBSCORE_HORIZON"), core.DefaultHorizon.String()),
		"how old a request may be whose key is not known, as a `duration`; keys are kept as long [UBSCORE_HORIZON]")
	set.StringVar(&every, "snapshot-every", cmp.Or(env("UBSCORE_SNAPSHOT_EVERY"), strconv.Itoa(core.DefaultSnapshotEvery)),
		"how many journal `lines` lie between two snapshots [UBSCORE_SNAPSHOT_EVERY]")
	set.Usage = func() {
		fmt.Fprint(set.Output(), usage)
		set.PrintDefaults()
	}
	if err := set.Parse(args); err != nil {
		return s, err
	}
	var errs []error
	if set.NArg() > 0 {
		errs = append(errs, fmt.Errorf("unexpected argument %q; see --help", set.Arg(0)))
	}
	if s.Folder == "" {
		errs = append(errs, errors.New("--folder is missing: say where log and snapshots are"))
	}
	var err error
	if s.Horizon, err = time.ParseDuration(horizon); err != nil || s.Horizon <= 0 {
		errs = append(errs, fmt.Errorf("--horizon %q: want a duration above 0, such as 720h", horizon))
	}
	if s.SnapshotEvery, err = strconv.Atoi(every); err != nil || s.SnapshotEvery < 1 {
		errs = append(errs, fmt.Errorf("--snapshot-every %q: want a whole number above 0", every))
	}
	s.secret, err = secret(env("UBSCORE_SECRET"), secretFile)
	return s, errors.Join(append(errs, err)...)
}

// secret returns the value of the variable, or the content of the file.
func secret(value, file string) (string, error) {
	if value != "" && file != "" {
		return "", errors.New("UBSCORE_SECRET and --secret-file are both given: want one")
	}
	if file != "" {
		content, err := os.ReadFile(file)
		if err != nil {
			return "", fmt.Errorf("read the secret: %w", err)
		}
		value = strings.TrimRight(string(content), " \t\r\n")
	}
	if len(value) < minSecret {
		return "", fmt.Errorf("the callers' secret is missing or too short: set UBSCORE_SECRET, or --secret-file, to %d bytes or more", minSecret)
	}
	return value, nil
}
