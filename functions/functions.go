// Package functions is the deployment's HTTP layer. Each stateless function decodes, authenticates,
// calls package shared, and encodes; each file holds one. One container image serves them all.
// FUNCTION_TARGET names the function that a process serves, or "all".
package functions

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math/big"
	"net/http"
	"strings"
	"time"

	"github.com/ethereum/go-ethereum/params"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencepost/fencepost/shared/chain/evm"
	"github.com/fencepost/fencepost/shared/config"
	"github.com/fencepost/fencepost/shared/crash"
	"github.com/fencepost/fencepost/shared/events"
	"github.com/fencepost/fencepost/shared/events/pubsub"
	"github.com/fencepost/fencepost/shared/handlers"
	"github.com/fencepost/fencepost/shared/intentmac"
	"github.com/fencepost/fencepost/shared/lease"
	"github.com/fencepost/fencepost/shared/signer"
	"github.com/fencepost/fencepost/shared/signer/kms"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/cloudsql"
	"github.com/fencepost/fencepost/shared/tasks"
	"github.com/fencepost/fencepost/shared/telemetry"
	"github.com/fencepost/fencepost/shared/telemetry/export"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/gas"
	"github.com/fencepost/fencepost/shared/txmanager/rules"
	"github.com/fencepost/fencepost/shared/txmanager/session"
	"github.com/fencepost/fencepost/shared/txmanager/worker"
	"github.com/fencepost/fencepost/shared/web"
)

// All is the target under which one process serves every function.
const All = "all"

// App holds the parts from which functions are made: connections, keys and settings. Losing a process
// loses none of the stored state.
type App struct {
	config   config.Config
	log      *slog.Logger
	node     string
	points   crash.Points
	gate     *web.Gate
	ready    func(context.Context) error // readiness of this process
	store    *store.Store
	cloudSQL *cloudsql.Instance // nil if database.url names the database's host
	tasks    *tasks.Tasks
	places   evm.Places     // request slots for node calls, shared by all chains
	chains   []*servedChain // the default one first
	intents  *intentmac.Keys
	signers  signer.Directory
	kms      *kms.Client
	public   *web.Verifier
	internal *web.Verifier
	atWork   *web.Callers
	export   *export.Exporter // of metrics and traces; nil: none

	services     *http.Client // the HTTP client for calls to business services
	handlerNames []string     // handler names that requests may use

	transfers *transferParts

	acts *web.Mux // operator calls that proposals carry out

	receivers     []string // event endpoints; none if events are off
	marks         *marks   // nil: no mark is kept outside the database
	topic         *pubsub.Topic
	teller        *events.Worker
	deliverySlots deliverySlots
}

// required lists the settings that every function needs.
var required = []string{
	"database.url", "tasks.project", "tasks.location", "tasks.targetUrl", "tasks.serviceAccount",
	"oidc.issuer", "oidc.jwksUrl", "auth.publicAudience", "auth.internalAudience", "auth.internalAccounts",
}

// Extensions is the code that a business compiles into the functions. All processes of a deployment
// must have the same, since any of them can run it.
type Extensions struct {
	// Handlers make transactions for [App.WithNonce], by name. A name has at most 64 lower-case
	// letters, digits, dots, dashes and underscores.
	Handlers map[string]txmanager.Handler

	// Stuck decides about STUCK transactions; nil leaves them to operators.
	Stuck txmanager.StuckResolution
}

// New makes the parts. It opens no connection yet.
func New(ctx context.Context, c config.Config, log *slog.Logger, node string, ext Extensions) (*App, error) {
	if err := c.Require(required...); err != nil {
		return nil, err
	}
	points, err := crash.FromEnvironment()
	if err != nil {
		return nil, err
	}
	a := &App{config: c, log: log, node: node, points: points, gate: new(web.Gate), services: handlers.NewClient()}
	a.atWork = web.NewCallers(c.HTTP.MaxRequestsPerCaller, c.HTTP.MaxBytesPerCaller, c.HTTP.MaxBodyBytes)
	for _, open := range []func(context.Context) error{a.openExport, a.openIntents, a.openStore, a.openMark, a.openChains, a.openSigners, a.openVerifiers} {
		if err := open(ctx); err != nil {
			return nil, err
		}
	}
	a.ready = web.Ready(a.store.Ping)
	a.openTasks()
	if err := a.openTransfers(); err != nil {
		return nil, err
	}
	all, err := a.allHandlers(ext)
	if err != nil {
		return nil, err
	}
	if err := a.openEvents(); err != nil {
		return nil, err
	}
	a.openWorkers(worker.Worker{
		Service: session.Service{
			Store: a.watched(), ChainOf: a.chainOf, Tasks: a.tasks, Timing: timing(a.config), Node: node, Log: log,
			Reached: a.points, Watcher: watcher{}, Stopping: a.gate.Stopping,
		},
		Intents: a.intents, SignerNamed: a.signerNamed, Handlers: all, Resolution: ext.Stuck, Limits: workerLimits(a.config),
	})
	return a, nil
}

// Close exports the remaining metrics and traces, and closes every connection. When ctx ends it stops
// waiting for connections that unfinished requests still use.
func (a *App) Close(ctx context.Context) error {
	delivered := a.export.Close(ctx)
	for _, c := range a.chains {
		if c.connector != nil {
			c.Close()
		}
	}
	a.services.CloseIdleConnections()
	if a.transfers.offered() {
		a.transfers.trading.Close()
	}
	failures := []error{a.tasks.Close(), a.kms.Close(), a.topic.Close(), a.marks.close()}
	if a.cloudSQL != nil {
		failures = append(failures, a.cloudSQL.Close())
	}
	closed := make(chan struct{})
	go func() {
		a.store.Close() // waits for each connection in use
		close(closed)
	}()
	select {
	case <-closed:
	case <-ctx.Done():
		failures = append(failures, errors.New("connections to the database are still in use"))
	}
	return errors.Join(append(failures, delivered)...)
}

func leaseRules(c config.Lease) lease.Rules {
	return lease.Rules{
		Duration:           c.Duration,
		RenewBelow:         c.Duration - c.RenewInterval, // by default above the 5 s that a call needs
		ClockSkewAllowance: c.ClockSkewAllowance,
	}
}

// chainRules returns the settings under which a chain's submitters are served.
func chainRules(c config.Config, of config.ServedChain) rules.Rules {
	return rules.Rules{
		Limits: feeLimits(c),
		Finality: rules.Finality{
			By: txmanager.Finality(of.Finality), Confirmations: uint64(of.Confirmations), BlockTime: of.BlockTime,
			WatchEvery: c.Confirmations.StaleReceiptTimeout, WatchDepth: uint64(c.Reorg.WatchDepth),
		},
		Broadcasting: rules.Broadcasting{
			Resubmit: c.Resubmit.Enabled, ResubmitEvery: c.Resubmit.Interval, MaxResubmits: c.Resubmit.MaxAttempts, StuckAfter: c.Stuck.After,
		},
		Strict:               c.Nonce.Strict,
		DeferAfter:           c.Nonce.DeferAfter,
		AskBeforePlaceholder: c.Nonce.Placeholder == config.PlaceholderAsk,
		Inspector:            inspector(c.Mempool),
	}
}

// feeLimits returns the deployment's limits on fees.
func feeLimits(c config.Config) gas.Limits {
	return gas.Limits{
		FeeCapWei:            new(big.Int).SetUint64(c.Fees.MaxFeePerGas),
		TxFeeCapWei:          new(big.Int).SetUint64(c.Fees.MaxFeePerTx),
		TipMultiple:          c.Fees.MaxTipMultiple,
		TipFloorWei:          new(big.Int).SetUint64(c.Fees.MinTipBound),
		PlaceholderFeeCapWei: new(big.Int).SetUint64(c.Nonce.PlaceholderMaxFee),
		Bump:                 bumpPolicy(c.GasBump),
	}
}

// timing returns the time limits of a lease session.
func timing(c config.Config) session.Timing {
	return session.Timing{Lease: leaseRules(c.Lease), CallTimeout: c.RPC.Timeout, IterationsEndAfter: c.Tasks.DispatchDeadline / 2}
}

// workerLimits returns the time limits of signatures and handler calls.
func workerLimits(c config.Config) worker.Limits {
	return worker.Limits{
		SignTimeout: c.Signer.Timeout, SignParallel: c.Signer.Parallel,
		HandlerTimeout:  max(c.Handlers.Timeout, c.RPC.Timeout), // for compiled-in handlers, bounded by the lease; a service has its own
		HandlerPatience: c.Handlers.Patience,
	}
}

// bumpPolicy returns when and how transactions are replaced at a higher fee; nil: only by decisions.
func bumpPolicy(c config.GasBump) *gas.BumpPolicy {
	if !c.Enabled {
		return nil
	}
	p := &gas.BumpPolicy{
		MinInterval: c.MinInterval, MaxAttempts: c.MaxAttempts, Multiplier: c.Multiplier,
		FeeCapWei: new(big.Int).SetUint64(c.MaxFeePerGas), BudgetWei: wei(c.BudgetPerDay),
	}
	if c.MaxFeePerTx > 0 {
		p.TxFeeCapWei = wei(c.MaxFeePerTx)
	}
	return p
}

// bumpAfter returns the age in which a transaction may be replaced; 0: never.
func bumpAfter(c config.GasBump) time.Duration {
	if !c.Enabled {
		return 0
	}
	return c.MinInterval
}

// maxInspected bounds the transactions inspected at once, so that a wide window fits in one request.
const maxInspected = 32

// inspector returns what classifies transactions without a receipt; nil: it is off.
func inspector(c config.Mempool) *rules.MempoolInspector {
	if !c.Diagnose {
		return nil
	}
	return &rules.MempoolInspector{Most: maxInspected}
}

// wei converts gwei to wei.
func wei(gwei uint64) *big.Int {
	return new(big.Int).Mul(new(big.Int).SetUint64(gwei), big.NewInt(params.GWei))
}

func (a *App) openStore(ctx context.Context) (err error) {
	db := a.config.Database
	var dial pgconn.DialFunc
	if db.Instance != "" {
		a.cloudSQL = cloudsql.New(db.Instance)
		dial = a.cloudSQL.Dial
	}
	o := store.Options{
		URL: db.URL.Reveal(), Dial: dial, MaxConns: int(db.MaxConns), Lease: leaseRules(a.config.Lease),
		StatementTimeout: db.StatementTimeout, LockTimeout: db.LockTimeout,
		IdleInTransactionTimeout: db.IdleInTransactionTimeout, StuckAfter: a.config.Stuck.After, Tracer: store.Costs{},
		Events: eventMode(a.config.Events), OnEvents: a.onEvents,
		GasBumpAfter: bumpAfter(a.config.GasBump), AnyCaller: !a.config.Auth.OpenIssuer,
	}
	if a.acceptsIntents() {
		o.MACs = a.intents
	}
	if a.signsIntents() {
		o.MACKeys = a.intents.IDs()
	}
	a.store, err = store.Open(ctx, o)
	return err
}

func (a *App) openExport(ctx context.Context) (err error) {
	t, on := a.config.Telemetry, a.config.Platform
	a.export, err = export.Start(ctx, export.Options{
		OTLPEndpoint: t.OTLPEndpoint, Prometheus: t.Prometheus, FlushEvery: t.FlushEvery, TraceOneIn: t.TraceOneIn,
		Service: cmp.Or(on.Service, "fencepost"), Version: on.Revision, Instance: a.node, Log: a.log,
	})
	return err
}

// watched returns the store with its operations counted.
func (a *App) watched() watchedStore { return watchedStore{a.store} }

func (a *App) openVerifiers(context.Context) (err error) {
	verifier := func(audience string) (*web.Verifier, error) {
		return web.NewVerifier(web.VerifierOptions{
			Issuer: a.config.OIDC.Issuer, JWKSURL: a.config.OIDC.JWKSURL, Audience: audience,
		})
	}
	if a.public, err = verifier(a.config.Auth.PublicAudience); err != nil {
		return err
	}
	a.internal, err = verifier(a.config.Auth.InternalAudience)
	return err
}

func (a *App) openTasks() {
	t := a.config.Tasks
	a.tasks = tasks.New(tasks.Options{
		Parent:   "projects/" + t.Project + "/locations/" + t.Location,
		Endpoint: t.Endpoint, QueuePrefix: t.QueuePrefix, QueueShards: t.QueueShards,
		TargetURL: t.TargetURL, ServiceAccount: t.ServiceAccount, Audience: a.config.Auth.InternalAudience,
		DispatchDeadline: t.DispatchDeadline, Epoch: a.store.Epoch, NameEpoch: a.store.NameEpoch,
	})
}

// Gate returns the gate that every request passes. [web.Serve] closes it.
func (a *App) Gate() *web.Gate { return a.gate }

// routes maps each function to the paths that it serves.
func (a *App) routes() map[string]func(*web.Mux) {
	routes := map[string]func(*web.Mux){
		"create":   a.routeCreate,
		"query":    a.routeQuery,
		"cancel":   a.routeCancel,
		"advance":  a.routeSession(txmanager.KindAdvance),
		"receipt":  a.routeSession(txmanager.KindReceipt),
		"confirm":  a.routeSession(txmanager.KindConfirm),
		"resubmit": a.routeSession(txmanager.KindResubmit),
		"sweep":    a.routeSweep,
		"admin":    a.routeAdmin,
		"publish":  a.routePublish,
	}
	if a.transfers.offered() {
		routes["transfer"], routes["conservation"] = a.routeTransfer, a.routeConservation
	}
	return routes
}

// Handlers returns all functions by target. Each also answers /healthz and /readyz.
func (a *App) Handlers() map[string]http.Handler {
	all := web.NewMux()
	a.routeOperational(all)
	targets := map[string]http.Handler{All: a.edge(all)}
	for name, route := range a.routes() {
		mux := web.NewMux()
		a.routeOperational(mux)
		route(mux)
		targets[name] = a.edge(mux)
		route(all)
	}
	return targets
}

// edge wraps a function in the checks that each request passes first.
func (a *App) edge(mux *web.Mux) http.Handler {
	return web.Edge(a.gate, web.Arrival(a.config.HTTP.BodyTimeout, a.export.AtEnd(mux)))
}

// routeOperational serves the paths that every function answers.
func (a *App) routeOperational(mux *web.Mux) {
	mux.HandleHealth(a.ready)
	if page := a.export.Page(); page != nil {
		mux.Handle("GET /metrics", page)
	}
}

// handle serves pattern by h as the function name, and logs the cost of each invocation.
func (a *App) handle(mux *web.Mux, name, pattern string, h func(http.ResponseWriter, *http.Request) error) {
	served := telemetry.Invocation(a.log, name, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r, leave := a.atWork.Track(r)
		defer leave()
		err := a.marks.compare(r.Context(), a.log)
		if err == nil {
			err = h(w, r)
		}
		if err != nil {
			web.Fail(w, r, problem(err))
		}
	}))
	if !internal(pattern) {
		served = telemetry.Untrusted(served)
	}
	mux.Handle(pattern, served)
}

// internal reports whether the pattern belongs to Cloud Tasks and the scheduler, which
// [App.internalOnly] admits.
func internal(pattern string) bool { return strings.Contains(pattern, "/internal/") }
