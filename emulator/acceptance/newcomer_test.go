package acceptance

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/emulator/acceptance/acceptancetest"
)

const published = "https://github.com/fencepost/fencepost"

// A newcomer gets from a clone to confirmed transactions by the README's commands alone: in curl, Go and TypeScript.
func TestNewcomer(t *testing.T) {
	t.Parallel()
	install, post, pay := readmeCommands(t)
	l := &local{folder: t.TempDir()}
	c := exec.Command("bash", "-euo", "pipefail", "-c", strings.Join(install, "\n"))
	c.Dir, c.Env = l.folder, append(os.Environ(), cloneFrom(t)...)
	l.start(t, c)
	l.folder = filepath.Join(l.folder, filepath.Base(published))

	first := l.shell(t, post[0])
	if again := l.shell(t, post[0]); !strings.HasPrefix(first, `{"txId":"`) || again != first {
		t.Errorf("%s\ngot %s, then %s; want one txId", post[0], first, again)
	}
	l.until(t, "the intent never ended", func() bool { return strings.Contains(l.shell(t, post[1]), `"state":"CONFIRMED"`) })
	var paid []string
	for _, language := range []string{"curl", "Go", "TypeScript"} {
		if language == "TypeScript" && !npmIsThere(t) {
			continue
		}
		out := l.shell(t, "export npm_config_prefer_offline=true\n"+strings.Join(pay[language], "\n"))
		var got []string
		for _, row := range confirmed.FindAllStringSubmatch(out, -1) {
			got = append(got, row[1])
		}
		if paid == nil {
			paid = got
		}
		if len(got) != 3 || !slices.Equal(got, paid) {
			t.Errorf("the payouts in %s: got %q, want three transactions, those of curl: %q\n%s", language, got, paid, out)
		}
	}
	all := l.shell(t, `curl -fsS "$API/api/v1/tx?submitter=$SUBMITTER" -H "Authorization: Bearer $TOKEN"`)
	if n := strings.Count(all, `"state":"CONFIRMED"`); n != 4 {
		t.Errorf("the submitter's confirmed transactions: got %d, want the first and three payouts\n%s", n, all)
	}
}

// confirmed is the end of a line about a payout: its state and its transaction.
var confirmed = regexp.MustCompile(`(?m)CONFIRMED +(0x[0-9a-f]{64})\s*$`)

var (
	commandBlock  = regexp.MustCompile("(?s)```sh\n(.*?)```")
	commandOfMany = regexp.MustCompile(`(?m)^(?:.*\\\n)*.+$`)
	languageOf    = regexp.MustCompile(` # (curl|Go|TypeScript)$`)
)

// readmeCommands returns the commands of the README's quick start: those that start the emulator, those that post an
// intent and read it, and those that pay a list, by language.
func readmeCommands(t *testing.T) (install, post []string, pay map[string][]string) {
	t.Helper()
	_, section, _ := strings.Cut(string(must(os.ReadFile(acceptancetest.Root()+"README.md"))(t)), "\n## Sixty seconds\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var blocks [][]string
	for _, block := range commandBlock.FindAllStringSubmatch(section, -1) {
		blocks = append(blocks, commandOfMany.FindAllString(block[1], -1))
	}
	if len(blocks) != 3 || len(blocks[1]) != 2 {
		t.Fatalf("commands of the README's quick start: got %q, want three blocks, the second of two commands", blocks)
	}
	pay = make(map[string][]string)
	language := ""
	for _, command := range blocks[2] {
		if found := languageOf.FindStringSubmatch(command); found != nil {
			language = found[1]
		}
		pay[language] = append(pay[language], command)
	}
	if len(pay) != 3 {
		t.Fatalf("commands that pay a list: got %q, want them in curl, Go and TypeScript", pay)
	}
	return blocks[0], blocks[1], pay
}

// cloneFrom returns the environment in which git clones the working tree, as it is now, in place of the published
// repository.
func cloneFrom(t *testing.T) []string {
	t.Helper()
	source, tree := t.TempDir(), must(filepath.Abs(acceptancetest.Root()))(t)
	for _, args := range [][]string{
		{"init", "--quiet"}, {"--work-tree", tree, "add", "--all"},
		{"-c", "user.name=test", "-c", "user.email=test@fencepost.example", "commit", "--quiet", "--message", "the working tree"},
	} {
		git := exec.CommandContext(t.Context(), "git", append([]string{"--git-dir", source + "/.git"}, args...)...)
		git.Dir = source
		if out, err := git.CombinedOutput(); err != nil {
			t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	return []string{"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=url." + source + ".insteadOf", "GIT_CONFIG_VALUE_0=" + published}
}

// npmIsThere reports whether the TypeScript client's packages could be installed on this machine.
func npmIsThere(t *testing.T) bool {
	t.Helper()
	_, err := os.Stat(acceptancetest.Root() + "shared/client/typescript/node_modules")
	if err == nil {
		_, err = exec.LookPath("npm")
	}
	if err != nil {
		t.Logf("SKIPPED: the payouts in TypeScript: %v. Run: source scripts/lib/node.sh && ensure_npm_packages shared/client/typescript", err)
	}
	return err == nil
}
