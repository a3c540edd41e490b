package migrations

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"
)

// grantsFile lists each function's rights beyond reading, by function and object, as Postgres' GRANT
// spells them. It has each function of terraform/functions.json. The additional entry "hooks" is for a
// Go program that reserves nonces (docs/hooks.md).
//
//go:embed grants.json
var grantsFile []byte

// EveryFunction stands for all functions. It is for a process that serves all of them with one role,
// as on a developer's machine.
const EveryFunction = "all"

// byFunction returns the file's content: rights by function and object.
var byFunction = sync.OnceValues(func() (map[string]map[string][]string, error) {
	rights := make(map[string]map[string][]string)
	if err := json.Unmarshal(grantsFile, &rights); err != nil {
		return nil, fmt.Errorf("grants.json: %w", err)
	}
	return rights, nil
})

// ErrNoFunction reports a function name that does not exist.
var ErrNoFunction = errors.New("no function has this name")

// Functions returns the functions' names and "hooks", without [EveryFunction].
func Functions() ([]string, error) {
	rights, err := byFunction()
	return slices.Sorted(maps.Keys(rights)), err
}

// rightsOf returns the rights by object of a role that the functions log in as.
func rightsOf(functions []string) (map[string][]string, error) {
	all, err := byFunction()
	if err != nil {
		return nil, err
	}
	if slices.Contains(functions, EveryFunction) {
		functions = slices.Collect(maps.Keys(all))
	}
	union := make(map[string][]string)
	for _, function := range functions {
		own, there := all[function]
		if !there {
			return nil, fmt.Errorf("%w: %q; the functions are %s, and %s for a role that serves every function", ErrNoFunction, function, strings.Join(slices.Sorted(maps.Keys(all)), ", "), EveryFunction)
		}
		for object, rights := range own {
			union[object] = append(union[object], rights...)
		}
	}
	for object, rights := range union {
		slices.Sort(rights)
		union[object] = slices.Compact(rights)
	}
	return union, nil
}

// exactly returns the statements that leave a role with these rights and no others. The role can also
// read the tables and the sequences' last values.
func exactly(role, tables string, rights map[string][]string) (statements []string) {
	to := pgx.Identifier{role}.Sanitize()
	statements = append(statements,
		"revoke all on all tables in schema public from "+to,
		"revoke all on all sequences in schema public from "+to,
		"revoke all on all routines in schema public from "+to,
		"grant usage on schema public to "+to,
		"grant select on all sequences in schema public to "+to,
		"grant select on "+tables+" to "+to)
	for _, object := range slices.Sorted(maps.Keys(rights)) {
		statements = append(statements, "grant "+strings.Join(rights[object], ", ")+" on "+object+" to "+to)
	}
	return statements
}
