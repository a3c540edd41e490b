package acceptance

import (
	"bufio"
	"context"
	"io"
	"os/exec"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/emulator/acceptance/acceptancetest"
	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// example builds a program of docs/examples.
func example(t *testing.T, name string) (path string) {
	t.Helper()
	return must(stack.BuildProgram(t.Context(), t.TempDir(), "docs/examples/"+name, acceptancetest.RaceFlags...))(t)
}

// The page's example of a compiled-in handler pays for each post once, however often it is posted.
func TestDocsHandlerCompiledIn(t *testing.T) {
	t.Parallel()
	payroll := example(t, "payroll")
	b := setup(t, stack.Options{Settings: quick, Binary: payroll})
	s := b.Submitters()[0]
	must(b.DB.Exec(b.ctx, `update submitter set callers = callers || '{handler:wage}'`))(t)
	var ids []string
	for range 2 {
		pay := exec.CommandContext(b.ctx, payroll, "pay", string(s), "wage-ann")
		pay.Env = b.Environment()
		out := must(pay.Output())(t)
		ids = append(ids, strings.TrimSpace(string(out)))
	}
	b.ends(t, map[txmanager.Submitter]int{s: 1})
	_, r := b.ask(t, stack.OperatorAccount, ids[0])
	if r.State != "CONFIRMED" || ids[0] != ids[1] {
		t.Errorf("got %s, txIds %v; want it CONFIRMED, one txId", r.State, ids)
	}
	b.logged(t, "the books: wage-ann will be paid by "+text(r.TxHash))
}

// The page's example of a service answers signed calls, refuses unsigned ones, and can reject a
// request.
func TestDocsHandlerOverHTTP(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	shop := exec.CommandContext(ctx, example(t, "shop"))
	shop.Env = []string{"SHOP_SECRET=" + shopSecret}
	out, err := shop.StdoutPipe()
	if err == nil {
		err = shop.Start()
	}
	check(t, err)
	t.Cleanup(func() { cancel(); _ = shop.Wait() })
	url := must(bufio.NewReader(out).ReadString('\n'))(t)
	go func() { _, _ = io.Copy(io.Discard, out) }() // it ends with the process
	b := setup(t, stack.Options{Settings: withSettings(quick, map[string]string{
		"FENCEPOST_HANDLERS_URLS":    "shop=" + strings.TrimSpace(url) + ",stranger=" + strings.TrimSpace(url),
		"FENCEPOST_HANDLERS_SECRETS": "shop=" + shopSecret + ",stranger=whsec_" + strings.Repeat("QUJD", 8),
	})})
	s := b.Submitters()[0]
	must(b.DB.Exec(b.ctx, `update submitter set callers = callers || '{handler:shop,handler:stranger}'`))(t)
	payload := map[string]string{"to": "0x00000000000000000000000000000000000000b0", "wei": "5"}
	post := func(request, handler string, payload any) string {
		return b.postUntilAnswered(t, map[string]any{"submitter": s, "requestId": request, "handler": handler, "payload": payload})
	}
	ends := map[string]string{
		post("good", "shop", payload): "", post("unknown", "shop", "nothing"): "no such order", post("forged", "stranger", payload): "answered 401",
	}
	b.ends(t, map[txmanager.Submitter]int{s: 3})
	for id, want := range ends {
		_, r := b.ask(t, stack.OperatorAccount, id)
		if (r.State == "CONFIRMED") != (want == "") || !strings.Contains(text(r.LastError), want) {
			t.Errorf("%s: got %s %s, want it CONFIRMED, or %q", r.RequestID, r.State, text(r.LastError), want)
		}
	}
}
