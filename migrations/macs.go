package migrations

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// MACRule says which intents may be without a MAC.
type MACRule struct {
	Changed  bool  // by this call
	Upto     int64 // where MACs are required: the last intent, by seq, that may be without
	Unmarked int64 // open intents without a MAC that may still get a nonce
}

// No writer is at work when the last intent is read, and none begins before the commit.
const lockIntents = `lock table managed_tx in share row exclusive mode`

// requireMACs changes nothing where MACs are required: the last intent that may be without
// one stays the same.
const (
	requireMACs = `
insert into intent_mac_rule (required, by, reason)
select true, $1, $2
 where unmarked_upto() is null`
	allowUnmarked = `
insert into intent_mac_rule (required, by, reason)
select false, $1, $2
 where unmarked_upto() is not null`
	readMACRule = `
select coalesce(unmarked_upto(), 0),
       (select count(*) from managed_tx m where (m.queued or m.unsettled) and m.mac is null and m.caller <> ''
           and m.reservation is null and coalesce(m.seq <= unmarked_upto(), true))`
)

// RequireMACs has no intent get a nonce that is stored from now on without a MAC. To call
// it again changes nothing.
func RequireMACs(ctx context.Context, databaseURL, by, reason string, how ...Option) (MACRule, error) {
	return setMACRule(ctx, databaseURL, requireMACs, by, reason, how)
}

// AllowUnmarked has intents without a MAC get nonces, as before [RequireMACs]: a release
// that makes no MACs needs it.
func AllowUnmarked(ctx context.Context, databaseURL, by, reason string, how ...Option) (MACRule, error) {
	return setMACRule(ctx, databaseURL, allowUnmarked, by, reason, how)
}

func setMACRule(ctx context.Context, databaseURL, statement, by, reason string, how []Option) (r MACRule, err error) {
	config, err := parse(databaseURL, how)
	if err != nil {
		return r, fmt.Errorf("rule of MACs: %w", err)
	}
	config.RuntimeParams["lock_timeout"] = "5s"
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return r, fmt.Errorf("rule of MACs: %w", err)
	}
	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }()
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, lockIntents); err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, statement, by, reason)
		if err != nil {
			return err
		}
		r.Changed = tag.RowsAffected() == 1
		return tx.QueryRow(ctx, readMACRule).Scan(&r.Upto, &r.Unmarked)
	})
	if err != nil {
		return r, fmt.Errorf("rule of MACs: %w", err)
	}
	return r, nil
}
