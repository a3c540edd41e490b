package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/shared/store/internal/results"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// The prefix of a caller's name is its kind. The kinds keep a subject from being spelled like
// another caller's e-mail.
const (
	EmailCaller   = "email:"   // a verified e-mail, as the token has it
	SubjectCaller = "sub:"     // a token's subject
	HandlerCaller = "handler:" // a handler; no token has such a name
)

const (
	// HooksCaller is the caller of reservations. No token has this name.
	HooksCaller = "hooks"
	// AnyCaller in a submitter's callers matches every token and nothing else. A handler, the
	// hooks and the coordinator are always named.
	AnyCaller = "*"
)

// ErrAnyCaller reports a submitter that lists "*" and does not name this caller, while the
// issuer is open, so that "*" lets no token in. Nothing was stored.
var ErrAnyCaller = errors.New(`the submitter's callers are "*", which the deployment does not take`)

// FullCaller is the name with its kind in front. Submitters that were registered before names
// had kinds list e-mails and subjects without one. A name with "@" is an e-mail, any other is
// a subject.
func FullCaller(name string) string {
	switch {
	case slices.Contains([]string{"", PayoutCaller, HooksCaller, AnyCaller}, name), hasKind(name):
		return name
	case strings.Contains(name, "@"):
		return EmailCaller + name
	}
	return SubjectCaller + name
}

func hasKind(name string) bool {
	return slices.ContainsFunc([]string{EmailCaller, SubjectCaller, HandlerCaller}, func(kind string) bool { return strings.HasPrefix(name, kind) })
}

// Spellings are the forms that the full name may have in lists of callers and stored
// transactions. They are the full name, and the name without its kind if [FullCaller] maps
// that back to it.
func Spellings(full string) []string {
	if _, short, ok := strings.Cut(full, ":"); ok && short != full && FullCaller(short) == full {
		return []string{full, short}
	}
	return []string{full}
}

// fullCallers are the names with their kinds, each once, in their order.
func fullCallers(names []string) []string {
	full := make([]string, 0, len(names))
	for _, n := range names {
		if f := FullCaller(n); !slices.Contains(full, f) {
			full = append(full, f)
		}
	}
	return full
}

// namesOf are the names that lists of callers may have for the caller.
func namesOf(caller string, names []string) []string {
	if names == nil {
		return []string{caller}
	}
	return names
}

// arrayText is the array as Postgres writes one, for a column of arrays of any lengths.
func arrayText(all []string) string {
	escape := strings.NewReplacer(`\`, `\\`, `"`, `\"`)
	quoted := make([]string, len(all))
	for i, one := range all {
		quoted[i] = `"` + escape.Replace(one) + `"`
	}
	return "{" + strings.Join(quoted, ",") + "}"
}

// presentCaller is the caller that a transaction or event now belongs to: the stored caller,
// or its successor at the submitter s.
func presentCaller(row string) string {
	return `coalesce(s.succeeded ->> ` + row + `.caller, ` + row + `.caller)`
}

// presentOf is [presentCaller] where s is not joined. The submitter may not be named as a column of "s".
func presentOf(row, submitter string) string {
	return `(select ` + presentCaller(row) + ` from submitter s where s.submitter = ` + submitter + `)`
}

// ownedOf is true of a row of the submitter s that belongs to one of the names which s still
// lists. The coordinator's rows always stay its own.
func ownedOf(row, names string) string {
	present := presentCaller(row)
	return present + ` = any(` + names + `) and (s.callers && array['*', ` + present + `] or ` + row + `.caller = '` + PayoutCaller + `')`
}

// Owned is [ownedOf] where s is not joined.
func Owned(row, names string) string {
	return `exists (select from submitter s where s.submitter = ` + row + `.submitter and ` + ownedOf(row, names) + `)`
}

// recordedFor is true of a managed_tx that a release recorded and for whose submitter one of
// the names may post.
func recordedFor(row, names string) string {
	return row + `.caller = '' and exists (select from submitter s where s.submitter = ` + row + `.submitter and s.callers && ` + names + `)`
}

// theirs are the callers of the submitter s whose transactions the names may read: names that
// s lists, and the callers that these succeeded.
func theirs(names string) string {
	return `lateral (
  select n.name as caller
    from unnest(` + names + `) as n (name)
   where s.callers && array['*', n.name] and not s.succeeded ? n.name
   union
  select o.key
    from jsonb_each_text(s.succeeded) as o
   where o.value = any(` + names + `) and s.callers && array['*', o.value])`
}

// sameCallers reports whether both lists have the same callers, in any order.
func sameCallers(a, b []string) bool {
	a, b = fullCallers(a), fullCallers(b)
	slices.Sort(a)
	slices.Sort(b)
	return slices.Equal(a, b)
}

// CallersChange sets a submitter's callers in place of what they were, by an operator.
type CallersChange struct {
	Submitter txmanager.Submitter
	Callers   []string          // full names
	Succeeds  map[string]string // by a caller that is listed now, the one that it succeeds
	By        string
	Reason    string

	OnlyFewer bool // the change only removes callers: see [ErrNotTighter]
}

// CallersError reports callers that do not fit the submitter's present ones. Nothing was
// changed.
type CallersError struct {
	Field  string // "callers" or "succeeds"
	Detail string
}

// Error names the field and the contradiction.
func (e CallersError) Error() string { return e.Field + " " + e.Detail }

// endLeaseSession takes the lease from its holder, which can then write nothing of what it
// loaded. It waits for a write that is under way. A submitter that never had a lease gets its
// lease row here. The first invocation to acquire the lease then waits for that row and loads
// after it.
const endLeaseSession = `
insert into submitter_lease as l (submitter, owner_node, fencing_token, expires_at, updated_at)
select submitter, '', 1, clock_timestamp(), clock_timestamp()
  from submitter
 where submitter = $1
    on conflict (submitter) do update
   set owner_node = '', rerun_requested = false, fencing_token = l.fencing_token + 1, updated_at = clock_timestamp()`

// changeUnderLease ends the lease session and then changes what may bind the submitter's
// nonces. Everything written after the commit was loaded after it. The lease row is locked
// first, as in every fenced write, so that the two cannot deadlock. It returns the token in
// force after the commit. If the error of change is errSame, nothing is changed.
func (s *Store) changeUnderLease(ctx context.Context, sub txmanager.Submitter, change func(pgx.Tx) error) (token int64, changed bool, err error) {
	once := func() error {
		return pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, endLeaseSession, sub); err != nil {
				return err
			}
			if err := CarryOut(ctx, tx); err != nil {
				return err
			}
			return change(tx)
		})
	}
	err = once()
	if blocked(err) { // by a client that is frozen in a write, perhaps
		if err := s.endFrozen(ctx); err != nil {
			return 0, false, err
		}
		err = once()
	}
	changed = !errors.Is(err, errSame)
	if err != nil && changed {
		return 0, false, err
	}
	err = s.db.QueryRow(ctx, findToken, sub).Scan(&token, s.nameEpochOf(&sub))
	return token, changed, results.Wrap(err, "read the token of %s", sub)
}

// lockCallers locks the row as [changeSigner] does.
const lockCallers = `
select callers, succeeded,
       array(select distinct unnest(c.from_callers) from submitter_change c where c.submitter = $1 and c.action = 'CALLERS')
  from submitter
 where submitter = $1
   for no key update`

const changeCallers = `
with changed as (
  update submitter set callers = $2, succeeded = $3 where submitter = $1
  returning submitter
)
insert into submitter_change (submitter, action, by, reason, from_callers, to_callers, succeeds)
select submitter, 'CALLERS', $5, $6, $4, $2, coalesce($7::jsonb, '{}') from changed`

// PutCallers sets the callers, with a record of them before and after, and returns the token
// in force after the commit. It ends the lease session of the lease's holder, so that
// everything written after the commit was loaded after it. The same callers again change
// nothing. The error wraps [ErrUnknownSubmitter] or [ErrNotTighter], or is a [CallersError].
func (s *Store) PutCallers(ctx context.Context, c CallersChange) (token int64, changed bool, err error) {
	token, changed, err = s.changeUnderLease(ctx, c.Submitter, func(tx pgx.Tx) error {
		var before callers
		err := tx.QueryRow(ctx, lockCallers, c.Submitter).Scan(&before.listed, &before.succeeded, &before.former)
		if err != nil {
			return results.Missing(err, ErrUnknownSubmitter)
		}
		after, err := before.changed(c.Callers, c.Succeeds)
		if err != nil {
			return err
		}
		if c.OnlyFewer && (len(c.Succeeds) > 0 || slices.ContainsFunc(after.listed, func(name string) bool { return !slices.Contains(fullCallers(before.listed), name) })) {
			return ErrNotTighter
		}
		if slices.Equal(after.listed, before.listed) && maps.Equal(after.succeeded, before.succeeded) {
			return errSame
		}
		_, err = tx.Exec(ctx, changeCallers, c.Submitter, after.listed, after.succeeded, before.listed, c.By, PrintableText(c.Reason), c.Succeeds)
		return err
	})
	return token, changed, results.Wrap(err, "change the callers of %s", c.Submitter)
}

// errSame ends a transaction that has nothing to change.
var errSame = errors.New("the terms are these already")

// callers are a submitter's callers, and the former callers that they succeeded.
type callers struct {
	listed    []string
	succeeded map[string]string // the present name, by each that may stand with what is its
	former    []string          // listed before
}

// changed returns the callers after a change. Successions apply in one step: a caller that
// succeeds a successor gets what that one had. A caller may succeed several callers, one after
// the other.
func (c callers) changed(listed []string, succeeds map[string]string) (after callers, err error) {
	listed = fullCallers(listed)
	after = callers{listed: listed, succeeded: maps.Clone(c.succeeded)}
	if slices.Contains(fullCallers(c.listed), PayoutCaller) != slices.Contains(listed, PayoutCaller) {
		return after, CallersError{"callers", fmt.Sprintf("adds or leaves out %q: whether an account pays payouts is settled at its registration", PayoutCaller)}
	}
	if after.succeeded == nil {
		after.succeeded = map[string]string{}
	}
	taken := make(map[string]string)
	for _, successor := range slices.Sorted(maps.Keys(succeeds)) {
		old := succeeds[successor]
		if other := taken[old]; other != "" {
			return after, CallersError{"succeeds", fmt.Sprintf("gives %s two successors, %s and %s: want one", old, other, successor)}
		}
		taken[old] = successor
		if err := c.checkSuccession(after, successor, old); err != nil {
			return after, err
		}
		after.follow(successor, old)
	}
	return after, after.settle()
}

// checkSuccession refuses a succession that has no effect or is ambiguous.
func (c callers) checkSuccession(after callers, successor, old string) error {
	present := c.succeeded[old]
	known := fullCallers(slices.Concat(c.listed, c.former))
	switch {
	case !slices.Contains(after.listed, successor):
		return CallersError{"succeeds", fmt.Sprintf("names %s as a successor, which callers does not have: add it there", successor)}
	case slices.Contains(after.listed, old):
		return CallersError{"succeeds", fmt.Sprintf("names %s as succeeded, which callers still has: take it off there", old)}
	case present != "" && present != successor:
		return CallersError{"succeeds", fmt.Sprintf("names %s as succeeded, which %s has succeeded already: name that one in its place", old, present)}
	case present == "" && !slices.Contains(known, old) && !slices.Contains(known, AnyCaller):
		return CallersError{"succeeds", fmt.Sprintf("names %s as succeeded, which never was among the submitter's callers", old)}
	}
	return nil
}

// follow gives successor what old had.
func (c callers) follow(successor, old string) {
	for name, present := range c.succeeded {
		if present == old {
			c.succeeded[name] = successor
		}
	}
	for _, spelled := range Spellings(old) {
		c.succeeded[spelled] = successor
	}
	if c.succeeded[successor] == successor { // old succeeded it once, and it is back
		delete(c.succeeded, successor)
	}
}

// settle gives each caller the intents stored under its own name, in any spelling.
func (c callers) settle() error {
	for _, name := range c.listed {
		if present := c.succeeded[name]; present != "" {
			return CallersError{"callers", fmt.Sprintf("has %s, which %s has succeeded: the intents of both would be %s's. To restore it, remove %s and send succeeds {%q: %q}",
				name, present, present, present, name, present)}
		}
		for _, spelled := range Spellings(name)[1:] {
			if hasKind(name) {
				c.succeeded[spelled] = name
			}
		}
	}
	if slices.Contains(c.listed, AnyCaller) {
		for old, present := range c.succeeded {
			if FullCaller(old) != present {
				return CallersError{"callers", fmt.Sprintf("has \"*\", which would let %s post again, whom %s has succeeded: name the callers", old, present)}
			}
		}
	}
	return nil
}
