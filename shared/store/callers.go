package store

import (
	"errors"
	"slices"
	"strings"
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
