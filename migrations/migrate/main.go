// Command migrate brings the database to the newest schema. It runs as a job before a release's
// functions are deployed. The changelog states which releases require that the previous release's
// functions are stopped meanwhile.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencepost/fencepost/migrations"
	"github.com/fencepost/fencepost/shared/buildinfo"
	"github.com/fencepost/fencepost/shared/store/cloudsql"
)

const usage = `usage: migrate up [--grant-to FUNCTION=ROLE,…] [--grant-read-to ROLES]
       migrate status
       migrate distrust --reason TEXT
       migrate expect-move --by NAME --reason TEXT
       migrate confirm-move --by NAME --reason TEXT
       migrate cancel-move --by NAME --reason TEXT
       migrate require-macs --by NAME --reason TEXT
       migrate allow-unmarked --by NAME --reason TEXT
       migrate verify-audit
       migrate --version

  up        apply every migration that the database has not seen; two at once are safe
  status    list the migrations and when each was applied
  distrust  say that the database is a copy, though it looks like none: nothing in it is believed, and every submitter
            comes under PROTECT, until an operator accepts it (POST /admin/v1/database/accept). The reason is on record until then

A planned move, as an upgrade or a switch to a replica. Each may be repeated. Who and why are on record:
  expect-move   stop all writes, and write the last mark. Run it on the server that is to be left, before its last copy is made
  confirm-move  on the new server: demand exactly that mark, take the server over, and let writes go on. Every submitter is then
                in PROTECT; POST /admin/v1/database/release-untouched releases those that nothing has happened to
  cancel-move   call the move off: on the server that was to be left, all goes on as before. Elsewhere the database stays in PROTECT

Whether an intent needs a MAC. A new database demands one. Who and why are on record:
  require-macs    refuse intents without a MAC from now on. Run it once no function of a release without MACs runs
  allow-unmarked  sign intents without a MAC again. Run it before a release without MACs is deployed again

Who decided what. It only reads, and any role that reads rows may run it:
  verify-audit    compute the chain over the audit rows anew, and compare it with the seal in the mark. Each row that was changed,
                  removed or put between others is listed

  --grant-to       FUNCTION=ROLE, separated by commas: then give each function's role that function's rights, and take what
                   else it had. all=ROLE is for a role that serves every function
  --grant-read-to  then let these roles, separated by commas, read rows, and see what others' sessions do
  --wait           how long to wait for the first connection, such as 30s; 3m if not given. Each failed try is printed

FENCEPOST_DATABASE_URL is the database, as the role that owns its tables:
postgres://user:password@host:port/database
FENCEPOST_DATABASE_INSTANCE, project:region:instance, is the Cloud SQL instance that it is in, if it is; then the
URL is user=… dbname=… sslmode=disable.
FENCEPOST_MARK_BUCKET and FENCEPOST_MARK_ENDPOINT are those of the functions. A move needs the mark; verify-audit
compares nothing with it where the bucket is not set.

Exit codes: 0 done, 1 failed, 2 called wrongly.
`

// errUsage marks a call with wrong arguments.
var errUsage = errors.New("called wrongly, see migrate --help")

func main() {
	if buildinfo.PrintVersion("migrate", os.Args[1:], os.Stdout) {
		return
	}
	// Cancelling the job sends SIGTERM, and the running migration rolls back.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := realMain(ctx)
	stop()
	switch {
	case errors.Is(err, errUsage):
		fmt.Fprintln(os.Stderr, "migrate:", err)
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, "migrate:", err)
		os.Exit(1)
	}
}

// call is a parsed command line.
type call struct {
	command     string
	databaseURL string
	grants      migrations.Grants
	wait        time.Duration // for the first connection
	reason      string        // for the commands in decided
	by          string        // for the commands in moves
}

var (
	commands = []string{"up", "status", verifyAudit, "distrust", expectMove, confirmMove, cancelMove, requireMACs, allowUnmarked}
	decided  = commands[3:] // commands that require a reason
	moves    = commands[4:] // commands that also require an operator's name
)

func realMain(ctx context.Context) error {
	c, err := parse(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		_, err := fmt.Print(usage)
		return err
	} else if err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	var how []migrations.Option
	var dial pgconn.DialFunc
	if name := os.Getenv("FENCEPOST_DATABASE_INSTANCE"); name != "" {
		instance := cloudsql.New(name)
		defer instance.Close()
		dial = instance.Dial
		how = append(how, migrations.Dial(dial))
	}
	report := func(waited time.Duration, err error) {
		fmt.Fprintf(os.Stderr, "migrate: no connection to the database after %s, trying for up to %s: %v\n", waited.Round(time.Second), c.wait, err)
	}
	if err := migrations.Await(ctx, c.databaseURL, c.wait, report, how...); err != nil {
		return err
	}
	switch c.command {
	case "up":
		return up(ctx, c, how)
	case "distrust":
		return migrations.Distrust(ctx, c.databaseURL, c.reason, how...)
	case expectMove, confirmMove, cancelMove:
		return move(ctx, c, dial)
	case verifyAudit:
		return audit(ctx, c, dial)
	case requireMACs, allowUnmarked:
		return macs(ctx, c, how)
	}
	return status(ctx, c.databaseURL, how)
}

// listed returns the words of a comma-separated list.
func listed(text string) []string {
	return slices.DeleteFunc(strings.Split(text, ","), func(word string) bool { return word == "" })
}

// functionsByRole reads FUNCTION=ROLE,… and returns the functions of each role.
func functionsByRole(text string) (map[string][]string, error) {
	functions, err := migrations.Functions()
	if err != nil {
		return nil, err
	}
	byRole := make(map[string][]string)
	for _, word := range listed(text) {
		function, role, both := strings.Cut(word, "=")
		if !both || role == "" || function != migrations.EveryFunction && !slices.Contains(functions, function) {
			return nil, fmt.Errorf("%q is not FUNCTION=ROLE: the functions are %s; write such as create=ROLE, or %s=ROLE for a role that serves every function", word, strings.Join(functions, ", "), migrations.EveryFunction)
		}
		byRole[role] = append(byRole[role], function)
	}
	return byRole, nil
}

// parse reads the arguments. Flags may stand before or after the command.
func parse(arguments []string) (c call, err error) {
	flags := flag.NewFlagSet("migrate", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // main prints the error once
	flags.Func("grant-to", "", func(text string) (err error) {
		c.grants.Functions, err = functionsByRole(text)
		return err
	})
	flags.Func("grant-read-to", "", func(text string) error {
		c.grants.Readers = listed(text)
		return nil
	})
	flags.DurationVar(&c.wait, "wait", 3*time.Minute, "")
	flags.StringVar(&c.reason, "reason", "", "")
	flags.StringVar(&c.by, "by", "", "")
	var words []string
	for rest := arguments; ; rest = flags.Args()[1:] {
		if err := flags.Parse(rest); err != nil {
			return c, err
		}
		if flags.NArg() == 0 {
			break
		}
		words = append(words, flags.Arg(0))
	}
	if len(words) != 1 {
		return c, fmt.Errorf("got %d arguments, want one: %s", len(words), strings.Join(commands, ", "))
	}
	if c.command = words[0]; !slices.Contains(commands, c.command) {
		return c, fmt.Errorf("got command %q, want one of %s", c.command, strings.Join(commands, ", "))
	}
	if c.command != "up" && len(c.grants.Functions)+len(c.grants.Readers) > 0 {
		return c, fmt.Errorf("%s grants nothing", c.command)
	}
	if c.reason = strings.TrimSpace(c.reason); slices.Contains(decided, c.command) != (c.reason != "") {
		return c, fmt.Errorf("--reason is required by %s: it is stored", strings.Join(decided, ", "))
	}
	if c.by = strings.TrimSpace(c.by); slices.Contains(moves, c.command) != (c.by != "") {
		return c, fmt.Errorf("--by is required by %s: give your name, which is stored", strings.Join(moves, ", "))
	}
	if c.databaseURL = os.Getenv("FENCEPOST_DATABASE_URL"); c.databaseURL == "" {
		return c, errors.New("FENCEPOST_DATABASE_URL is not set")
	}
	return c, nil
}

// up applies and logs the migrations, prints their number, and then grants rights.
func up(ctx context.Context, c call, how []migrations.Option) error {
	applied, err := migrations.Up(ctx, c.databaseURL, slog.New(slog.NewTextHandler(os.Stderr, nil)), how...)
	if applied > 0 || err == nil {
		fmt.Printf("migrations applied: %d\n", applied)
	}
	if err != nil {
		return err
	}
	err = migrations.Grant(ctx, c.databaseURL, c.grants, how...)
	if errors.Is(err, migrations.ErrNoSessions) || errors.Is(err, migrations.ErrTemporaryTables) { // the deployment works without these rights
		fmt.Fprintln(os.Stderr, "migrate: warning:", err)
		return nil
	}
	return err
}

// status prints one line per migration.
func status(ctx context.Context, databaseURL string, how []migrations.Option) error {
	states, err := migrations.Status(ctx, databaseURL, how...)
	if err != nil {
		return err
	}
	for _, state := range states {
		appliedAt := "pending"
		if !state.AppliedAt.IsZero() {
			appliedAt = state.AppliedAt.UTC().Format("2006-01-02 15:04:05Z")
		}
		fmt.Printf("%-21s %s\n", appliedAt, state.Name)
	}
	return nil
}

// The commands that decide which intents may be without a MAC.
const (
	requireMACs   = "require-macs"
	allowUnmarked = "allow-unmarked"
)

func macs(ctx context.Context, c call, how []migrations.Option) error {
	rule, err := migrations.RequireMACs(ctx, c.databaseURL, c.command == requireMACs, c.by, c.reason, how...)
	switch {
	case err != nil:
		return err
	case !rule.Changed:
		fmt.Println("nothing was changed: that is the rule already")
	}
	if c.command == allowUnmarked {
		fmt.Printf("intents without a MAC get nonces; open intents without one: %d\nnext: migrate require-macs, once every function that accepts intents makes MACs.\n", rule.Unmarked)
		return nil
	}
	fmt.Printf("an intent needs a MAC; those up to seq %d may be without one, and %d of them are open\n", rule.Upto, rule.Unmarked)
	return nil
}
