package store

import (
	"context"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/shared/store/internal/results"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// inProtect lists the submitters with an open PROTECT incident, which have a status beside it.
const inProtect = "PROTECT"

// SubmitterStates are the states by which submitters are listed.
func SubmitterStates() []string { return []string{"ACTIVE", "SUSPENDED", inProtect, statusRetired} }

// SubmitterQuery requests one page of submitters.
type SubmitterQuery struct {
	State  string // one of [SubmitterStates]; "": any
	ByName bool   // by name, those without one last; else by submitter. No index has the names of a State
	After  SubmitterPlace
	Size   int // maximum, at least 1
}

// SubmitterPlace is the last submitter of a page; zero: the first page follows.
type SubmitterPlace struct {
	Submitter string
	Name      string // if the list is by name
}

// pageOfSubmitters shows the submitters that a statement reads, in its order: those after $1, at most $2. Each statement
// reads them in the order of an index. That of the active ones reads past the others.
func pageOfSubmitters(order, statement string) string {
	return viewSubmitters + ` where s.submitter = any (array(` + statement + ` limit $2)) order by ` + order
}

var (
	listSubmitters = pageOfSubmitters(`s.submitter`,
		`select n.submitter::text from submitter n where n.submitter > $1 order by n.submitter`)
	listSubmittersActive = pageOfSubmitters(`s.submitter`,
		`select n.submitter::text from submitter n where n.submitter > $1 and n.status = 'ACTIVE' order by n.submitter`)
	listSubmittersNotActive = pageOfSubmitters(`s.submitter`,
		`select n.submitter::text from submitter n where n.submitter > $1 and n.status = $3 and n.status <> 'ACTIVE' order by n.submitter`)
	listSubmittersProtect = pageOfSubmitters(`s.submitter`,
		`select p.submitter::text from protect_incident p where p.submitter > $1 and p.closed_at is null order by p.submitter`)
	listSubmittersByName = pageOfSubmitters(`s.name = '', s.name, s.submitter`,
		`select n.submitter::text from submitter n where (n.name = '', n.name, n.submitter) > ($3::boolean, $4, $1) order by n.name = '', n.name, n.submitter`)
)

// Submitters returns one page of submitters.
func (s *Store) Submitters(ctx context.Context, q SubmitterQuery) ([]SubmitterView, error) {
	statement, args := listSubmitters, []any{q.After.Submitter, q.Size}
	switch {
	case q.State == "ACTIVE":
		statement = listSubmittersActive
	case q.State == inProtect:
		statement = listSubmittersProtect
	case q.State != "":
		statement, args = listSubmittersNotActive, append(args, q.State)
	case q.ByName:
		isUnnamed := q.After.Submitter != "" && q.After.Name == ""
		statement, args = listSubmittersByName, append(args, isUnnamed, q.After.Name)
	}
	all, err := results.All(ctx, s.db, pgx.RowToStructByPos[SubmitterView], statement, args...)
	for i := range all {
		all[i].fullNames()
	}
	return all, results.Wrap(err, "list submitters")
}

const activeOn = `
select submitter
  from submitter
 where split_part(submitter, ':', 1) = $1 and split_part(submitter, ':', 2) = $2::text and status = 'ACTIVE'
 order by submitter
 limit $3`

// ActiveOn lists the first active submitters of the chain, in their order.
func (s *Store) ActiveOn(ctx context.Context, namespace string, chainID uint64, limit int) ([]txmanager.Submitter, error) {
	all, err := results.All(ctx, s.db, pgx.RowTo[txmanager.Submitter], activeOn, namespace, strconv.FormatUint(chainID, 10), limit)
	return all, results.Wrap(err, "list the submitters of chain %s:%d", namespace, chainID)
}
