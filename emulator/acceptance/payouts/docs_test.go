package payouts

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/emulator/stack"
)

// The page's commands lead from a deployment without payer, assets and money to a payout that is final.
// A repeat of all of them books and pays nothing twice.
func TestDocsFromNothingToTheFirstPayout(t *testing.T) {
	t.Parallel()
	h := own(t, true, stack.Options{Unset: true})
	page := must(os.ReadFile("../../../docs/transfers.md"))(t)
	_, section, _ := strings.Cut(string(page), "\n## From nothing to the first payout\n")
	_, commands, _ := strings.Cut(section, "```sh\n")
	commands, _, found := strings.Cut(commands, "\n```\n")
	if !found {
		t.Fatal("docs/transfers.md: got no commands in its first section, want them")
	}
	run := func(commands string) string {
		t.Helper()
		shell := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", commands)
		shell.Env = append(os.Environ(), "API="+h.URLMap.PublicURL(), "PAYER="+string(h.Payer),
			"OPERATOR_TOKEN="+must(h.Issuer.Token(t.Context(), stack.OperatorAccount, stack.PublicAudience))(t),
			"USER_TOKEN="+must(h.Users.UserToken(7, stack.UsersAudience))(t))
		out, err := shell.CombinedOutput()
		if err != nil {
			t.Fatalf("the page's commands: %v\n%s", err, out)
		}
		return string(out)
	}
	out := run(commands)
	says(t, "the commands' answers", out, `"asset":"ETH"`, `"state":"DONE"`, `"to":"CHAIN"`)
	lines := strings.Split(commands, "\n")
	list := lines[0] + "\n" + lines[len(lines)-1]
	poll(t, "the payout is COMMITTED", func() bool { return strings.Contains(run(list), `"state":"COMMITTED"`) })
	if again := run(commands); !strings.Contains(again, "DUPLICATE_REQUEST") || strings.Count(run(list), `"req_id"`) != 1 {
		t.Errorf("the commands again: got %s, want the same payout", again)
	}
	var available string
	check(t, h.DB.QueryRow(t.Context(), `select available::text from balances_tb where user_id = 7 and asset_id = 1`).Scan(&available))
	equal(t, "in Funding (2 less 0.5)", available, "1.50000000")
}
