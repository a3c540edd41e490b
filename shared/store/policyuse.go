package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/shared/store/internal/results"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// PolicyUse is what counts now against the limits over time of a submitter's policy.
type PolicyUse struct {
	At              time.Time     `json:"at"`
	IntentsInMinute int64         `json:"intentsInMinute"`
	ValueInDay      string        `json:"valueInDay"` // wei, of the last 24 hours
	FeesInDay       *string       `json:"feesInDay"`  // wei; nil: the policy does not limit them
	Scopes          []PolicyScope `json:"scopes" db:"-"`
}

// PolicyScope is the use by one caller, or of one token.
type PolicyScope struct {
	Scope           string `json:"scope"` // the caller's full name, or the token's address
	IntentsInMinute int64  `json:"intentsInMinute"`
	InDay           string `json:"inDay"` // of a caller in wei, of a token in its base units
}

var (
	policyUse = `
select c.now, c.in_minute, c.in_day::text, (` + feesInDay + `)::text
  from (` + submitterUse + `) as c
  left join submitter_policy p on p.submitter = @submitter`

	policyScopes = `
with recursive scopes as (
  (select min(u.scope) as scope from policy_use u where u.submitter = @submitter and u.scope > @after)
  union all
  select (select min(u.scope) from policy_use u where u.submitter = @submitter and u.scope > s.scope) from scopes s where s.scope is not null
)
select s.scope,
       ` + inMinute("o.intents", usesOf("s.scope"), "c.now") + `,
       (` + inDay("o.total", usesOf("s.scope"), "total", "s.scope", "c.now") + `)::text
  from (select scope from scopes where scope is not null limit @size) as s
 cross join (select clock_timestamp() as now) as c
 cross join lateral (` + newest(usesOf("s.scope")) + `) as o
 order by s.scope`
)

// PolicyUse returns what counts against the policy of a submitter, with up to size callers and tokens after one by
// name. The error wraps [ErrUnknownSubmitter].
func (s *Store) PolicyUse(ctx context.Context, sub txmanager.Submitter, after string, size int) (use PolicyUse, err error) {
	if _, err := s.Submitter(ctx, sub); err != nil {
		return use, err
	}
	b := new(pgx.Batch)
	b.Queue(policyUse, NamedArgs{"submitter": sub}).QueryRow(results.Scan(&use.At, &use.IntentsInMinute, &use.ValueInDay, &use.FeesInDay))
	b.Queue(policyScopes, NamedArgs{"submitter": sub, "after": after, "size": size}).Query(results.Into(&use.Scopes, pgx.RowToStructByPos[PolicyScope]))
	err = s.send(ctx, b)
	return use, results.Wrap(err, "read the use of the policy of %s", sub)
}
