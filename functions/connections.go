package functions

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencepost/fencepost/functions/serve"
	"github.com/fencepost/fencepost/shared/buildinfo"
	"github.com/fencepost/fencepost/shared/config"
	"github.com/fencepost/fencepost/shared/intentmac"
	"github.com/fencepost/fencepost/shared/mark"
	"github.com/fencepost/fencepost/shared/mark/gcs"
	"github.com/fencepost/fencepost/shared/signer/kms"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/cloudsql"
	"github.com/fencepost/fencepost/shared/tasks"
	"github.com/fencepost/fencepost/shared/telemetry"
	"github.com/fencepost/fencepost/shared/telemetry/export"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/web"
)

func (a *App) openStore(ctx context.Context) (err error) {
	db := a.config.Database
	var dial pgconn.DialFunc
	if db.Instance != "" {
		a.cloudSQL = cloudsql.New(db.Instance)
		dial = a.cloudSQL.Dial
	}
	slowest := slices.MaxFunc(a.config.Served(), func(a, b config.ServedChain) int { return cmp.Compare(a.BlockTime, b.BlockTime) })
	o := store.Options{
		URL: db.URL.Reveal(), Dial: dial, MaxConns: int(db.MaxConns), Lease: leaseRules(a.config.Lease),
		StatementTimeout: db.StatementTimeout, LockTimeout: db.LockTimeout,
		IdleInTransactionTimeout: db.IdleInTransactionTimeout, StuckAfter: a.config.Broadcasting.StuckAfter,
		Events: eventMode(a.config.Events), OnEvents: serve.LogEvents(a.base.Log),
		GasBumpAfter: bumpAfter(a.config.GasBump), AnyCaller: !a.config.Auth.OpenIssuer, Strict: a.config.Nonce.Strict,
		AcquireWait: a.config.Lease.BatchWait, BlockTime: slowest.BlockTime,
	}
	if a.acceptsIntents() {
		o.MACs = a.intents
	}
	if a.signs() {
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
	build := buildinfo.Read()
	telemetry.BuildInfo.Record(ctx, 1, telemetry.Build(build.Version, build.Revision))
	return err
}

func (a *App) openMark(ctx context.Context) error {
	c := a.config.Mark
	if c.Bucket == "" {
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
			Issuer: a.config.Auth.Issuer, JWKSURL: a.config.Auth.JWKSURL, Audience: audience,
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
	a.base.Tasks = tasks.New(tasks.Options{
		Parent:   "projects/" + t.Project + "/locations/" + t.Location,
		Endpoint: t.Endpoint, QueuePrefix: t.QueuePrefix, QueueShards: t.QueueShards,
		TargetURL: t.TargetURL, ServiceAccount: t.ServiceAccount, Audience: a.config.Auth.InternalAudience,
		DispatchDeadline: t.DispatchDeadline, Epoch: a.store.Epoch, NameEpoch: a.store.NameEpoch,
	})
}

// openIntents reads the keys of the MACs of intents. A process that accepts intents does not start
// without a key. A process that signs does start: the intents that it cannot check wait.
func (a *App) openIntents(context.Context) error {
	a.kms = kms.New(kms.Options{Endpoint: a.config.Signer.KMSEndpoint, Timeout: a.config.Signer.Timeout})
	texts := serve.ViewsOf(a.config.Intents.MACKeys, config.Secret.Reveal)
	keys, err := intentmac.New(texts, a.kms)
	switch {
	case err != nil:
		return fmt.Errorf("intents.macKeys: %w", err)
	case len(texts) == 0 && a.acceptsIntents():
		return errors.New("set FENCEPOST_INTENTS_MAC_KEYS (intents.macKeys): this process accepts intents, and nothing is signed for an intent without a MAC")
	}
	a.intents = keys
	if ids := keys.IDs(); len(ids) > 0 {
		a.base.Log.Info("keys of the MACs of intents, the first of which makes them", "macKeys", ids)
	}
	return nil
}

// acceptsIntents reports whether this process stores intents. The function admin stores them when it
// continues a transfer after an operator's statement.
func (a *App) acceptsIntents() bool {
	return a.serves("create") || a.serves("transfer") || a.serves("admin") && a.config.Trading.URL != ""
}

// signs reports whether this process signs, and therefore calls handlers.
func (a *App) signs() bool { return a.serves(string(txmanager.KindAdvance)) }

// serves reports whether this process serves the function, alone or with all others.
func (a *App) serves(function string) bool {
	return slices.Contains([]string{"", All, function}, a.config.Platform.FunctionTarget)
}
