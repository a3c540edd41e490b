// Command cloudcheck checks a deployment on Google Cloud: what plans and tests on one machine cannot show.
// It reads terraform output, asks the deployment from outside, and reads its logs and metrics by gcloud.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/fencepost/fencepost/shared/buildinfo"
)

const usage = `usage: cloud-check [FLAGS]

Checks a deployment on Google Cloud, which gcloud and terraform reach as you. It prints a line for each check: ok,
FAILED with what was found, or "not tried" with what it needs. Without flags it changes nothing and posts nothing: the
examples of the API are sent without a token, so that the functions refuse them. --version prints the version and the
commit instead.

`

// Exit codes.
const (
	exitOK = iota
	exitFailed
	exitUsage
)

// options are the flags.
type options struct {
	terraform  string
	operator   string
	caller     string
	submitter  string
	failover   bool
	within     time.Duration
	monitoring string
	openAPI    string
	pause      time.Duration // between two looks at something that takes time
}

var errUsage = errors.New("called wrongly, see --help")

func main() {
	if buildinfo.PrintVersion("cloud-check", os.Args[1:], os.Stdout) {
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := realMain(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

func realMain(ctx context.Context, args []string, out, errs io.Writer) int {
	o, err := parse(args, out)
	failed := 0
	if err == nil {
		failed, err = run(ctx, o, out)
	}
	if errors.Is(err, flag.ErrHelp) || err == nil && failed == 0 {
		return exitOK
	}
	if err != nil {
		fmt.Fprintln(errs, "cloud-check:", err)
	}
	if errors.Is(err, errUsage) {
		return exitUsage
	}
	return exitFailed
}

func parse(args []string, out io.Writer) (o options, err error) {
	set := flag.NewFlagSet("cloud-check", flag.ContinueOnError)
	set.SetOutput(out)
	set.Usage = func() {
		fmt.Fprint(out, usage)
		set.PrintDefaults()
		fmt.Fprint(out, "\nExit codes: 0 nothing failed, 1 something failed, 2 called wrongly.\n")
	}
	set.StringVar(&o.terraform, "terraform", "terraform", "the `folder` of the deployment's Terraform, after terraform init")
	set.StringVar(&o.operator, "operator", "", "a service `account` among the operators that you may impersonate: checks the database's identity")
	set.StringVar(&o.caller, "caller", "", "a service `account` that may post for --submitter, and that you may impersonate")
	set.StringVar(&o.submitter, "submitter", "", "post one intent for this `submitter`, eip155:<chainId>:0x…, which must be on a test chain: it sends 0 to itself, and costs gas")
	set.BoolVar(&o.failover, "failover", false, "let Cloud SQL fail over, and compare the identity before and after. Every request waits or gets 503 meanwhile. Refused in prod")
	set.DurationVar(&o.within, "within", 15*time.Minute, "how long to wait for a transaction, a failover or a line of the log")
	set.DurationVar(&o.pause, "pause", 5*time.Second, "the time between two looks at them")
	set.StringVar(&o.monitoring, "monitoring", "https://monitoring.googleapis.com", "the `URL` of Cloud Monitoring")
	set.StringVar(&o.openAPI, "openapi", "functions/openapi.yaml", "the `file` with the API's description")
	if err := set.Parse(args); err != nil {
		return o, fmt.Errorf("%w: %w", errUsage, err)
	}
	switch {
	case set.NArg() > 0:
		return o, fmt.Errorf("%w: got the argument %q, want only flags", errUsage, set.Arg(0))
	case o.submitter != "" && o.caller == "":
		return o, fmt.Errorf("%w: --submitter needs --caller", errUsage)
	case o.submitter != "" && !onTestChain(o.submitter):
		return o, fmt.Errorf("%w: --submitter %s is on none of the test chains %s", errUsage, o.submitter, strings.Join(testChains, ", "))
	case !keepsTokens(o.monitoring):
		return o, fmt.Errorf("%w: --monitoring %s would get your access token: want an https URL, or one of this machine", errUsage, o.monitoring)
	case o.failover && o.operator == "":
		return o, fmt.Errorf("%w: --failover needs --operator, to compare the identity", errUsage)
	}
	return o, nil
}

// keepsTokens reports whether a token that is sent to the URL is encrypted, or does not leave this machine.
func keepsTokens(text string) bool {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" {
		return false
	}
	local := u.Hostname() == "localhost" || net.ParseIP(u.Hostname()).IsLoopback()
	return u.Scheme == "https" || u.Scheme == "http" && local
}

// run makes every check and returns the number of those that failed.
func run(ctx context.Context, o options, out io.Writer) (failed int, err error) {
	d, err := readDeployment(ctx, o.terraform)
	if err != nil {
		return 0, err
	}
	if o.failover && d.Environment == "prod" {
		return 0, fmt.Errorf("%w: --failover is refused in prod", errUsage)
	}
	c := &checker{deployment: d, options: o}
	counts := make(map[status]int)
	fmt.Fprintf(out, "%s (%s) in %s\n", d.API, d.Environment, d.Project)
	for _, row := range c.checks() {
		r := tried(ctx, row.run)
		counts[r.status]++
		fmt.Fprintf(out, "%-9s  %-42s  %s\n", r.status, row.name, r.text)
		if ctx.Err() != nil {
			return 0, ctx.Err()
		}
	}
	fmt.Fprintf(out, "%d ok, %d failed, %d not tried\n", counts[ok], counts[failure], counts[notTried])
	return counts[failure], nil
}
