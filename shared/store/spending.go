package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/shared/store/internal/results"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// Spent is a final transaction and what it cost.
type Spent struct {
	At      time.Time // when it was final
	Value   string    // in wei, of what was carried out
	Receipt []byte    // as the node gave it
}

// spending reads the submitter's newest nonces, and of those that were final within a day the mined version
// and its receipt, unless they are archived.
const spending = `
select m.confirmed_at, case when m.state = 'CONFIRMED' then coalesce(d.body ->> 'value', '0') else '0' end, r.body::text::bytea
  from (select * from managed_tx m where m.submitter = $1 and m.nonce is not null order by m.nonce desc limit 50) as m
  join tx_version v on v.tx_hash = m.receipt ->> 'txHash'
  join tx_document d on d.tx_id = m.tx_id and d.name = 'version:' || v.version
  join tx_document r on r.tx_id = m.tx_id and r.name = 'receipt:' || (m.receipt ->> 'blockHash')
 where m.confirmed_at > clock_timestamp() - interval '1 day'
 order by m.nonce desc`

// Spending lists up to 50 final transactions of the last day, the newest first, and the database's time.
func (s *Store) Spending(ctx context.Context, sub txmanager.Submitter) (all []Spent, now time.Time, err error) {
	all, now, err = results.AllNow(ctx, s.db, pgx.RowToStructByPos[Spent], spending, sub)
	return all, now, results.Wrap(err, "read what %s spent", sub)
}
