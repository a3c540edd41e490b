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
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/ethereum/go-ethereum/ethclient"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/emulator/stack/command"
	"github.com/fencepost/fencepost/emulator/verify/torture/retry"
	"github.com/fencepost/fencepost/shared/chain/devchain"
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
	run   func(ctx context.Context, x *exercise) error
}

type exercise struct {
	*stack.Stack
	out      io.Writer
	solve    bool // the drill makes the operator's calls itself
	pause    time.Duration
	operator *client.Client
	caller   *client.Client
	node     *ethclient.Client
	account  devchain.Account // whose key and submitter the drill uses: the last dev account
	sub      txmanager.Submitter
	name     string
	runbook  string // the page of the drill
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
	if err := runDrill(r.Context(), c.stack, d, solve, pause, flushing{w}); err != nil {
		fmt.Fprintf(w, "%s%v\n", failed, err)
		return
	}
	fmt.Fprintf(w, "%s docs/runbooks/%s says.\n", ended, d.Runbook)
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

type flushing struct{ http.ResponseWriter }

func (f flushing) Write(p []byte) (int, error) {
	n, err := f.ResponseWriter.Write(p)
	if flusher, ok := f.ResponseWriter.(http.Flusher); ok {
		flusher.Flush()
	}
	return n, err
}

func runDrill(ctx context.Context, s *stack.Stack, d Drill, solve bool, pause time.Duration, out io.Writer) (err error) {
	x := &exercise{Stack: s, out: out, solve: solve, pause: pause, name: d.Name, runbook: d.Runbook}
	all := s.Submitters()
	x.sub, x.account = all[len(all)-1], devchain.DevAccounts(len(all))[len(all)-1]
	if x.operator, err = s.Client(stack.OperatorAccount); err != nil {
		return err
	}
	if x.caller, err = s.Client(stack.CallerAccount); err != nil {
		return err
	}
	if x.node, err = ethclient.DialContext(ctx, s.Chain.URL()); err != nil {
		return err
	}
	defer x.node.Close()
	x.say("Drill %s: %s.\nSubmitter: %s. Ctrl-C ends the drill and its fault.", d.Name, d.Meaning, x.sub)
	if shown, err := x.operator.Submitter(ctx, string(x.sub)); err != nil || shown.Protect != nil {
		return errors.Join(err, fmt.Errorf("%s is in PROTECT, or cannot be read: release it first (docs/runbooks/protect.md)", x.sub))
	}
	if err := d.run(ctx, x); err != nil || !solve {
		return err
	}
	return x.calm(ctx)
}

func (x *exercise) say(format string, args ...any) { fmt.Fprintf(x.out, format+"\n\n", args...) }

// act makes and shows an operator's call, if the drill is to solve itself. It repeats a call while the answer asks
// for that.
func (x *exercise) act(ctx context.Context, what, method, path string, body any) error {
	if !x.solve {
		return nil
	}
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	x.say("%s:\ncurl -sS -X %s \"$API%s\" -H \"Authorization: Bearer $OPERATOR_TOKEN\" -H 'Content-Type: application/json' \\\n  -d '%s'", what, method, path, text)
	var status int
	var answer []byte
	err = x.until(ctx, func() bool {
		status, answer, err = x.Call(ctx, stack.OperatorAccount, method, path, body)
		return err == nil && status < 500 && !strings.Contains(string(answer), "NOT_LEADER")
	})
	if err == nil && status >= 300 {
		err = fmt.Errorf("%s %s: %d %s", method, path, status, answer)
	}
	if err == nil {
		x.say("Answer: %d %s", status, bytes.TrimSpace(answer))
	}
	return err
}

const pollEvery = 200 * time.Millisecond

func (x *exercise) until(ctx context.Context, met func() bool) error {
	for !met() {
		if retry.Pause(ctx, pollEvery); ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}

// post posts an intent of the drill. Its payload has a receiver and a value unless those are given.
func (x *exercise) post(ctx context.Context, what string, p client.Payload) (client.Intent, string, error) {
	p.To, p.Value = receiver, cmp.Or(p.Value, "1")
	in := client.Intent{Submitter: string(x.sub), RequestID: fmt.Sprintf("drill-%s-%s-%d", x.name, what, time.Now().UnixMilli()), Payload: p}
	created, err := x.caller.CreateTx(ctx, in)
	if err != nil {
		return in, "", fmt.Errorf("post %s: %w", in.RequestID, err)
	}
	x.say("Posted the intent %s: GET /api/v1/tx/%s", in.RequestID, created.TxID)
	return in, created.TxID, nil
}

// reaches waits until the transaction is in one of the states.
func (x *exercise) reaches(ctx context.Context, txID string, states ...client.TxState) error {
	return x.until(ctx, func() bool {
		tx, err := x.operator.Tx(ctx, txID)
		return err == nil && slices.Contains(states, tx.State)
	})
}

// waitsFor waits until the transaction waits for the cause, and checks that its page is the drill's.
func (x *exercise) waitsFor(ctx context.Context, txID, cause string) error {
	var why client.TxWhy
	err := x.until(ctx, func() bool {
		var err error
		why, err = x.operator.WhyTx(ctx, txID)
		return err == nil && why.Waiting != nil && string(why.Waiting.Cause) == cause
	})
	if err != nil {
		return err
	}
	if want := "docs/runbooks/" + x.runbook; why.Runbook != want {
		return fmt.Errorf("%s waits for %s: got the page %s, want %s", txID, cause, why.Runbook, want)
	}
	x.say("GET /admin/v1/tx/%s/why: it waits for %s. %s (%s)", txID, cause, why.Action, why.Runbook)
	return nil
}

// ends waits for the end of the transaction, and checks it.
func (x *exercise) ends(ctx context.Context, txID, want string) error {
	got, err := x.endOf(ctx, txID)
	if err == nil && got != want {
		err = fmt.Errorf("%s ended %s, want %s", txID, got, want)
	}
	return err
}

func (x *exercise) confirmed(ctx context.Context, txID string) error {
	return x.ends(ctx, txID, string(client.Confirmed))
}

// decided is ends for a transaction that a person decides about: only the drill's own decision has a certain end.
func (x *exercise) decided(ctx context.Context, txID, want string) error {
	if x.solve {
		return x.ends(ctx, txID, want)
	}
	_, err := x.endOf(ctx, txID)
	return err
}

// endOf waits for the end of the transaction, and returns its state and sub-state.
func (x *exercise) endOf(ctx context.Context, txID string) (end string, err error) {
	if err := x.reaches(ctx, txID, client.Confirmed, client.Failed); err != nil {
		return "", err
	}
	tx, err := x.operator.Tx(ctx, txID)
	end = strings.TrimSpace(string(tx.State) + " " + tx.SubState)
	if err == nil {
		x.say("%s has ended: %s.", tx.RequestID, end)
	}
	return end, err
}

// calm waits until nothing of the drill's submitter needs a person.
func (x *exercise) calm(ctx context.Context) error {
	return x.until(ctx, func() bool {
		for item, err := range x.operator.ListAttention(ctx) {
			if err != nil || item.Subject.Submitter == string(x.sub) {
				return false
			}
		}
		return true
	})
}

// evidence checks that the evidence of the submitter's open incident has the text.
func (x *exercise) evidence(ctx context.Context, want string) error {
	s, err := x.operator.Submitter(ctx, string(x.sub))
	if err == nil && (s.Protect == nil || !strings.Contains(string(s.Protect.Evidence), want)) {
		err = fmt.Errorf("the evidence of PROTECT: got %+v, want %s in it", s.Protect, want)
	}
	return err
}

// protected waits until the drill's submitter is in PROTECT, or is not, and runs the sweep meanwhile, which
// otherwise comes once a minute.
func (x *exercise) protected(ctx context.Context, want bool) (incident int, err error) {
	err = x.until(ctx, func() bool {
		s, err := x.operator.Submitter(ctx, string(x.sub))
		if err != nil || (s.Protect != nil) != want {
			_ = x.RunSweep(ctx) // a later one makes up for a failure
			return false
		}
		if s.Protect != nil {
			incident = s.Protect.Incident
		}
		return true
	})
	return incident, err
}

// finalizedBlocks is how many blocks make everything before them finalized on the emulator's chain.
const finalizedBlocks = 70

// finalize adds blocks until everything so far is finalized.
func (x *exercise) finalize() error {
	x.say("The chain gets %d blocks at once, so that everything so far is finalized.", finalizedBlocks)
	return x.Chain.Mine(finalizedBlocks)
}

const drillUsage = `drill lets an operator practise on a running emulator: it causes a fault, says what to expect and
which runbook to follow, and ends once the fault is over.

  go run ./emulator drill --list
  go run ./emulator drill foreign-key

`

// RunDrill is the command drill: it asks the running emulator for a drill and prints what that says.
func RunDrill(ctx context.Context, args []string, out io.Writer) error {
	set := command.NewFlags("emulator drill", drillUsage)
	list := set.Bool("list", false, "list the drills")
	solve := set.Bool("solve", false, "make the operator's calls too, and show them")
	pause := set.Duration("for", defaultPause, "the `time` for which a fault lasts that no call ends")
	control := set.String("control", os.Getenv("CONTROL"), "the `URL` of the emulator's control address; default: the variable CONTROL, or http://"+DefaultControl)
	name := ""
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		name, args = args[0], args[1:]
	}
	if err := set.Parse(args); err != nil {
		return err
	}
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
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, *control+"/drill/"+url.PathEscape(name)+"?"+query.Encode(), nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("no emulator answers; start it with go run ./emulator, or name it by --control: %w", err)
	}
	defer resp.Body.Close()
	last := ""
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		last = lines.Text()
		fmt.Fprintln(out, last)
	}
	if err := lines.Err(); err != nil {
		return err
	}
	if !strings.HasPrefix(last, ended) {
		return errors.New("the drill did not end as its runbook says")
	}
	return nil
}
