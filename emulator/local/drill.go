package local

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/ethclient"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/emulator/stack/command"
	"github.com/fencepost/fencepost/emulator/stack/steps"
	"github.com/fencepost/fencepost/emulator/verify/torture/retry"
	"github.com/fencepost/fencepost/shared/chain/devchain"
	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/client"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// Drill is an exercise for an operator: it causes one fault in a running emulator, says what to expect, and
// ends once the fault is over as its runbook says.
type Drill struct {
	Name    string
	Meaning string // half a sentence, for the list
	Runbook string // the page in docs/runbooks

	nodes int // how many the emulator must have; 0: 1
	run   func(x *exercise)
}

// exercise is one run of a drill. Its steps end it by [steps.OK].
type exercise struct {
	*stack.Stack
	Drill

	ctx      context.Context
	out      io.Writer
	solve    bool // the drill makes the operator's calls itself
	pause    time.Duration
	operator *client.Client
	caller   *client.Client
	node     *ethclient.Client
	signer   types.Signer     // of the chain
	account  devchain.Account // whose key and submitter the drill uses: the last dev account
	address  common.Address
	sub      txmanager.Submitter
}

// drill runs a drill and writes what it says as it goes on.
func (c *Control) drill(w http.ResponseWriter, r *http.Request) {
	pause, err := time.ParseDuration(r.URL.Query().Get("for"))
	if err != nil {
		http.Error(w, "for: "+err.Error(), http.StatusBadRequest)
		return
	}
	d, solve, ok := c.take(w, r)
	if !ok {
		return
	}
	defer c.drilling.Unlock()
	fmt.Fprint(w, d.lastLine(runDrill(r.Context(), c.stack, d, solve, pause, flushing{w})))
}

// take returns the drill that the request names, and locks c.drilling. If the drill cannot run now, it answers why.
func (c *Control) take(w http.ResponseWriter, r *http.Request) (d Drill, solve, ok bool) {
	i := slices.IndexFunc(Drills, func(d Drill) bool { return d.Name == r.PathValue("name") })
	switch {
	case i < 0:
		http.Error(w, "there is no drill "+r.PathValue("name")+": go run ./emulator drill --list", http.StatusNotFound)
	case c.lacks(Drills[i]) != "":
		http.Error(w, c.lacks(Drills[i]), http.StatusConflict)
	case !c.drilling.TryLock():
		http.Error(w, "another drill is running: end it first", http.StatusConflict)
	default:
		return Drills[i], r.URL.Query().Get("solve") == "true", true
	}
	return Drill{}, false, false
}

// The beginnings of a drill's last line.
const (
	ended  = "Ended as"
	failed = "The drill failed: "
)

func (d Drill) lastLine(err error) string {
	if err != nil {
		return fmt.Sprintf("%s%v\n", failed, err)
	}
	return fmt.Sprintf("%s docs/runbooks/%s says.\n", ended, d.Runbook)
}

type flushing struct{ http.ResponseWriter }

func (f flushing) Write(p []byte) (int, error) {
	n, err := f.ResponseWriter.Write(p)
	_ = http.NewResponseController(f.ResponseWriter).Flush() // the client may have left
	return n, err
}

func runDrill(ctx context.Context, s *stack.Stack, d Drill, solve bool, pause time.Duration, out io.Writer) (err error) {
	defer steps.Return(&err)
	all := s.Submitters()
	account := s.Account(len(all) - 1)
	x := &exercise{
		Stack: s, Drill: d, ctx: ctx, out: out, solve: solve, pause: pause,
		operator: steps.Value(s.Client(stack.OperatorAccount)), caller: steps.Value(s.Client(stack.CallerAccount)),
		node:    steps.Value(ethclient.DialContext(ctx, s.Chain.URL())),
		signer:  types.LatestSignerForChainID(new(big.Int).SetUint64(s.Chain.ChainID())),
		account: account, address: common.Address(eip155.MustBytes(account.Address)), sub: all[len(all)-1],
	}
	defer x.node.Close()
	x.say("Drill %s: %s.\nSubmitter: %s. Ctrl-C ends the drill and its fault.", d.Name, d.Meaning, x.sub)
	if shown, err := x.operator.Submitter(ctx, string(x.sub)); err != nil || shown.Protect != nil {
		return errors.Join(err, fmt.Errorf("%s is in PROTECT, or cannot be read: release it first (docs/runbooks/protect.md)", x.sub))
	}
	d.run(x)
	if solve {
		x.calm()
	}
	return nil
}

func (x *exercise) say(format string, args ...any) { fmt.Fprintf(x.out, format+"\n\n", args...) }

// act makes and shows an operator's call, if the drill is to solve itself. It repeats a call while the answer asks
// for that.
func (x *exercise) act(what, path string, body any) error {
	if !x.solve {
		return nil
	}
	x.say("%s:\ncurl -sS -X POST \"$API%s\" -H \"Authorization: Bearer $OPERATOR_TOKEN\" -H 'Content-Type: application/json' \\\n  -d '%s'",
		what, path, steps.Value(json.Marshal(body)))
	var status int
	var answer []byte
	x.until(func() bool {
		var err error
		status, answer, err = x.Call(x.ctx, stack.OperatorAccount, http.MethodPost, path, body)
		return err == nil && status < 500 && !strings.Contains(string(answer), "NOT_LEADER")
	})
	if status >= 300 {
		return fmt.Errorf("POST %s: %d %s", path, status, answer)
	}
	x.say("Answer: %d %s", status, bytes.TrimSpace(answer))
	return nil
}

const pollEvery = 200 * time.Millisecond

// until polls the condition. It ends the drill if ctx ends before it is met.
func (x *exercise) until(met func() bool) {
	if !retry.Await(x.ctx, pollEvery, met) {
		steps.OK(x.ctx.Err())
	}
}

// post posts an intent of the drill. Its payload has a receiver and a value unless those are given.
func (x *exercise) post(what string, p client.Payload) (in client.Intent, txID string) {
	p.To, p.Value = receiver, cmp.Or(p.Value, "1")
	in = client.Intent{Submitter: string(x.sub), RequestID: fmt.Sprintf("drill-%s-%s-%d", x.Name, what, time.Now().UnixMilli()), Payload: p}
	created, err := x.caller.CreateTx(x.ctx, in)
	steps.OK(err, "post ", in.RequestID)
	x.say("Posted the intent %s: GET /api/v1/tx/%s", in.RequestID, created.TxID)
	return in, created.TxID
}

// waitsFor waits until the transaction waits for the cause, and checks that its page is the drill's.
func (x *exercise) waitsFor(txID, cause string) {
	var why client.TxWhy
	x.until(func() bool {
		var err error
		why, err = x.operator.WhyTx(x.ctx, txID)
		return err == nil && why.Waiting != nil && string(why.Waiting.Cause) == cause
	})
	if want := "docs/runbooks/" + x.Runbook; why.Runbook != want {
		steps.Stopf("%s waits for %s: got the page %s, want %s", txID, cause, why.Runbook, want)
	}
	x.say("GET /admin/v1/tx/%s/why: it waits for %s. %s (%s)", txID, cause, why.Action, why.Runbook)
}

func (x *exercise) confirmed(txID string) { x.ends(txID, string(client.Confirmed)) }

// decided is ends for a transaction that a person decides about: only the drill's own decision has a certain end.
func (x *exercise) decided(txID, want string) {
	if !x.solve {
		want = ""
	}
	x.ends(txID, want)
}

// ends waits for the end of the transaction, and checks its state and sub-state; want "": any.
func (x *exercise) ends(txID, want string) {
	var tx client.Tx
	x.until(func() bool {
		var err error
		tx, err = x.operator.Tx(x.ctx, txID)
		return err == nil && tx.State.Final()
	})
	end := strings.TrimSpace(string(tx.State) + " " + tx.SubState)
	x.say("%s has ended: %s.", tx.RequestID, end)
	if want != "" && end != want {
		steps.Stopf("%s ended %s, want %s", txID, end, want)
	}
}

// calm waits until nothing of the drill's submitter needs a person.
func (x *exercise) calm() {
	x.until(func() bool {
		for item, err := range x.operator.ListAttention(x.ctx) {
			if err != nil || item.Subject.Submitter == string(x.sub) {
				return false
			}
		}
		return true
	})
}

// evidence checks that the evidence of the submitter's open incident has the text.
func (x *exercise) evidence(want string) {
	if s := steps.Value(x.operator.Submitter(x.ctx, string(x.sub))); s.Protect == nil || !strings.Contains(string(s.Protect.Evidence), want) {
		steps.Stopf("the evidence of PROTECT: got %+v, want %s in it", s.Protect, want)
	}
}

// protected waits until the submitter is in PROTECT, or is not, and runs the sweep meanwhile, which
// otherwise comes once a minute.
func (x *exercise) protected(sub txmanager.Submitter, want bool) (incident int) {
	x.until(func() bool {
		s, err := x.operator.Submitter(x.ctx, string(sub))
		if err != nil || (s.Protect != nil) != want {
			_ = x.RunSweep(x.ctx) // a later one makes up for a failure
			return false
		}
		if s.Protect != nil {
			incident = s.Protect.Incident
		}
		return true
	})
	return incident
}

// finalizedBlocks is how many blocks make everything before them finalized on the emulator's chain.
const finalizedBlocks = 70

// finalize adds blocks until everything so far is finalized.
func (x *exercise) finalize() {
	x.say("The chain gets %d blocks at once, so that everything so far is finalized.", finalizedBlocks)
	steps.OK(x.Chain.Mine(finalizedBlocks))
}

const drillUsage = `drill lets an operator practise on a running emulator: it causes a fault, says what to expect and
which runbook to follow, and ends once the fault is over.

  go run ./emulator drill --list
  go run ./emulator drill foreign-key

`

// RunDrill is the command drill: it asks the running emulator for a drill and prints what that says.
func RunDrill(ctx context.Context, args []string, out io.Writer) (err error) {
	defer steps.Return(&err)
	set := command.NewFlags("emulator drill", drillUsage)
	list := set.Bool("list", false, "list the drills")
	solve := set.Bool("solve", false, "make the operator's calls too, and show them")
	pause := set.Duration("for", defaultPause, "the `time` for which a fault lasts that no call ends")
	control := set.String("control", os.Getenv("CONTROL"), "the `URL` of the emulator's control address; default: the variable CONTROL, or http://"+DefaultControl)
	name := ""
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		name, args = args[0], args[1:]
	}
	steps.OK(set.Parse(args))
	switch {
	case *list:
		for _, d := range Drills {
			fmt.Fprintf(out, "%-16s %s (docs/runbooks/%s)\n", d.Name, d.Meaning, d.Runbook)
		}
		return nil
	case name == "":
		set.Usage()
		return flag.ErrHelp
	case *control == "":
		*control = "http://" + DefaultControl
	}
	query := url.Values{"solve": {fmt.Sprint(*solve)}, "for": {pause.String()}}
	req := steps.Value(http.NewRequestWithContext(ctx, http.MethodPost, *control+"/drill/"+url.PathEscape(name)+"?"+query.Encode(), nil))
	resp, err := http.DefaultClient.Do(req)
	steps.OK(err, "no emulator answers; start it with go run ./emulator, or name it by --control")
	defer resp.Body.Close()
	last := ""
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		last = lines.Text()
		fmt.Fprintln(out, last)
	}
	steps.OK(lines.Err())
	if !strings.HasPrefix(last, ended) {
		return errors.New("the drill did not end as its runbook says")
	}
	return nil
}
