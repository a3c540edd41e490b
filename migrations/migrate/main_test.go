package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/runbooks"
	"github.com/fencepost/fencepost/shared/store/pgcluster"
	"github.com/fencepost/fencepost/shared/store/storetest"
)

// commandVariable makes the test binary run as the command.
const commandVariable = "MIGRATE_IS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(commandVariable) != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// migrate runs the command as a process.
func migrate(t *testing.T, databaseURL string, arguments ...string) (code int, stdout, stderr string) {
	t.Helper()
	self := check.Value(os.Executable())(t)
	cmd := exec.CommandContext(t.Context(), self, arguments...)
	cmd.Env = append(os.Environ(), commandVariable+"=1", "FENCEPOST_DATABASE_URL="+databaseURL)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		if _, ok := errors.AsType[*exec.ExitError](err); !ok {
			t.Fatal(err)
		}
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

func TestUpThenStatus(t *testing.T) {
	t.Parallel()
	cluster := check.Value(pgcluster.Shared())(t)
	name, drop, err := cluster.Clone(t.Context(), "template1")
	check.OK(t)(err)
	t.Cleanup(drop)
	for _, step := range []struct{ command, wantOut, wantErr string }{
		{"status", `(?m)\Apending +0001_\w+\.sql$`, `\A\z`},
		{"up", `\Amigrations applied: [1-9]\d*\n\z`, `file=0001_\w+\.sql`},
		{"up", `\Amigrations applied: 0\n\z`, `\A\z`},
		{"up --grant-to all=pg_monitor,query=pg_monitor --grant-read-to pg_monitor", `\Amigrations applied: 0\n\z`, `\A\z`},
		{"status", `(?m)\A\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ +0001_\w+\.sql$`, `\A\z`},
	} {
		code, stdout, stderr := migrate(t, cluster.URL(name), strings.Fields(step.command)...)
		if code != 0 || !regexp.MustCompile(step.wantOut).MatchString(stdout) || !regexp.MustCompile(step.wantErr).MatchString(stderr) {
			t.Errorf("migrate %s: got code %d, output %q, errors %q, want code 0, %q, %q",
				step.command, code, stdout, stderr, step.wantOut, step.wantErr)
		}
	}
}

func TestExitCodes(t *testing.T) {
	t.Parallel()
	const nowhere = "postgres://owner@127.0.0.1:1/none?connect_timeout=5"
	tests := map[string]struct {
		databaseURL string
		arguments   []string
		want        int
		says        string
	}{
		"help":             {"", []string{"--help"}, 0, "usage: migrate"},
		"help, one dash":   {"", []string{"-help"}, 0, "usage: migrate"},
		"no command":       {nowhere, nil, 2, "got 0 arguments"},
		"two commands":     {nowhere, []string{"up", "status"}, 2, "got 2 arguments"},
		"unknown command":  {nowhere, []string{"down"}, 2, `"down"`},
		"unknown flag":     {nowhere, []string{"--force", "up"}, 2, "-force"},
		"no database":      {"", []string{"up"}, 2, "FENCEPOST_DATABASE_URL"},
		"grants, behind":   {nowhere, []string{"up", "--wait=0s", "--grant-to", "create=a,query=b", "--grant-read-to=c"}, 1, "127.0.0.1:1"},
		"roles alone":      {nowhere, []string{"up", "--grant-to", "a,b"}, 2, `"a" is not FUNCTION=ROLE`},
		"no function":      {nowhere, []string{"up", "--grant-to", "mine=a"}, 2, "the functions are admin, advance,"},
		"no role":          {nowhere, []string{"up", "--grant-to", "create="}, 2, "create=ROLE"},
		"status grants":    {nowhere, []string{"--grant-to=all=a", "status"}, 2, "status grants nothing"},
		"distrust, why":    {nowhere, []string{"distrust"}, 2, "--reason"},
		"a reason for up":  {nowhere, []string{"up", "--reason", "r"}, 2, "--reason"},
		"distrust, nobody": {nowhere, []string{"distrust", "--reason=a clone", "--wait=0s"}, 1, "127.0.0.1:1"},
		"nothing answers":  {nowhere, []string{"up", "--wait=0s"}, 1, "127.0.0.1:1"},
		"no duration":      {nowhere, []string{"up", "--wait=long"}, 2, "-wait"},
		"status, the same": {nowhere, []string{"status", "--wait=0s"}, 1, "127.0.0.1:1"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			code, stdout, stderr := migrate(t, test.databaseURL, test.arguments...)
			if code != test.want || !strings.Contains(stdout+stderr, test.says) {
				t.Errorf("got code %d, output %q, errors %q, want code %d and %q", code, stdout, stderr, test.want, test.says)
			}
		})
	}
}

// The network of a new instance takes its time: the command tries again until the server's port answers.
func TestWaitsForTheFirstConnection(t *testing.T) {
	t.Parallel()
	cluster := check.Value(pgcluster.Shared())(t)
	at := check.Value(url.Parse(storetest.URL(t)))(t)
	reserved := check.Value(net.Listen("tcp", "127.0.0.1:0"))(t)
	at.Host = reserved.Addr().String()
	check.OK(t)(reserved.Close())
	const away = 3 * time.Second
	time.AfterFunc(away, func() { forward(t, at.Host, cluster.Addr()) })
	began := time.Now()
	code, stdout, stderr := migrate(t, at.String(), "status", "--wait=1m")
	if code != 0 || !strings.Contains(stdout, "0001_") || time.Since(began) < away {
		t.Errorf("got code %d after %s, output %q, errors %q, want the list of migrations once the port is there", code, time.Since(began), stdout, stderr)
	}
	if tries := strings.Count(stderr, "no connection to the database after "); tries < 2 || !strings.Contains(stderr, "trying for up to 1m0s: ") {
		t.Errorf("progress: got %q, want a line for each failed try", stderr)
	}
}

// forward listens at an address for connections to another one, until t ends.
func forward(t *testing.T, from, to string) {
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", from)
	if err != nil {
		t.Error(err)
		return
	}
	context.AfterFunc(t.Context(), func() { _ = listener.Close() })
	for {
		near, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer near.Close()
			far, err := net.Dial("tcp", to)
			if err != nil {
				return
			}
			defer far.Close()
			go func() { _, _ = io.Copy(far, near) }()
			_, _ = io.Copy(near, far)
		}()
	}
}

// A server that refuses the login is there: waiting would not help.
func TestDoesNotWaitForARightPassword(t *testing.T) {
	t.Parallel()
	at := check.Value(url.Parse(storetest.URL(t)))(t)
	at.User = url.UserPassword("nobody", "wrong")
	began := time.Now()
	code, _, stderr := migrate(t, at.String(), "status")
	if code != 1 || !strings.Contains(stderr, "nobody") || time.Since(began) > time.Minute {
		t.Errorf("got code %d after %s, errors %q, want 1 at once with the server's reason", code, time.Since(began), stderr)
	}
}

// ranElsewhere names the test of each other command that a runbook runs by the migration job.
var ranElsewhere = map[string]string{
	"expect-move":  "TestPlannedUpgrade", // emulator/acceptance/moves runs both
	"confirm-move": "TestPlannedUpgrade",
}

// A test runs each command that a runbook runs by the migration job; this test runs distrust. It
// leaves a database that was not accepted.
func TestArgumentsOfRunbooksRun(t *testing.T) {
	t.Parallel()
	pages := check.Value(runbooks.Pages("../../docs/runbooks"))(t)
	ran := 0
	for name, page := range pages {
		for _, given := range regexp.MustCompile(`gcloud run jobs execute fencepost-migrate .*--args='([^']+)'`).FindAllStringSubmatch(page, -1) {
			arguments := strings.Split(given[1], ",") // as gcloud splits them
			if arguments[0] != "distrust" {
				if ranElsewhere[arguments[0]] == "" {
					t.Errorf("%s: migrate %q: got no test that runs it, want it in ranElsewhere", name, arguments)
				}
				continue
			}
			ran++
			url := storetest.URL(t)
			if code, stdout, stderr := migrate(t, url, arguments...); code != 0 {
				t.Errorf("%s: migrate %q: got code %d, %q %q; want 0", name, arguments, code, stdout, stderr)
			}
			conn := check.Value(pgx.Connect(t.Context(), url))(t)
			var accepted bool
			check.OK(t)(conn.QueryRow(t.Context(), `select is_accepted_database()`).Scan(&accepted))
			check.Equal(t, fmt.Sprintf("%s: accepted after migrate %q", name, arguments), accepted, false)
			_ = conn.Close(t.Context())
		}
	}
	if ran == 0 {
		t.Error("restore.md: got no distrust, want it named")
	}
}

// The owner decides, with a name and a reason, whether intents need a MAC.
func TestRuleOfMACs(t *testing.T) {
	t.Parallel()
	databaseURL := storetest.URL(t)
	said := []string{"--by", "ann", "--reason", "the last old function has ended"}
	for _, step := range []struct {
		arguments []string
		code      int
		out       string
	}{
		{[]string{"require-macs"}, 2, ""},
		{append([]string{"require-macs"}, said...), 0, "an intent needs a MAC; those up to seq 0 may be without one, and 0 of them are open"},
		{append([]string{"require-macs"}, said...), 0, "nothing was changed"},
		{append([]string{"allow-unmarked"}, said...), 0, "intents without a MAC get nonces"},
	} {
		code, out, errs := migrate(t, databaseURL, step.arguments...)
		if code != step.code || !strings.Contains(out, step.out) {
			t.Errorf("%v: got exit %d, %q, %q; want exit %d and %q", step.arguments, code, out, errs, step.code, step.out)
		}
	}
	conn := check.Value(pgx.Connect(t.Context(), databaseURL))(t)
	defer conn.Close(t.Context())
	var last string
	check.OK(t)(conn.QueryRow(t.Context(), `select required || ' by ' || by || ': ' || reason from intent_mac_rule order by id desc limit 1`).Scan(&last))
	check.Equal(t, "on record", last, "false by ann: the last old function has ended")
}
