package migrations

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
)

// MACRule states which intents may be without a MAC.
type MACRule struct {
	Changed  bool  // by this call
	Upto     int64 // if MACs are required: the last intent without one that is allowed, by seq
	Unmarked int64 // open intents without a MAC that can still get a nonce
}

// lockIntents waits for running writers and blocks new ones until the commit, so that the last intent
// is fixed.
const lockIntents = `lock table managed_tx in share row exclusive mode`

// requireMACs changes nothing if MACs are required already: the last intent allowed without one stays
// the same.
const (
	requireMACs = `
insert into intent_mac_rule (required, by, reason)
select true, $1, $2
 where last_intent_without_mac() is null`
	allowUnmarked = `
insert into intent_mac_rule (required, by, reason)
select false, $1, $2
 where last_intent_without_mac() is not null`
	readMACRule = `
select coalesce(last_intent_without_mac(), 0),
       (select count(*) from managed_tx m where (m.queued or m.open) and m.mac is null and m.caller <> ''
           and m.reservation is null and coalesce(m.seq <= last_intent_without_mac(), true))`
)

// RequireMACs requires a MAC for each intent stored from now on: without one it gets no nonce. A
// second call changes nothing.
func RequireMACs(ctx context.Context, databaseURL, by, reason string, how ...Option) (MACRule, error) {
	return setMACRule(ctx, databaseURL, requireMACs, by, reason, how)
}

// AllowUnmarked lets intents without a MAC get nonces, as before [RequireMACs]. A release that makes
// no MACs needs it.
func AllowUnmarked(ctx context.Context, databaseURL, by, reason string, how ...Option) (MACRule, error) {
	return setMACRule(ctx, databaseURL, allowUnmarked, by, reason, how)
}

func setMACRule(ctx context.Context, databaseURL, statement, by, reason string, how []Option) (r MACRule, err error) {
	how = append(slices.Clone(how), func(c *pgx.ConnConfig) { c.RuntimeParams["lock_timeout"] = "5s" })
	err = withConnection(ctx, databaseURL, how, func(conn *pgx.Conn) error {
		return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
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
	})
	if err != nil {
		return r, fmt.Errorf("rule of MACs: %w", err)
	}
	return r, nil
}
