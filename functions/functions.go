// Package functions is the deployment's HTTP layer: five servers (packages transactions, steps, sweeps,
// transfers and admin) and their wiring. One container image serves all functions.
// FUNCTION_TARGET names the function that a process serves, or "all".
package functions

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"time"

	"github.com/fencepost/fencepost/functions/admin"
	"github.com/fencepost/fencepost/functions/catalogue"
	"github.com/fencepost/fencepost/functions/counted"
	"github.com/fencepost/fencepost/functions/serve"
	"github.com/fencepost/fencepost/functions/steps"
	"github.com/fencepost/fencepost/functions/sweeps"
	"github.com/fencepost/fencepost/functions/transactions"
	"github.com/fencepost/fencepost/shared/chain"
	"github.com/fencepost/fencepost/shared/config"
	"github.com/fencepost/fencepost/shared/crash"
	"github.com/fencepost/fencepost/shared/events/pubsub"
	"github.com/fencepost/fencepost/shared/intentmac"
	"github.com/fencepost/fencepost/shared/signer"
	"github.com/fencepost/fencepost/shared/signer/kms"
	"github.com/fencepost/fencepost/shared/store/cloudsql"
	checks "github.com/fencepost/fencepost/shared/store/conservation"
	eventlog "github.com/fencepost/fencepost/shared/store/events"
	"github.com/fencepost/fencepost/shared/telemetry/export"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/gas"
	"github.com/fencepost/fencepost/shared/txmanager/rules"
	"github.com/fencepost/fencepost/shared/txmanager/session"
	"github.com/fencepost/fencepost/shared/txmanager/worker"
	"github.com/fencepost/fencepost/shared/web"
	"github.com/fencepost/fencepost/shared/webhook"
)

// All is the target under which one process serves every function.
const All = "all"

// App is one process: its servers, and the connections and keys from which they are made. Losing a
// process loses none of the stored state.
type App struct {
	base         *serve.Base
	store        counted.Store
	handlers     []string // that requests may name
	transactions *transactions.Server
	steps        *steps.Server
	sweeps       *sweeps.Server
	transfers    transferParts
	admin        *admin.Server
	console      http.Handler // nil: this process serves no console

	config     config.Config
	extensions Extensions
	gate       *web.Gate
	ready      func(context.Context) error // readiness of this process
	started    func(context.Context) error // whether it may get requests
	cloudSQL   *cloudsql.Instance          // nil if database.url names the database's host
	places     chain.RequestSlots          // request slots for node calls, shared by all chains
	worker     worker.Worker               // of all chains, but for their rules
	intents    *intentmac.Keys
	signers    signer.Directory
	kms        *kms.Client
	topic      *pubsub.Topic
	export     *export.Exporter // of metrics and traces; nil: none
	services   *http.Client     // for calls to business services
	toAdmin    *http.Transport  // from the console; nil: this process serves none
}

// required lists the settings that every function needs.
var required = []string{
	"database.url", "tasks.project", "tasks.location", "tasks.targetUrl", "tasks.serviceAccount",
	"oidc.issuer", "oidc.jwksUrl", "auth.publicAudience", "auth.internalAudience", "auth.internalAccounts",
}

// Extensions is the code that a business compiles into the functions. All processes of a deployment
// must have the same, since any of them can run it. Each nil field keeps its default. Answers have the
// bounds of the default's. A panic counts as no answer; in Connect it ends the start with an error.
type Extensions struct {
	// Handlers make transactions for [App.WithNonce], by name. A name has at most 64 lower-case
	// letters, digits, dots, dashes and underscores.
	Handlers map[string]txmanager.Handler

	// Stuck decides about STUCK transactions; nil leaves them to operators. It may rebroadcast, replace or
	// give up a transaction, with a reason that is recorded. It cannot order a placeholder for a payout,
	// and with nonce.placeholder=ask it can only rebroadcast.
	Stuck txmanager.StuckResolution

	// Bump proposes the fees of gas bumps, if gasbump.enabled is true; nil raises them by gasbump.multiplier.
	// It is asked every gasbump.minInterval, at most gasbump.maxAttempts times. Its fees are lowered to the caps
	// of the settings, the intent and the submitter's policy. Fees below a tenth more than the last
	// version's, or above the budget or the balance, are refused with a reason in lastError.
	Bump gas.BumpPolicy

	// Mempool diagnoses transactions without a receipt, if mempool.diagnose.enabled is true; nil reads the
	// answers of one node. A diagnosis informs operators and Stuck, and decides nothing. Only the signals
	// and advice of package txmanager are stored.
	Mempool rules.MempoolInspector

	// Publishers receive events, by name, beside the endpoints of events.mode, which must be mq_outbox or webhook.
	// With webhook they need no events.webhook.urls. Each gets the events of a submitter in order and at least once. No transaction waits for it. A name
	// has the form of a handler's.
	Publishers map[string]txmanager.DomainEventPublisher

	// Families are families of chains beside the EVM's. An entry of the setting chains names its namespace. The
	// database must know it too: see docs/chains.md.
	Families []chain.Family

	// Connect opens a connector to one node, without connecting, before the first request; nil opens the
	// family's. It can return nil to leave a chain to the default. Where a chain has several URLs, each node is one
	// of the quorum's votes, and is excluded like any other. A connector also reads payloads and signed bytes,
	// so it must pass the contract of package chaintest.
	Connect func(chain.NodeOptions) (chain.Node, error)

	// Signers are kinds of signers beside local, kms and remote. A submitter's registration names them. Bytes
	// that are not exactly the requested transaction, signed by the account's key, count as no answer.
	Signers []signer.Kind
}

// New makes the parts. It opens no connection yet.
func New(ctx context.Context, c config.Config, log *slog.Logger, node string, ext Extensions) (*App, error) {
	if c.Platform.FunctionTarget == config.ConsoleTarget {
		return newConsole(ctx, c, log, node)
	}
	if err := c.Require(required...); err != nil {
		return nil, err
	}
	points, err := crash.FromEnvironment()
	if err != nil {
		return nil, err
	}
	families, err := familiesWith(ext)
	if err != nil {
		return nil, err
	}
	a := &App{config: c, extensions: ext, gate: web.NewGate(), services: webhook.NewClient()}
	a.base = &serve.Base{
		Log: log, Node: node, Points: points, Auth: c.Auth,
		AtWork:       web.NewCallers(c.HTTP.MaxRequestsPerCaller, c.HTTP.MaxBytesPerCaller, c.HTTP.MaxBodyBytes),
		MaxBodyBytes: c.HTTP.MaxBodyBytes, Deadline: deadline(c), Families: families,
	}
	for _, open := range []func(context.Context) error{a.openExport, a.openIntents, a.openStore, a.openMark, a.openChains, a.openSigners, a.openVerifiers, a.openPeople} {
		if err := open(ctx); err != nil {
			return nil, err
		}
	}
	return a, a.serve()
}

// serve makes the servers of the connections that are open.
func (a *App) serve() error {
	c := a.config
	a.ready = web.Ready(a.store.Ping)
	a.started = web.Started(a.ready, startPatience)
	a.openTasks()
	if err := a.openTransfers(); err != nil {
		return err
	}
	all, err := a.allHandlers()
	if err != nil {
		return err
	}
	deliveries, err := a.openEvents()
	if err != nil {
		return err
	}
	a.worker = worker.Worker{
		Service: session.Service{
			Store: a.store, ChainOf: a.chainOf, Tasks: a.base.Tasks, Timing: timing(a.config), Node: a.base.Node, Log: a.base.Log,
			Reached: a.base.Points, Watcher: counted.Watcher{}, Stopping: a.gate.Stopping,
		},
		Intents: a.intents, SignerNamed: func(name string) txmanager.Signer { return counted.NewSigner(a.signers, name) }, Handlers: all, Resolution: a.extensions.Stuck, Limits: workerLimits(a.config),
	}
	a.transactions = &transactions.Server{
		Base: a.base, Store: a.store, Handlers: a.handlers,
		MaxQueued: c.Intents.MaxQueued, Held: transactions.NewHolds(), EventsKept: c.Events.Kept(), EventsMode: string(c.Events.Mode),
	}
	a.steps = &steps.Server{Base: a.base, WorkerOf: a.workerFor, Deliveries: deliveries, Slots: steps.NewDeliverySlots(deliveries.Endpoints)}
	a.sweeps = &sweeps.Server{
		Base: a.base, Store: a.store.Store, Transfers: a.transfers.store,
		Rules: a.transfers.rules, Grace: c.Sweep.Grace, Batch: c.Sweep.Batch, MaxQueued: c.Intents.MaxQueued,
		ShownBalances: c.Telemetry.Balances, EventsKeep: c.Events.Keep, UnusualPerMinute: c.Transfer.UnusualPerMinute,
	}
	if c.Conservation.ChainBlocks > 0 {
		a.sweeps.Unread = checks.New(a.store.Pool()).Unread
	}
	desk := &admin.Desk{Base: a.base, Store: a.store.Store, Approvals: c.Approvals}
	a.admin = &admin.Server{
		Desk: desk, Checker: a.signers.Checker, Release: a.release, Intents: a.transactions, Nonce: c.Nonce,
		Limits: a.attentionLimits(), Settings: c.Differences(),
		Webhooks: admin.Webhooks{Log: eventlog.New(a.store.Store), Settings: c.Events},
	}
	if p := &a.transfers; p.server != nil {
		a.admin.Transfer = &admin.TransferServer{
			Desk: desk, Transfers: p.server, Checks: p.checks, Payouts: p.payouts, Trading: p.trading, RescueAfter: p.rules.RescueAfter,
		}
	}
	if a.servesConsole() {
		return a.openConsole()
	}
	return nil
}

// Close exports the remaining metrics and traces, and closes every connection. When ctx ends it stops
// waiting for connections that unfinished requests still use.
func (a *App) Close(ctx context.Context) error {
	delivered := a.export.Close(ctx)
	if a.toAdmin != nil {
		a.toAdmin.CloseIdleConnections()
	}
	if a.store.Store == nil { // the console alone
		return delivered
	}
	for _, c := range a.base.Chains {
		if c.Connector != nil {
			c.Close()
		}
	}
	a.services.CloseIdleConnections()
	if a.transfers.trading != nil {
		a.transfers.trading.Close()
	}
	failures := []error{a.base.Tasks.Close(), a.kms.Close(), a.topic.Close(), a.base.Mark.Close()}
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

// Gate returns the gate that every request passes. [web.Serve] closes it.
func (a *App) Gate() *web.Gate { return a.gate }

// routes maps each function to the paths that it serves.
func (a *App) routes() map[string]func(*web.Mux) {
	routes := make(map[string]func(*web.Mux))
	if a.console != nil {
		routes[config.ConsoleTarget] = a.routeConsole
	}
	if a.store.Store == nil { // the console alone
		return routes
	}
	maps.Copy(routes, map[string]func(*web.Mux){
		"create":   a.transactions.RouteCreate,
		"query":    a.routeQuery,
		"cancel":   a.transactions.RouteCancel,
		"advance":  a.steps.RouteSession(txmanager.KindAdvance),
		"receipt":  a.steps.RouteSession(txmanager.KindReceipt),
		"confirm":  a.steps.RouteSession(txmanager.KindConfirm),
		"resubmit": a.steps.RouteSession(txmanager.KindResubmit),
		"publish":  a.steps.RoutePublish,
		"sweep":    a.sweeps.RouteSweep,
		"admin":    a.admin.RouteAdmin,
	})
	if t := a.transfers.server; t != nil {
		routes["transfer"], routes["conservation"] = t.RouteTransfer, t.RouteConservation
	}
	return routes
}

// routeQuery serves the function query: transactions and events, and what describes the API.
func (a *App) routeQuery(mux *web.Mux) {
	a.transactions.RouteQuery(mux)
	mux.Handle("GET /openapi.yaml", document)
	catalogue.Route(mux)
}

// startPatience is how long a new process may lack its database before it gets requests all the same. On
// Cloud Run a network connection can take a minute from the start of an instance. terraform's startup
// probe waits longer.
const startPatience = 45 * time.Second

// Handlers returns all functions by target. Each also answers /healthz, /readyz, /startupz and /version.
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
	mux.HandleStartup(a.started)
	mux.HandleVersion()
	if page := a.export.Page(); page != nil {
		mux.Handle("GET /metrics", page)
	}
}
