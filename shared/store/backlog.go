package store

import (
	"context"
	"fmt"
	"time"
)

// Backlog has the counts and ages of waiting items, over all submitters.
type Backlog struct {
	Queued     int           // intents that wait for a nonce, less those that are held
	Held       int           // intents that no nonce is given to until their caller or an operator decides
	Fullest    int           // of them, in the longest queue of one submitter
	OldestHeld time.Duration // since the first signature for the nonce that has been held for longest; 0: none is held
	Stuck      int           // transactions that wait for a decision
	NoReceipt  int           // transactions that were sent and have no receipt yet
	Protected  int           // submitters in PROTECT: all, where the database is not the one written last

	WaitBalance int // submitters in whose queue something waits for the account to be funded
	WaitFee     int // submitters in whose queue something waits for lower fees
	BumpHeld    int // transactions that a bound keeps from being replaced at a higher fee

	HeldLongest time.Duration // since the held intent that was left alone for longest was changed last; 0: none is held
}

// backlog reads only open rows. An item whose start lies in the future, because the clock was
// set back, has waited 0 seconds. Of one submitter's nonces, the lowest has been held for
// longest.
const backlog = `
with queue as (
  select count(*) as length, bool_or(last_error like 'balance: %') as poor, bool_or(last_error like 'fee: %') as dear
    from managed_tx where queued and not held group by submitter
), open_txs as materialized (
  select submitter, nonce, tx_id, state, sub_state, updated_at, last_error from managed_tx where open
), lowest as (
  select distinct on (submitter) tx_id, updated_at from open_txs order by submitter, nonce
)
select (select coalesce(sum(length), 0) from queue), (select coalesce(max(length), 0) from queue),
       (select greatest(clock_timestamp() - min(coalesce(v.created_at, l.updated_at)), interval '0')
          from lowest l
          left join tx_version v on v.tx_id = l.tx_id and v.version = 1),
       (select count(*) from open_txs where state = 'STUCK'),
       (select count(*) from open_txs where state = 'SUBMITTED' or sub_state = 'PENDING'),
       case when is_accepted_database() then (select count(*) from protect_incident where closed_at is null)
            else (select count(*) from submitter) end,
       (select count(*) from queue where poor), (select count(*) from queue where dear),
       (select count(*) from open_txs where last_error like 'gas bump: %'),
       (select count(*) from managed_tx where queued and held),
       (select greatest(clock_timestamp() - min(updated_at), interval '0') from managed_tx where queued and held)`

// Backlog reads the counts and ages in one round trip.
func (s *Store) Backlog(ctx context.Context) (b Backlog, err error) {
	err = s.db.QueryRow(ctx, backlog).Scan(&b.Queued, &b.Fullest, &b.OldestHeld, &b.Stuck, &b.NoReceipt, &b.Protected,
		&b.WaitBalance, &b.WaitFee, &b.BumpHeld, &b.Held, &b.HeldLongest)
	if err != nil {
		return Backlog{}, fmt.Errorf("read the backlog: %w", err)
	}
	return b, nil
}
