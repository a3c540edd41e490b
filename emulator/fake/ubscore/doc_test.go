package ubscore_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/emulator/fake/ubscore"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/ledger/trading/wire"
)

// example is one block of docs/ubscore.md.
type example struct {
	method, path, body string
	status             int
	answer             string
}

func examples(t *testing.T) (all []example) {
	t.Helper()
	text := check.Value(os.ReadFile("../../../docs/ubscore.md"))(t)
	blocks := strings.Split(string(text), "```http\n")
	for _, block := range blocks[1:] {
		block, _, _ = strings.Cut(block, "```")
		asked, answered, found := strings.Cut(block, "\n\n")
		if !found {
			t.Fatalf("no empty line in %q", block)
		}
		var e example
		line, body, _ := strings.Cut(asked, "\n")
		e.method, e.path, _ = strings.Cut(line, " ")
		e.body = body
		number, answer, _ := strings.Cut(answered, "\n")
		e.status, e.answer = check.Value(strconv.Atoi(number))(t), answer
		all = append(all, e)
	}
	return all
}

// Every example of docs/ubscore.md is the answer of a real core. The page has every path and every code
// of the protocol.
func TestProtocolPageMatchesTheCore(t *testing.T) {
	t.Parallel()
	r := setup(t, ubscore.Options{})
	forgetful := forgetful(t)
	damaged := stockedFolder(t)
	check.OK(t)(edit(filepath.Join(damaged, firstSegment), func(b []byte) []byte { return b[:len(b)/2] }))
	halted := startUnready(t, ubscore.Options{Folder: damaged})
	all := examples(t)
	for _, e := range all {
		url := "http://" + r.process.Addr()
		if strings.Contains(e.answer, `"HALTED"`) {
			url = halted
		}
		if e.path == wire.RecordPath || strings.Contains(e.answer, `"BEYOND_HORIZON"`) {
			url = forgetful
		}
		status, got := send(r.ctx, t, e.method, url+e.path, "Bearer "+secret, e.body)
		if e.path == wire.RecordPath { // the number of lines until the key is forgotten varies
			e.answer, got = line.ReplaceAllString(e.answer, `"seq":0`), line.ReplaceAllString(got, `"seq":0`)
		}
		if d := cmp.Diff(withProblemMembers(e.status, plain(t, e.answer)), plain(t, got)); status != e.status || d != "" {
			t.Errorf("%s %s %s: got %d %s, want %d; (-want +got) %s", e.method, e.path, e.body, status, got, e.status, d)
		}
	}
	for _, path := range []string{wire.OperationsPath, wire.ResolvePath, wire.RecordPath, wire.AdjustPath, wire.StatusPath, wire.AssetsPath, wire.JournalPath, wire.BalancesPath, wire.BalancesPath + "/"} {
		if !slices.ContainsFunc(all, func(e example) bool {
			return e.path == path || strings.HasPrefix(e.path, path+"?") || path == wire.BalancesPath+"/" && strings.HasPrefix(e.path, path)
		}) {
			t.Errorf("no example of %s", path)
		}
	}
}

var line = regexp.MustCompile(`"seq": ?[0-9]+`)

// forgetful returns the address of a core that has forgotten a key of a minute ago.
func forgetful(t *testing.T) (url string) {
	t.Helper()
	r := setup(t, ubscore.Options{Horizon: time.Second, SnapshotEvery: 2})
	old := call("forgotten", 1)
	old.CreatedAt = time.Now().Add(-time.Minute)
	want(t, "asset", r.AddAsset(r.ctx, "asset-1", asset, 6, old.CreatedAt), success)
	want(t, "what is forgotten", r.OutsideDeposit(r.ctx, old), success)
	r.until(t, "a key is forgotten", func(n int) bool {
		next := call(fmt.Sprint("next-", n), 1)
		next.CreatedAt = time.Now()
		r.OutsideDeposit(r.ctx, next)
		return codeOf(r.OutsideDeposit(r.ctx, old).Err) == wire.BeyondHorizon.Name
	})
	return "http://" + r.process.Addr()
}

// varying are the members whose values vary from run to run.
var varying = regexp.MustCompile(`"(at|instance)": ?"[^"]*"`)

// plain returns an answer with the values that vary replaced.
func plain(t *testing.T, text string) (v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(varying.ReplaceAllString(text, `"$1":"…"`)), &v); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return v
}

// withProblemMembers adds the members that the page gives once for all problems.
func withProblemMembers(status int, v any) any {
	if problem, ok := v.(map[string]any); ok && problem["code"] != nil {
		problem["type"], problem["title"], problem["status"], problem["instance"] = fmt.Sprint("/errors/", problem["code"]), http.StatusText(status), float64(status), "…"
	}
	return v
}
