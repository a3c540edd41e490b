package ubscore_test

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/emulator/fake/ubscore"
	"github.com/fencepost/fencepost/emulator/stack/processes"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/ledger/trading"
	"github.com/fencepost/fencepost/shared/ledger/trading/wire"
	"github.com/fencepost/fencepost/shared/transfer"
)

// startUnready starts a core without waiting for its health, and returns its address.
func startUnready(t *testing.T, o ubscore.Options) (url string) {
	t.Helper()
	o.Binary, o.Secret = binary, secret
	ctx, cancel := context.WithTimeout(t.Context(), within)
	t.Cleanup(cancel)
	spec := ubscore.Spec(o)
	cmd := exec.CommandContext(ctx, spec.Path, "--port", "0")
	cmd.Env = spec.Env
	out := check.Value(cmd.StderrPipe())(t)
	check.OK(t)(cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	for lines := bufio.NewScanner(out); lines.Scan(); {
		var line struct{ Msg, Address string }
		if json.Unmarshal(lines.Bytes(), &line) == nil && line.Msg == "listening" {
			return "http://" + line.Address
		}
	}
	t.Fatal("the core ended before it listened")
	return ""
}

// wantHalted checks that every path answers HALTED with an advice, with and without the secret, and that
// the client's result is unknown.
func wantHalted(ctx context.Context, t *testing.T, url, advice string) {
	t.Helper()
	for _, path := range []string{"/healthz", wire.OperationsPath, wire.ResolvePath, wire.StatusPath, wire.AssetsPath, wire.JournalPath, wire.BalancesPath, wire.BalancesPath + "/7/1", "/else"} {
		for _, token := range []string{"", "Bearer " + secret} {
			status, text := send(ctx, t, http.MethodPost, url+path, token, "{}")
			var body struct{ Code, Detail string }
			if err := json.Unmarshal([]byte(text), &body); err != nil || status != http.StatusServiceUnavailable || body.Code != "HALTED" || !strings.Contains(body.Detail, advice) {
				t.Errorf("%s: got %d %s, %v; want 503 HALTED with the advice %q", path, status, text, err, advice)
			}
		}
	}
	l := client(t, url)
	for what, got := range map[string]transfer.Outcome{
		"withdraw": l.Withdraw(ctx, call("R", 1)), "deposit": l.Deposit(ctx, call("R", 1)), "refund": l.Refund(ctx, call("R", 1)),
		"resolve": l.Resolve(ctx, transfer.Withdraw, call("R", 1)),
	} {
		wantUnknown(t, what, got, wire.Halted.Name)
	}
	if lines, _, err := l.Journal(ctx, 0, 10); err == nil {
		t.Errorf("journal: got %v, want an error", lines)
	}
}

// stockedFolder returns the folder of an ended core with some withdrawals and a snapshot.
func stockedFolder(t *testing.T) string {
	t.Helper()
	r := stocked(t, ubscore.Options{SnapshotEvery: 20}, 1000)
	for n := range operations {
		r.ask(n)
	}
	r.until(t, "a snapshot", func(int) bool {
		names, _ := filepath.Glob(filepath.Join(r.options.Folder, "snapshot-*.img"))
		return len(names) > 0
	})
	r.kill(t)
	return r.options.Folder
}

const firstSegment = "wal-00000000000000000001.log"

// The core halts with advice if its log is damaged, shortened or missing, or if no snapshot is
// complete.
func TestDamageHalts(t *testing.T) {
	t.Parallel()
	dead := stockedFolder(t)
	flipMiddle := func(b []byte) []byte { b[len(b)/2] ^= 1; return b }
	for what, x := range map[string]struct {
		advice string
		files  string              // patterns
		damage func([]byte) []byte // nil: the files are removed
	}{
		"the middle of the log":         {"do not delete anything", firstSegment, flipMiddle},
		"the last durable record":       {"do not delete anything", firstSegment, func(b []byte) []byte { b[len(b)-1] ^= 1; return b }},
		"the log's end is gone":         {"do not delete anything", firstSegment, func(b []byte) []byte { return b[:len(b)/2] }},
		"the log is gone":               {"do not delete anything", firstSegment, nil},
		"the log and its mark are gone": {"bring back a snapshot", firstSegment + " durable", nil},
		"all snapshots":                 {"move all snapshots away", "snapshot-*.img", flipMiddle},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			folder := filepath.Join(t.TempDir(), "core")
			check.OK(t)(os.CopyFS(folder, os.DirFS(dead)))
			for pattern := range strings.FieldsSeq(x.files) {
				names := check.Value(filepath.Glob(filepath.Join(folder, pattern)))(t)
				if len(names) == 0 {
					t.Fatalf("%s: got no such file", pattern)
				}
				for _, name := range names {
					if x.damage == nil {
						check.OK(t)(os.Remove(name))
						continue
					}
					check.OK(t)(edit(name, x.damage))
				}
			}
			wantHalted(t.Context(), t, startUnready(t, ubscore.Options{Folder: folder}), x.advice)
		})
	}
}

func edit(path string, damage func([]byte) []byte) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return os.WriteFile(path, damage(content), 0o600)
}

// A core with a missing setting does not start. Its error names the setting and never the secret.
func TestMissingSettingIsNamed(t *testing.T) {
	t.Parallel()
	const long = "UBSCORE_SECRET=0123456789abcdef"
	for what, x := range map[string]struct {
		env, args []string
		says      string
	}{
		"nothing":        {nil, nil, "--folder is missing"},
		"no secret":      {nil, []string{"--folder", "x"}, "secret is missing or too short"},
		"short secret":   {[]string{"UBSCORE_SECRET=hunter2"}, []string{"--folder", "x"}, "secret is missing or too short"},
		"two secrets":    {[]string{long}, []string{"--folder", "x", "--secret-file", "y"}, "both given"},
		"no secret file": {nil, []string{"--folder", "x", "--secret-file", "/nowhere"}, "read the secret"},
		"horizon":        {[]string{long, "UBSCORE_HORIZON=30d"}, []string{"--folder", "x"}, "want a duration"},
		"no horizon":     {[]string{long}, []string{"--folder", "x", "--horizon", "0s"}, "want a duration above 0"},
		"snapshots":      {[]string{long}, []string{"--folder", "x", "--snapshot-every", "0"}, "want a whole number above 0"},
		"arguments":      {[]string{long}, []string{"--folder", "x", "more"}, "unexpected argument"},
	} {
		cmd := exec.CommandContext(t.Context(), binary, x.args...)
		cmd.Env = append(x.env, "PORT=0")
		cmd.Dir = t.TempDir()
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(out), x.says) || strings.Contains(string(out), "hunter2") {
			t.Errorf("%s: got %v with %q, want it to say %q", what, err, out, x.says)
		}
	}
}

// The secret can come from a file.
func TestSecretIsReadFromAFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "secret")
	check.OK(t)(os.WriteFile(path, []byte(secret+"\n"), 0o600))
	o := ubscore.Options{Folder: filepath.Join(t.TempDir(), "core"), Binary: binary}
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	spec := ubscore.Spec(o)
	spec.Args = []string{"--secret-file", path}
	p := check.Value(processes.Start(ctx, spec))(t)
	defer func() { _ = p.Kill(); <-p.Done() }()
	l := check.Value(trading.New(trading.Options{URL: "http://" + p.Addr(), Secret: secret}))(t)
	defer l.Close()
	want(t, "asset", l.AddAsset(ctx, "asset", asset, 6, started), success)
}
