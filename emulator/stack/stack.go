// Package stack runs the whole deployment on one machine from real parts: Postgres, a chain, Cloud Tasks over
// gRPC, a scheduler, an issuer of OIDC tokens, and function processes.
package stack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"cloud.google.com/go/pubsub/v2/pstest"

	"github.com/fencepost/fencepost/emulator/fake/cloudtasks"
	"github.com/fencepost/fencepost/emulator/fake/issuer"
	"github.com/fencepost/fencepost/emulator/fake/kms"
	"github.com/fencepost/fencepost/emulator/fake/remotesigner"
	"github.com/fencepost/fencepost/emulator/fake/scheduler"
	"github.com/fencepost/fencepost/emulator/fake/urlmap"
	"github.com/fencepost/fencepost/emulator/proxy/http/rpcproxy"
	"github.com/fencepost/fencepost/emulator/proxy/pgproxy"
	"github.com/fencepost/fencepost/emulator/stack/programs"
	"github.com/fencepost/fencepost/emulator/stack/steps"
	"github.com/fencepost/fencepost/shared/chain/devchain"
	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/ledger/funding"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/pgcluster"
	"github.com/fencepost/fencepost/shared/store/transfers"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// Options describe what to start. The zero value is the demo: three processes that serve every function,
// with a block each second.
type Options struct {
	Binary     string                          // the function server, see [Build]; "": it is built
	Cluster    *pgcluster.Cluster              // for the database; nil: a new durable cluster
	Processes  int                             // of each service; 0: 3
	Split      bool                            // one service per function, as deployed, instead of all in each process
	BlockTime  time.Duration                   // 0: 1 s
	PriceBump  uint64                          // the least percentage by which the chain's node wants a replacement to pay more; 0: 10
	Submitters int                             // number of registered dev accounts; 0: 10
	Window     int                             // max_in_flight of the dev accounts; 0: the deployment's default
	SweepEvery time.Duration                   // 0: 1 min; negative: only RunSweep
	Signer     SignerKind                      // the signer of the accounts; "": the functions themselves
	Clef       string                          // of SignerRemote: path of clef; "": the emulator's own signing service
	Settings   map[string]string               // environment of the functions, over the stack's own
	Transfers  bool                            // with transfers: a trading core, users' tokens, assets
	Payouts    bool                            // with payouts of USDT and ETH to the chain; implies Transfers
	Core       CoreOptions                     // of the trading core
	CheckEvery time.Duration                   // of conservation; 0: 1 min; negative: only RunConservation
	PublicAddr string                          // where the public paths listen; "": a free port
	Around     func(http.Handler) http.Handler // wraps the public paths; nil: unchanged
	WireProxy  bool                            // puts a proxy before Postgres that can break connections
	RPCProxy   bool                            // puts a proxy before the chain that can inject faults
	Nodes      int                             // number of nodes of the chain, each behind such a proxy; 0: the one of RPCProxy
	Console    bool                            // the operators' console, see [Stack.ConsoleURL]
	Mark       bool                            // keeps the mark outside the database, in a Cloud Storage emulator
	Unset      bool                            // with Payouts: neither an asset nor the payer is registered
	TwoChains  bool                            // a second chain, with the same accounts registered on it
	Beside     *Beside                         // what the stack shares with others, without payouts; nil: nothing
	Seed       uint64                          // of the RPC proxy's draws
	TokenSpan  time.Duration                   // how long before and after their creation tokens are valid; 0: an hour from then on
	Output     io.Writer                       // the functions' log; nil: nowhere
	Progress   io.Writer                       // shows the progress of a build; nil: nowhere
	Log        *slog.Logger                    // log of the stack itself; nil: discarded
}

func (o Options) withDefaults() Options {
	o.Processes, o.Submitters = cmp.Or(o.Processes, 3), cmp.Or(o.Submitters, 10)
	o.BlockTime = cmp.Or(o.BlockTime, time.Second)
	o.SweepEvery, o.CheckEvery = cmp.Or(o.SweepEvery, time.Minute), cmp.Or(o.CheckEvery, time.Minute)
	o.Transfers = o.Transfers || o.Payouts
	o.Output, o.Progress = cmp.Or(o.Output, io.Discard), cmp.Or(o.Progress, io.Discard)
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	return o
}

// Stack is the running deployment. Its Close stops everything and removes its files.
type Stack struct {
	Closers

	Chain    *devchain.Chain
	Tasks    *cloudtasks.Server
	Issuer   *issuer.Issuer
	URLMap   *urlmap.Map
	Proxy    *pgproxy.Proxy  // between functions and Postgres, with WireProxy
	RPC      *rpcproxy.Proxy // between functions and the chain, with RPCProxy: the first of Nodes
	Nodes    []*rpcproxy.Proxy
	Second   *devchain.Chain // with TwoChains; nil otherwise
	Costs    *Costs
	Database string // URL, as the database's owner

	// With a signer outside the functions; nil otherwise.
	KMS     *kms.Server
	Signing *remotesigner.Server

	Storage *Storage // has the mark, with Options.Mark; nil otherwise

	PubSub *pstest.Server // with events.mode mq_outbox; nil otherwise

	// With transfers; nil otherwise.
	Core      *Core
	Users     *issuer.Issuer   // of the users' tokens
	Funding   *funding.Ledger  // as the database's owner
	Transfers *transfers.Store // as the database's owner

	// With payouts.
	Payer txmanager.Submitter // signs payouts only
	Token txmanager.Address   // the contract of USDT

	options     Options
	folder      string
	connections *http.Transport                // of the clients
	settings    map[string]string              // the function processes' environment, to which each part adds
	signers     map[txmanager.Submitter]string // the signers' names, as registered
	services    []*service
	roles       map[string]string // by function: its database URL
	scheduler   *scheduler.Scheduler
	accounts    []devchain.Account
	payer       devchain.Account
	deployer    devchain.Account // of the tokens' contracts
	deploying   sync.Mutex       // one contract at a time
	tables      *store.Store     // of transfers, as the database's owner
	writing     sync.Mutex       // of one line at a time to options.Output
}

// The accounts that the issuer knows.
const (
	CallerAccount    = "shop@fencepost.example"
	OperatorAccount  = "operator@fencepost.example"
	SecondAccount    = "second@fencepost.example" // another operator, who approves what the first proposes
	TasksAccount     = "tasks@fencepost.example"
	SchedulerAccount = "scheduler@fencepost.example"
	PublicAudience   = "https://api.fencepost.example"
	InternalAudience = "https://internal.fencepost.example"
)

const stopWithin = 12 * time.Second

// Start starts every part and returns when intents can be posted. If it fails, it stops what it had
// started. The caller ends the stack with [Stack.Close].
func Start(ctx context.Context, o Options) (_ *Stack, err error) {
	s := &Stack{
		options: o.withDefaults(), Costs: &Costs{byFunction: make(map[string]Cost)}, roles: make(map[string]string), settings: make(map[string]string),
		connections: http.DefaultTransport.(*http.Transport).Clone(),
	}
	s.connections.MaxIdleConnsPerHost = 64 // of one URL map; the default is 2
	s.OnClose(func() error { s.connections.CloseIdleConnections(); return nil })
	defer s.AfterFailure(&err)
	defer steps.Return(&err)
	for _, part := range []struct {
		name  string
		start func(context.Context)
	}{
		{"a temporary folder", s.startFolder},
		{"the function server", s.build},
		{"Postgres", s.startDatabase},
		{"the chain", s.startChain},
		{"the signer", s.startSigner},
		{"the token issuer", s.startIssuer},
		{"transfers", s.startTransfers},
		{"Pub/Sub", s.startPubSub},
		{"Cloud Storage", s.startStorage},
		{"the URL map", s.startURLMap},
		{"Cloud Tasks", s.startTasks},
		{"the functions", s.startServices},
		{"the scheduler", s.startScheduler},
		{"the submitters", s.register},
	} {
		began := time.Now()
		steps.OK(steps.Run(func() { part.start(ctx) }), "start ", part.name)
		s.options.Log.Info("ready: "+part.name, "took", time.Since(began).Round(time.Millisecond).String())
	}
	return s, nil
}

const serverPackage = "functions/server"

// Build compiles the function server with crash points into folder and returns its path. It runs in the
// module's tree.
func Build(ctx context.Context, folder string, flags ...string) (string, error) {
	return BuildProgram(ctx, folder, serverPackage, flags...)
}

// BuildProgram compiles another main package of the module in the same way, such as the function server
// with a business' handlers.
func BuildProgram(ctx context.Context, folder, program string, flags ...string) (string, error) {
	return programs.Build(ctx, io.Discard, folder, program, flags...)
}

// Closers are functions that each end one part of something.
type Closers []func() error

// OnClose adds one.
func (c *Closers) OnClose(f func() error) { *c = append(*c, f) }

// AfterFailure, deferred, closes the parts that a function has started if it returns an error.
func (c *Closers) AfterFailure(err *error) {
	if *err != nil {
		*err = errors.Join(*err, c.Close())
	}
}

// Close calls them in reverse order. A second call does nothing.
func (c *Closers) Close() error {
	var failures []error
	for _, closer := range slices.Backward(*c) {
		failures = append(failures, closer())
	}
	*c = nil
	return errors.Join(failures...)
}

// onStop is OnClose for a part that waits for its work in progress.
func (s *Stack) onStop(stop func(context.Context) error) {
	s.OnClose(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), stopWithin)
		defer cancel()
		return stop(ctx)
	})
}

func (s *Stack) startFolder(context.Context) {
	s.folder = steps.Value(os.MkdirTemp("", "fencepost-"))
	s.OnClose(func() error { return os.RemoveAll(s.folder) })
}

func (s *Stack) build(ctx context.Context) {
	if s.options.Binary == "" {
		s.options.Binary = steps.Value(programs.Build(ctx, s.options.Progress, s.folder, serverPackage))
	}
}

func (s *Stack) startChain(ctx context.Context) {
	n := s.options.Submitters
	all := devchain.DevAccounts(n + 2)
	if b := s.options.Beside; b != nil {
		s.Chain, s.accounts = b.Chain, devchain.DevAccounts(b.First + n)[b.First:]
	} else {
		s.accounts, s.payer, s.deployer = all[:n:n], all[n], all[n+1]
		s.Chain = steps.Value(devchain.Start(ctx, devchain.Options{BlockTime: s.options.BlockTime, Accounts: all, PriceBump: s.options.PriceBump}))
		s.OnClose(s.Chain.Close)
	}
	if s.options.RPCProxy {
		s.options.Nodes = max(s.options.Nodes, 1)
	}
	var nodeURLs []string
	for i := range s.options.Nodes {
		proxy := steps.Value(rpcproxy.Start(rpcproxy.Options{Target: s.Chain.URL(), Seed: s.options.Seed + uint64(i)}))
		s.OnClose(proxy.Close)
		s.Nodes, nodeURLs = append(s.Nodes, proxy), append(nodeURLs, proxy.URL())
	}
	urls := s.Chain.URL()
	if len(s.Nodes) > 0 {
		s.RPC, urls = s.Nodes[0], strings.Join(nodeURLs, ",")
	}
	s.settings["FENCEPOST_RPC_URLS"] = urls
	if s.options.TwoChains { // the second one has slower blocks and other terms
		slow := 2 * s.options.BlockTime
		s.Second = steps.Value(devchain.Start(ctx, devchain.Options{ChainID: SecondChainID, BlockTime: slow, Accounts: all}))
		s.OnClose(s.Second.Close)
		s.settings["FENCEPOST_CHAINS"] = fmt.Sprintf(`[{"id": %d, "urls": [%q], "blockTime": %q, "confirmations": 2}]`, SecondChainID, s.Second.URL(), slow)
	}
}

// SecondChainID is the EIP-155 id of [Stack.Second].
const SecondChainID = devchain.DefaultChainID + 1

// StartIssuer starts the issuer of the tokens of a stack's accounts, each valid for the span around its creation; 0:
// for an hour from then on.
func StartIssuer(span time.Duration) (*issuer.Issuer, error) {
	return issuer.Start(issuer.Options{
		Accounts: []string{CallerAccount, OperatorAccount, SecondAccount, ViewerAccount, TasksAccount, SchedulerAccount}, Span: span,
	})
}

func (s *Stack) startIssuer(context.Context) {
	if b := s.options.Beside; b != nil {
		s.Issuer = b.Issuer
		return
	}
	s.Issuer = steps.Value(StartIssuer(s.options.TokenSpan))
	s.OnClose(s.Issuer.Close)
}

func (s *Stack) startTasks(ctx context.Context) {
	tokens := &taskTokens{issuer: s.Issuer}
	s.Tasks = steps.Value(cloudtasks.Start(context.WithoutCancel(ctx), cloudtasks.Options{Tokens: tokens, Log: s.options.Log}))
	s.OnClose(func() error { s.Tasks.Close(); return nil })
}

// taskTokens makes the tokens of Cloud Tasks. Signing is slow, so one token serves many tasks for a few
// seconds.
type taskTokens struct {
	issuer *issuer.Issuer

	mu     sync.Mutex
	minted map[[2]string]string // by account and audience
	until  time.Time            // when new ones are made
}

// tokensServe is how long tokens are used again.
const tokensServe = 5 * time.Second

func (t *taskTokens) Token(ctx context.Context, email, audience string) (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now := time.Now(); !now.Before(t.until) {
		t.minted, t.until = make(map[[2]string]string), now.Add(tokensServe)
	}
	key := [2]string{email, audience}
	if text, ok := t.minted[key]; ok {
		return text, nil
	}
	text, err := t.issuer.Token(ctx, email, audience)
	if errors.Is(err, issuer.ErrUnknownAccount) {
		return "", fmt.Errorf("%w: %w", cloudtasks.ErrUnknownAccount, err)
	}
	if err != nil {
		return "", err
	}
	t.minted[key] = text
	return text, nil
}

const sweepJob = "sweep"

func (s *Stack) startScheduler(context.Context) {
	jobs := []scheduler.Job{s.job(sweepJob, s.options.SweepEvery)}
	if s.options.Transfers {
		jobs = append(jobs, s.job(conservationJob, s.options.CheckEvery))
	}
	s.scheduler = steps.Value(scheduler.Start(scheduler.Options{
		Token: s.Issuer.Token,
		Jobs:  jobs,
		Attempted: func(job string, err error) {
			if err != nil {
				s.options.Log.Warn("scheduled job failed", "job", job, "error", err)
			}
		},
	}))
	s.OnClose(func() error { s.scheduler.Stop(); return nil })
}

// job returns a job that posts to the internal function of its name.
func (s *Stack) job(name string, every time.Duration) scheduler.Job {
	if every < 0 {
		every = 24 * 365 * time.Hour
	}
	return scheduler.Job{
		Name: name, Every: every, URL: s.URLMap.InternalURL() + "/internal/" + name,
		Body: []byte("{}"), Account: SchedulerAccount, Audience: InternalAudience,
		Deadline: time.Minute, // as in terraform/main.tf
	}
}

// RunSweep runs one sweep now and returns its error.
func (s *Stack) RunSweep(ctx context.Context) error { return s.scheduler.RunNow(ctx, sweepJob) }

// OnSecond returns the same accounts on the second chain, if there is one.
func (s *Stack) OnSecond() []txmanager.Submitter { return s.submittersOn(s.Second) }

// Submitters returns the registered dev accounts in order, without [Stack.Payer].
func (s *Stack) Submitters() []txmanager.Submitter { return s.submittersOn(s.Chain) }

func (s *Stack) submittersOn(chain *devchain.Chain) (names []txmanager.Submitter) {
	if chain == nil {
		return nil
	}
	for _, a := range s.accounts {
		names = append(names, eip155.NewSubmitter(chain.ChainID(), a.Address))
	}
	return names
}

func (s *Stack) path(name string) string { return filepath.Join(s.folder, name) }
