// Command fencepost calls a deployment of Fencepost from a shell. docs/cli.md describes it.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/fencepost/fencepost/shared/buildinfo"
	"github.com/fencepost/fencepost/shared/client"
)

func main() {
	signal.Ignore(syscall.SIGPIPE) // a reader that has gone is an error of the write, so that an act still tells its outcome
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Getenv, streams{os.Stdin, os.Stdout, os.Stderr})
	stop()
	os.Exit(code)
}

// streams are the program's input and outputs. Results go to out; notes, progress and errors go to err.
type streams struct {
	in       io.Reader
	out, err io.Writer
}

// app is one run of the program.
type app struct {
	streams
	env     func(name string) string
	answers *recorder
	running bool                   // the command line was right, and the command has begun
	hasFlag func(name string) bool // of the running command: whether its line has the flag
	keyed   bool                   // the command sends a request under a key, so that it can be repeated

	json                                  bool
	api, tokenFile, audience, impersonate string // of the flags; "": the environment has them
	within                                time.Duration
	attempt                               time.Duration // of a request; 0: the client's usual limit
	limit                                 int           // of a list's rows; 0: none
	why                                   string        // an act's --reason
}

// run runs one command line and returns the exit code.
func run(ctx context.Context, args []string, env func(string) string, s streams) int {
	a := &app{streams: s, env: env, answers: new(recorder)}
	root := a.root()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	return a.report(ctx, err)
}

const about = `fencepost calls a deployment of Fencepost: it sends transactions, follows them, and does what operators do.

The environment has the deployment and the sign-in:
  FENCEPOST_API             the URL of the deployment, such as https://api.fencepost.example
  FENCEPOST_TOKEN           a caller's OIDC token
  FENCEPOST_OPERATOR_TOKEN  an operator's, for the commands of operators; without it FENCEPOST_TOKEN
  FENCEPOST_USER_TOKEN      a user's, for the transfers of that user; without it FENCEPOST_TOKEN
  FENCEPOST_TOKEN_FILE      a file with the token, read at each request; also with OPERATOR_ or USER_
  FENCEPOST_AUDIENCE        without any token: gcloud makes one for this audience
  FENCEPOST_IMPERSONATE     the service account as which gcloud makes it

Exit status: 0 done; 1 it ended, and not as wanted, such as FAILED; 2 the command line or the environment is
wrong, and nothing was sent; 3 the outcome is not known yet, or a second operator has to approve; 4 this call was
refused, which says nothing about earlier calls with the same request id. An unknown outcome is never a failure:
repeat the command with the same request id, or read the state.`

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use: "fencepost", Short: "Send transactions by Fencepost, and operate it", Long: about,
		Version: buildinfo.Read().Version, SilenceErrors: true, SilenceUsage: true,
		Args: cobra.NoArgs, RunE: chooseCommand,
	}
	root.SetVersionTemplate("fencepost " + buildinfo.Read().String() + "\n")
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.err)
	flags := root.PersistentFlags()
	flags.BoolVar(&a.json, "json", false, "print the API's JSON: one document, or one line for each row of a list")
	flags.StringVar(&a.api, "api", "", "the deployment's `URL`; default: $FENCEPOST_API")
	flags.StringVar(&a.tokenFile, "token-file", "", "the `file` with the token, for all commands")
	flags.StringVar(&a.audience, "audience", "", "sign in by gcloud, for this `audience`; default: $FENCEPOST_AUDIENCE")
	flags.StringVar(&a.impersonate, "impersonate", "", "the service `account` as which gcloud signs in; default: $FENCEPOST_IMPERSONATE")
	flags.DurationVar(&a.within, "within", time.Minute, "how long one request is repeated while it gets no definite answer")
	root.AddCommand(
		a.txGroup(), a.submitterGroup(), a.protectGroup(), a.transferGroup(), a.accountGroup(), a.payoutAddressGroup(), a.assetGroup(), a.haltGroup(),
		a.eventsGroup(), a.webhookGroup(), a.proposalGroup(), a.doctorCommand(), a.versionCommand(), a.manCommand(),
	)
	return root
}

// chooseCommand refuses a group without one of its commands.
func chooseCommand(c *cobra.Command, _ []string) error {
	return usagef("%s needs a command: see %s --help", c.CommandPath(), c.CommandPath())
}

// group returns a command that has the others.
func group(name, short string, commands ...*cobra.Command) *cobra.Command {
	g := &cobra.Command{Use: name, Short: short, Args: cobra.NoArgs, RunE: chooseCommand}
	g.AddCommand(commands...)
	return g
}

// call is one run of a command.
type call struct {
	ctx  context.Context
	api  *client.Client // of [app.call]
	args []string
	ids  []int64 // the numbers among args, each at its argument's place
}

// action is what a command does.
type action func(q call) error

// numbers are the names of arguments that are numbers: of a user, an address or a halt.
var numbers = []string{"USER", "ADDRESS_ID", "HALT"}

// command returns a command whose arguments use names after its own name.
func (a *app) command(use, short string, options []option, do action) *cobra.Command {
	names := strings.Fields(use)[1:]
	c := &cobra.Command{Use: use, Short: short, Args: cobra.ExactArgs(len(names)), RunE: func(c *cobra.Command, args []string) (err error) {
		a.running, a.hasFlag = true, c.Flags().Changed
		if slices.Contains(args, "") {
			return usagef("an argument is empty: want %s", c.UseLine())
		}
		ids := make([]int64, len(args))
		for i, text := range args {
			if !slices.Contains(numbers, names[i]) {
				continue
			}
			if ids[i], err = number(names[i], text); err != nil {
				return err
			}
		}
		return do(call{ctx: c.Context(), args: args, ids: ids})
	}}
	for _, change := range options {
		change(c)
	}
	return c
}

// call is [app.command] for a command that calls the API as the role.
func (a *app) call(as role, use, short string, options []option, do action) *cobra.Command {
	return a.command(use, short, options, func(q call) (err error) {
		if q.api, err = a.client(as); err != nil {
			return err
		}
		return do(q)
	})
}

// act is [app.call] for an operator's act, which needs a reason.
func (a *app) act(use, short string, options []option, do action) *cobra.Command {
	return a.call(operator, use, short, append(options, a.reason()), do)
}

// list is [app.call] for a list, which has a limit.
func (a *app) list(as role, use, short string, options []option, do action) *cobra.Command {
	return a.call(as, use, short, append(options, a.limited()), do)
}

// actOn is [app.act] for a command that prints what the call returns. Its argument is the call's subject.
func actOn[T any](a *app, use, short string, do func(*client.Client, context.Context, string, string) (T, error), print func(T, error) error) *cobra.Command {
	return a.act(use, short, nil, func(q call) error { return print(do(q.api, q.ctx, q.args[0], a.why)) })
}

// show is [app.call] for a command that prints what the call returns. Its argument is the call's subject.
func show[T any](a *app, as role, use, short string, do func(*client.Client, context.Context, string) (T, error), print func(T, error) error) *cobra.Command {
	return a.call(as, use, short, nil, func(q call) error { return print(do(q.api, q.ctx, q.args[0])) })
}

func (a *app) versionCommand() *cobra.Command {
	return a.command("version", "Print the version of this program", nil, func(call) error {
		built := buildinfo.Read()
		if a.json {
			return printJSON(a.out, built)
		}
		_, err := fmt.Fprintf(a.out, "fencepost %s, commit %s, %s\n", built.Version, built.Revision, built.Go)
		return err
	})
}

// manCommand writes the man pages. Their date is that of SOURCE_DATE_EPOCH, or today's.
func (a *app) manCommand() *cobra.Command {
	var folder string
	var c *cobra.Command
	c = a.command("man", "Write the man pages of all commands to a folder", []option{required(&folder, "dir", "the `folder`")}, func(call) error {
		root := c.Root()
		root.DisableAutoGenTag = true
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return err
		}
		if err := doc.GenManTree(root, &doc.GenManHeader{Section: "1", Source: "Fencepost " + root.Version, Manual: "Fencepost"}, folder); err != nil {
			return err
		}
		_, err := fmt.Fprintf(a.out, "Written to %s; try: man %s/fencepost.1\n", folder, folder)
		return err
	})
	return c
}
