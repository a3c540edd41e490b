package shared_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/rules"
)

// The README's table of pace is what the rules' time to finality gives.
func TestPaceIsComputed(t *testing.T) {
	t.Parallel()
	generatePart(t, "../README.md", "pace", paceTable())
}

// paceTable is the pace of one submitter by its window and its chain's finality, in transactions an hour.
func paceTable() string {
	windows := []int64{1, 10, 100, 1000}
	table := "| a transaction is final after | which takes | window 1 | 10 | 100 | 1,000 |\n| --- | --- | --- | --- | --- | --- |\n"
	for _, c := range []struct {
		what string
		rules.Finality
	}{
		{"1 confirmation, blocks of 1 s (the demo)", rules.Finality{By: txmanager.ByConfirmations, Confirmations: 1, BlockTime: time.Second}},
		{"20 confirmations, blocks of 2 s", rules.Finality{By: txmanager.ByConfirmations, Confirmations: 20, BlockTime: 2 * time.Second}},
		{"20 confirmations, blocks of 12 s (the defaults)", rules.Finality{By: txmanager.ByConfirmations, Confirmations: 20, BlockTime: 12 * time.Second}},
		{"the tag `finalized`, blocks of 12 s", rules.Finality{By: txmanager.ByFinalized, BlockTime: 12 * time.Second}},
	} {
		takes := c.TimeToFinality()
		table += fmt.Sprintf("| %s | %s |", c.what, takes)
		for _, w := range windows {
			table += " " + grouped(w*int64(time.Hour)/int64(takes)) + " |"
		}
		table += "\n"
	}
	return table
}

// grouped is n with commas between thousands.
func grouped(n int64) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
