package store

import (
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/shared/txmanager"
)

// insertLimited is [insertIntents] for one intent of a submitter that may have a
// policy.
var insertLimited = `
with ` + verdict(judging{
	caller: `select ` + storedCaller + ` from (values (@caller::text, @names::text)) as i (caller, names)`, amount: `@amount::numeric`, queues: `true`,
	fees: `@gas::bigint as gas, @tip::numeric as tip_wei, @fee::numeric as fee_wei`,
}) + `, new as (
  insert into managed_tx (tx_id, submitter, request_id, caller, handler, fingerprint, trace, fencing_token, held, held_for, last_error, mac, mac_key, valid_until)
  select j.tx_id, s.submitter, @request_id, ` + storedCaller + `, nullif(i.handler, ''), @fingerprint, @trace,
         (select fencing_token from submitter_lease where submitter = s.submitter), ` + heldColumns + `, ` + storedMAC + `, @valid_until::timestamptz
    from evaluated j
   cross join (values (@caller::text, @handler::text, @digest::bytea, @request_id::text, @names::text, @macs::bytea, @mac_key::text)) as i (caller, handler, digest, request_id, names, macs, mac_key)
    join submitter s on s.submitter = @submitter
   cross join ` + holdCause + `
   where j.refused = '' and ` + mayPost + ` and (f.held_for is null or @beside)
     and (@valid_until::timestamptz is null or @valid_until > clock_timestamp())
     and (@bound::int is null or (select count(*) from (select from managed_tx q where q.submitter = @submitter and q.queued and not q.held limit @bound) as queued) < @bound)
      on conflict (submitter, request_id) do nothing
  returning tx_id
), ` + countUse(`exists (select from new)`, ``) + verdictColumns

// queueLimited handles each intent of a submitter that is not cached as one without a policy.
// It adds a statement that checks the intent and stores it if nothing refuses it.
func (s *Store) queueLimited(b *pgx.Batch, c creation) error {
	var locks []string
	for i, r := range c.records {
		if c.found[i].judged = r.Refused == nil && !s.limits.hasNone(r.Submitter); c.found[i].judged {
			locks = append(locks, string(r.Submitter))
		}
	}
	if len(locks) > 0 {
		b.Queue(lockPolicies, locks)
	}
	for i, r := range c.records {
		if !c.found[i].judged {
			continue
		}
		a, err := policyInputOf(r.Intent)
		if err != nil {
			return err
		}
		var bound *int
		if _, counted := c.counted[r.Submitter]; counted {
			bound = &c.queueBound
		}
		b.Queue(insertLimited, NamedArgs{
			"submitter": r.Submitter, "tx_id": r.TxID, "request_id": r.RequestID, "caller": r.Caller, "names": r.names, "handler": r.Handler,
			"fingerprint": r.Fingerprint[:], "digest": r.digest, "trace": r.Trace, "valid_until": micros(r.ValidUntil), "macs": r.mac.sums, "mac_key": r.mac.key,
			"value": a.value, "targets": a.targets, "counts": 1, "amount": a.amount, "gas": a.gas, "tip": a.tip, "fee": a.fee,
			"bound": bound, "beside": c.beside,
		}).QueryRow(func(row pgx.Row) (err error) {
			c.found[i].refused, err = scanVerdict(row)
			return err
		})
	}
	return nil
}

// policyCache remembers submitters without a policy. Their intents share one statement; each
// other intent has its own, in the same round trip. A stale entry costs a second round trip
// and has no other effect.
type policyCache struct {
	mu   sync.Mutex
	none map[txmanager.Submitter]bool
}

// hasNone is true if s is cached as one without a policy.
func (l *policyCache) hasNone(s txmanager.Submitter) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.none[s]
}

// note caches whether s has a policy.
func (l *policyCache) note(s txmanager.Submitter, limited bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.none == nil || len(l.none) >= 10_000 { // forgetting costs a statement and nothing else
		l.none = make(map[txmanager.Submitter]bool)
	}
	if l.none[s] = true; limited {
		delete(l.none, s)
	}
}
