package crash_test

import (
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"

	"github.com/fencepost/fencepost/shared/crash"
	"github.com/fencepost/fencepost/shared/ledger/payout"
	"github.com/fencepost/fencepost/shared/transfer"
)

// A process dies exactly at the pass that was armed, and only one does.
func TestKillAtTheArmedPass(t *testing.T) {
	if os.Getenv(crash.Variable) != "" { // the child
		p := crash.FromEnvironment()
		for range 2 {
			p.At("a")
			p.At("b")
		}
		os.Stdout.WriteString("alive")
		return
	}
	t.Parallel()
	folder := t.TempDir()
	child := func() (string, error) {
		c := exec.Command(os.Args[0], "-test.run=TestKillAtTheArmedPass", "-test.v=false")
		c.Env = append(os.Environ(), crash.Variable+"="+folder)
		out, err := c.Output()
		return string(out), err
	}
	if err := crash.Arm(folder, "b", 3, crash.Kill); err != nil {
		t.Fatal(err)
	}
	if out, err := child(); err != nil || crash.Hit(folder, "b") {
		t.Fatalf("two passes of three: got %q, %v, hit %v; want it alive", out, err, crash.Hit(folder, "b"))
	}
	_, err := child()
	exit, ok := err.(*exec.ExitError)
	if !ok || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL || !crash.Hit(folder, "b") {
		t.Errorf("the third pass: got %v, hit %v; want SIGKILL", err, crash.Hit(folder, "b"))
	}
	if out, err := child(); err != nil {
		t.Errorf("after it was hit: got %q, %v; want it alive", out, err)
	}
}

// Where nothing is armed nothing happens.
func TestUnset(t *testing.T) {
	t.Parallel()
	crash.Points(nil).At("anything")
}

// What the coordinator and the ledger of payouts pass can be armed, and every point once.
func TestAllIsWhole(t *testing.T) {
	t.Parallel()
	all := crash.All()
	for _, point := range slices.Concat(transfer.Points(), payout.Points()) {
		if !slices.Contains(all, point) {
			t.Errorf("%s is passed: got it not listed", point)
		}
	}
	slices.Sort(all)
	if once := slices.Compact(slices.Clone(all)); len(once) != len(all) {
		t.Errorf("points: got %d of which %d are different", len(all), len(once))
	}
}
