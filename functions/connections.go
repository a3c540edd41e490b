package functions

import (
	"cmp"
	"context"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencepost/fencepost/functions/serve"
	"github.com/fencepost/fencepost/shared/mark"
	"github.com/fencepost/fencepost/shared/mark/gcs"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/cloudsql"
	"github.com/fencepost/fencepost/shared/tasks"
	"github.com/fencepost/fencepost/shared/telemetry/export"
	"github.com/fencepost/fencepost/shared/web"
)

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
		Events: eventMode(a.config.Events), OnEvents: serve.LogEvents(a.base.Log),
		GasBumpAfter: bumpAfter(a.config.GasBump), AnyCaller: !a.config.Auth.OpenIssuer,
	}
	if a.acceptsIntents() {
		o.MACs = a.intents
	}
	if a.signsIntents() {
		o.MACKeys = a.intents.IDs()
	}
	a.store.Store, err = store.Open(ctx, o)
	return err
}

func (a *App) openExport(ctx context.Context) (err error) {
	t, on := a.config.Telemetry, a.config.Platform
	a.export, err = export.Start(ctx, export.Options{
		OTLPEndpoint: t.OTLPEndpoint, Prometheus: t.Prometheus, FlushEvery: t.FlushEvery, TraceOneIn: t.TraceOneIn,
		Service: cmp.Or(on.Service, "fencepost"), Version: on.Revision, Instance: a.base.Node, Log: a.base.Log,
	})
	return err
}

func (a *App) openMark(ctx context.Context) error {
	c := a.config.Mark
	if !c.Enabled {
		return nil
	}
	object, err := gcs.Open(ctx, c.Bucket, mark.ObjectName, c.Endpoint)
	if err == nil {
		a.base.Mark = serve.NewMark(object, a.store.Store)
	}
	return err
}

func (a *App) openVerifiers(context.Context) (err error) {
	verifier := func(audience string) (*web.Verifier, error) {
		return web.NewVerifier(web.VerifierOptions{
			Issuer: a.config.OIDC.Issuer, JWKSURL: a.config.OIDC.JWKSURL, Audience: audience,
		})
	}
	if a.base.Public, err = verifier(a.config.Auth.PublicAudience); err != nil {
		return err
	}
	a.base.Internal, err = verifier(a.config.Auth.InternalAudience)
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
