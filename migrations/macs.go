package migrations

import (
	"context"
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

const (
	// setMACRule changes nothing if that is the rule already: if MACs are required, the last intent allowed without
	// one stays the same.
	setMACRule = `
insert into intent_mac_rule (required, by, reason)
select $1::boolean, $2, $3
 where (last_intent_without_mac() is null) = $1`
	readMACRule = `
select coalesce(last_intent_without_mac(), 0),
       (select count(*) from managed_tx m where (m.queued or m.open) and m.mac is null and m.caller <> ''
           and m.reservation is null and coalesce(m.seq <= last_intent_without_mac(), true))`
)

// RequireMACs requires a MAC for each intent stored from now on: without one it gets no nonce. If required is
// false, intents without a MAC get nonces again, which a release that makes no MACs needs. A second call changes
// nothing.
func RequireMACs(ctx context.Context, databaseURL string, required bool, by, reason string, how ...Option) (r MACRule, err error) {
	how = append(slices.Clone(how), func(c *pgx.ConnConfig) { c.RuntimeParams["lock_timeout"] = "5s" })
	err = withConnection(ctx, "rule of MACs", databaseURL, how, func(conn *pgx.Conn) error {
		return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, lockIntents); err != nil {
				return err
			}
			tag, err := tx.Exec(ctx, setMACRule, required, by, reason)
			if err != nil {
				return err
			}
			r.Changed = tag.RowsAffected() == 1
			return tx.QueryRow(ctx, readMACRule).Scan(&r.Upto, &r.Unmarked)
		})
	})
	return r, err
}
