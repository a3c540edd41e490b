package pgproxy

import (
	"regexp"
	"strings"
)

// Statements are recognised by their first words, without comments before them. A select that calls a
// writing function does not count as a write.
var (
	begins  = regexp.MustCompile(`(?is)^(begin|start\s+transaction)(\s+(work|transaction|isolation|read|not|deferrable)\b.*)?$`)
	commits = regexp.MustCompile(`(?i)^(commit|end)(\s+(work|transaction))?$`)
	writes  = regexp.MustCompile(`(?is)^(create|alter|drop|truncate|grant|revoke|copy|call|do)\b|` +
		`\b(insert\s+into|update\s.*\bset|delete\s+from|merge\s+into)\b`)
)

// transaction is the statements that a connection has run since its last commit or rollback.
type transaction struct {
	sql   []string
	block bool // between begin and commit
	wrote bool
}

// run adds a statement and reports whether it commits.
func (t *transaction) run(sql string) bool {
	sql = strings.Trim(sql, "; \t\r\n")
	t.sql = append(t.sql, sql)
	switch {
	case begins.MatchString(sql):
		t.block = true
	case commits.MatchString(sql):
		return t.block
	case writes.MatchString(sql):
		t.wrote = true
	}
	return false
}

// runAll calls run for each statement of a simple Query. A semicolon inside a statement splits it too. This
// is harmless: the parts begin with no word that counts.
func (t *transaction) runAll(text string) (commits bool) {
	for sql := range strings.SplitSeq(text, ";") {
		commits = t.run(sql) || commits
	}
	return commits
}

// endBatch reports whether the end of the batch commits. Outside a begin, a batch that only reads is
// dropped.
func (t *transaction) endBatch() bool {
	if !t.block && !t.wrote {
		*t = transaction{}
	}
	return !t.block && t.wrote
}
