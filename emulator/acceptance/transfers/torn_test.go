package transfers

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/emulator/acceptance/acceptancetest"
	"github.com/fencepost/fencepost/emulator/stack"
)

// The last answered line of the core's log is damaged. With the durable mark the core serves nothing.
// Without the mark the core treats the line as torn by a crash and loses an answered deposit. The next
// check of conservation finds that and halts new transfers. It reports JOURNAL_WENT_BACK if an earlier
// check had read the line.
func TestAnAnsweredLineThatIsDamagedIsSeen(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		mark, checked bool
		want          []string // kinds of finding
	}{
		"with the mark":                      {mark: true, checked: true},
		"without it, read by a check before": {checked: true, want: []string{"COMMITTED_INCOMPLETE", "JOURNAL_WENT_BACK"}},
		"without it, not read by any check":  {want: []string{"COMMITTED_INCOMPLETE"}},
	} {
		t.Run(name, func(t *testing.T) {
			h := own(t, stack.Options{Processes: 1})
			u := h.unverified(t) // the checkers ignore this user's money
			u.deposit(funding, 100)
			u.committed(funding, spot, "0.00004")
			if x.checked {
				h.healthy(t)
			}
			check(t, h.Core.Kill())
			h.damageLastLine(t, x.mark)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			started := make(chan error, 1)
			go func() { started <- h.Core.Start(ctx) }()
			if x.mark { // it keeps running for an operator's inspection and is never ready
				h.wantLogged(t, "HALTED", "every line that was answered")
				cancel()
			}
			if err := <-started; (err != nil) != x.mark {
				t.Fatalf("start: got %v, want an error: %t", err, x.mark)
			}
			if x.mark {
				return
			}
			u.wantUnits("the deposit is lost", 60, -1)
			h.wantFound(t, "violated", x.want)
			h.wantFound(t, "standing", x.want)
			if a := u.post(funding, spot, "0.00001"); a.Status == http.StatusOK {
				t.Errorf("a transfer after it: got %+v, want it halted", a)
			}
			u.wantUnits("halted", 60, -1)
		})
	}
}

// damageLastLine changes a bit of the last line of the core's log.
func (h *deployment) damageLastLine(t *testing.T, mark bool) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(h.Core.Folder(), "*.log"))
	if err != nil || len(names) == 0 {
		all, _ := filepath.Glob(filepath.Join(h.Core.Folder(), "*"))
		t.Fatalf("the core's log: got %v, %v among %v", names, err, all)
	}
	slices.Sort(names)
	last := names[len(names)-1]
	content, err := os.ReadFile(last)
	if err != nil || len(content) < 3 {
		t.Fatalf("%s: got %d bytes, %v", last, len(content), err)
	}
	content[len(content)-3] ^= 0x10
	check(t, os.WriteFile(last, content, 0o600))
	if mark {
		return
	}
	check(t, os.Remove(filepath.Join(h.Core.Folder(), "durable")))
}

// wantFound requires that a check has this result, with these kinds of finding stored.
func (h *deployment) wantFound(t *testing.T, result string, kinds []string) {
	t.Helper()
	status, text := h.operator(t, http.MethodPost, "/admin/v1/conservation/check", map[string]any{"full": false})
	if status != http.StatusOK || !strings.Contains(string(text), `"result":"`+result+`"`) {
		t.Errorf("check: got %d %s, want %s", status, text, result)
	}
	if got := acceptancetest.Rows[string](t, h.Deployment, `select distinct kind from conservation_finding order by kind`); !slices.Equal(got, kinds) {
		t.Errorf("found: got %v, want %v (%s)", got, kinds, text)
	}
}
