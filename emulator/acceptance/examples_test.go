package acceptance

import (
	"bufio"
	"context"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/emulator/acceptance/acceptancetest"
	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/client/typescripttest"
	"github.com/fencepost/fencepost/shared/txmanager"
)

const (
	examplesFolder = "../../docs/examples/"
	payoutsList    = examplesFolder + "payouts/payouts.csv" // of three payouts
)

// examples are the programs of docs/examples that run on one deployment.
type examples struct {
	bench
	payroll   string                      // the functions with the handler wage
	payouts   map[string][]string         // commands, by language
	receivers map[string]*exampleReceiver // by language, which is the endpoint's name
	missing   map[string]string           // why the examples of a language cannot run
}

// Each example of the documentation does what its page says, on one deployment: handlers, payouts and receivers.
func TestExamples(t *testing.T) {
	t.Parallel()
	x := startExamples(t)
	all := x.Submitters()
	want := map[txmanager.Submitter]int{all[0]: 1, all[1]: 3}
	t.Run("at once", func(t *testing.T) {
		parallel(t, "handler compiled in", func(t *testing.T) { x.handlerCompiledIn(t, all[0]) })
		parallel(t, "handler over HTTP", func(t *testing.T) { x.handlerOverHTTP(t, all[1]) })
		for i, language := range []string{"go", "curl", "typescript"} {
			s := all[2+i]
			if want[s] = 3; x.missing[language] != "" {
				want[s] = 0
			}
			parallel(t, "payouts in "+language, func(t *testing.T) { x.paysOnce(t, language, s) })
		}
	})
	x.ends(t, want)
	kept := x.replay(t, stack.OperatorAccount)
	t.Run("receivers", func(t *testing.T) {
		for _, language := range []string{"go", "python", "typescript"} {
			parallel(t, "receiver in "+language, func(t *testing.T) { x.receives(t, language, kept) })
		}
	})
}

func startExamples(t *testing.T) *examples {
	t.Helper()
	x := &examples{payroll: example(t, "payroll"), missing: make(map[string]string)}
	x.payouts = map[string][]string{"go": {example(t, "payouts")}, "curl": {"bash", examplesFolder + "payouts/payouts.sh"}}
	commands := map[string][]string{"go": {example(t, "receiver")}}
	if python, err := exec.LookPath("python3"); err != nil {
		x.missing["python"] = "SKIPPED: the receiver in Python: " + err.Error()
	} else {
		commands["python"] = []string{python, "-B", examplesFolder + "receiver/receiver.py"}
	}
	if _, err := typescripttest.Packages("../../shared/client/typescript"); err != nil {
		x.missing["typescript"] = err.Error()
	} else {
		built := typescriptExamples(t)
		x.payouts["typescript"] = []string{"node", filepath.Join(built, "payouts", "payouts.js")}
		commands["typescript"] = []string{"node", filepath.Join(built, "receiver", "receiver.js")}
	}
	x.receivers = reserveReceivers(t, commands)
	urls, secrets := []string{}, []string{}
	for name, r := range x.receivers {
		urls = append(urls, name+"=http://"+r.address+"/")
		secrets = append(secrets, name+"="+outdatedSecret, name+"="+hookSecret) // a rotation: both sign
	}
	shop := startShop(t)
	x.bench = setup(t, stack.Options{Binary: x.payroll, Submitters: 5, Settings: withSettings(quick, map[string]string{
		"FENCEPOST_HANDLERS_URLS":    "shop=" + shop + ",stranger=" + shop,
		"FENCEPOST_HANDLERS_SECRETS": "shop=" + shopSecret + ",stranger=whsec_" + strings.Repeat("QUJD", 8),
		"FENCEPOST_EVENTS_MODE":      "webhook", "FENCEPOST_EVENTS_WEBHOOK_TIMEOUT": "900ms",
		"FENCEPOST_EVENTS_WEBHOOK_URLS": strings.Join(urls, ","), "FENCEPOST_EVENTS_WEBHOOK_SECRETS": strings.Join(secrets, ","),
	})})
	for _, r := range x.receivers {
		r.environment = append(r.environment, "DATABASE_URL="+x.Database)
		r.start(t)
	}
	return x
}

func example(t *testing.T, name string) (path string) {
	t.Helper()
	return must(stack.BuildProgram(t.Context(), t.TempDir(), "docs/examples/"+name, acceptancetest.RaceFlags...))(t)
}

// typescriptExamples compiles the examples by their tsconfig.json, in a copy of both folders, and returns the folder of
// the programs.
func typescriptExamples(t *testing.T) (built string) {
	t.Helper()
	folder, root := typescripttest.Copy(t, "../../shared/client/typescript"), t.TempDir()
	project := filepath.Join(root, "docs", "examples")
	check(t, os.MkdirAll(filepath.Join(root, "shared", "client"), 0o755))
	check(t, os.Symlink(folder, filepath.Join(root, "shared", "client", "typescript")))
	check(t, os.CopyFS(project, os.DirFS(examplesFolder)))
	for _, config := range []string{"tsconfig.json", filepath.Join(project, "tsconfig.json")} {
		if out, err := typescripttest.Compile(t, folder, config); err != nil {
			t.Fatalf("tsc --project %s: %v\n%s", config, err, out)
		}
	}
	return filepath.Join(folder, "build", "examples")
}

// startShop starts the service of docs/handlers.md and returns its URL.
func startShop(t *testing.T) (url string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	shop := exec.CommandContext(ctx, example(t, "shop"))
	shop.Env = []string{"SHOP_SECRET=" + shopSecret}
	out, err := shop.StdoutPipe()
	if err == nil {
		err = shop.Start()
	}
	check(t, err)
	t.Cleanup(func() { cancel(); _ = shop.Wait() })
	url = must(bufio.NewReader(out).ReadString('\n'))(t)
	go func() { _, _ = io.Copy(io.Discard, out) }() // it ends with the process
	return strings.TrimSpace(url)
}

// reserveReceivers gives each receiver an address, which stays occupied until it starts.
func reserveReceivers(t *testing.T, commands map[string][]string) map[string]*exampleReceiver {
	t.Helper()
	all := make(map[string]*exampleReceiver)
	for name, command := range commands {
		held := must(net.Listen("tcp", "127.0.0.1:0"))(t)
		r := &exampleReceiver{command: command, held: held, address: held.Addr().String(), out: new(acceptancetest.Log)}
		r.environment = append(os.Environ(), "LISTEN="+r.address, "STORE="+filepath.Join(t.TempDir(), name),
			"WEBHOOK_SECRETS="+hookSecret+","+nextSecret) // two at once
		all[name] = r
		t.Cleanup(func() {
			if r.held.Close(); r.kill != nil {
				r.kill()
			}
			if t.Failed() {
				t.Logf("the receiver in %s printed:\n%s", name, r.out)
			}
		})
	}
	return all
}

// The example of a compiled-in handler pays for each post once, however often it is posted.
func (x *examples) handlerCompiledIn(t *testing.T, s txmanager.Submitter) {
	x.ChangeOne(t, `update submitter set callers = callers || '{handler:wage}' where submitter = $1`, s)
	var ids []string
	for range 2 {
		pay := exec.CommandContext(x.ctx, x.payroll, "pay", string(s), "wage-ann")
		pay.Env = x.Environment()
		out := must(pay.Output())(t)
		ids = append(ids, strings.TrimSpace(string(out)))
	}
	x.await(t, s, txmanager.Confirmed, 1)
	_, r := x.ask(t, stack.OperatorAccount, ids[0])
	if r.State != "CONFIRMED" || ids[0] != ids[1] {
		t.Errorf("got %s, txIds %v; want it CONFIRMED, one txId", r.State, ids)
	}
	x.logged(t, "the books: wage-ann will be paid by "+text(r.TxHash))
}

// The example of a service answers signed calls, refuses unsigned ones, and can reject a request.
func (x *examples) handlerOverHTTP(t *testing.T, s txmanager.Submitter) {
	x.ChangeOne(t, `update submitter set callers = callers || '{handler:shop,handler:stranger}' where submitter = $1`, s)
	payload := map[string]string{"to": "0x00000000000000000000000000000000000000b0", "wei": "5"}
	post := func(request, handler string, payload any) string {
		return x.postUntilAnswered(t, map[string]any{"submitter": s, "requestId": request, "handler": handler, "payload": payload})
	}
	ends := map[string]string{
		post("good", "shop", payload): "", post("unknown", "shop", "nothing"): "no such order", post("forged", "stranger", payload): "answered 401",
	}
	x.await(t, s, txmanager.Confirmed, 1)
	x.await(t, s, txmanager.Failed, 2)
	for id, want := range ends {
		_, r := x.ask(t, stack.OperatorAccount, id)
		if (r.State == "CONFIRMED") != (want == "") || !strings.Contains(text(r.LastError), want) {
			t.Errorf("%s: got %s %s, want it CONFIRMED, or %q", r.RequestID, r.State, text(r.LastError), want)
		}
	}
}

// paysOnce runs the payouts of a language twice. The second run pays nothing again, and prints the same table. A list
// with another amount is refused.
func (x *examples) paysOnce(t *testing.T, language string, s txmanager.Submitter) {
	if why := x.missing[language]; why != "" {
		t.Skip(why)
	}
	environment := append(os.Environ(), "API="+x.URLMap.PublicURL(), "SUBMITTER="+string(s),
		"TOKEN="+must(x.Issuer.Token(x.ctx, stack.CallerAccount, stack.PublicAudience))(t))
	run := func(list string) (string, error) {
		command := x.payouts[language]
		c := exec.CommandContext(x.ctx, command[0], append(slices.Clone(command[1:]), list)...)
		c.Env = environment
		out, err := c.CombinedOutput()
		return string(out), err
	}
	first, err := run(payoutsList)
	if err != nil || strings.Count(first, "CONFIRMED  0x") != 3 || !strings.HasPrefix(first, "requestId ") {
		t.Fatalf("the first run: got %v, want a table of three CONFIRMED:\n%s", err, first)
	}
	equal(t, "the second run", must(run(payoutsList))(t), first)
	x.wantCount(t, "transactions of two runs", 3, `select count(*) from managed_tx where submitter = $1`, s)

	list := must(os.ReadFile(payoutsList))(t)
	for what, c := range map[string]struct{ from, to, want string }{
		"another amount":     {",2000", ",2001", "REQUEST_ID_CONFLICT"},
		"the same key twice": {"-bob", "-ann", "is there twice"},
		"no names":           {"requestId,to,wei\n", "", "want the line requestId,to,wei first"},
		"no address":         {"0x00000000000000000000000000000000000000a2", "0xno", "0xno"},
	} {
		other := filepath.Join(t.TempDir(), "list.csv")
		check(t, os.WriteFile(other, []byte(strings.Replace(string(list), c.from, c.to, 1)), 0o600))
		if out, err := run(other); err == nil || !strings.Contains(out, c.want) {
			t.Errorf("%s: got %v, want an exit status and %q in\n%s", what, err, c.want, out)
		}
	}
	x.wantCount(t, "transactions of all runs", 3, `select count(*) from managed_tx where submitter = $1`, s)
}
