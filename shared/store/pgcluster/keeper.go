package pgcluster

import (
	"bufio"
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"github.com/fencepost/fencepost/shared/store/internal/results"
)

// keeperScript runs as the parent of Postgres. Its standard input is a pipe whose other end only this
// process holds. So the kernel reports the death of this process in every case, SIGKILL included.
//
//go:embed keeper.sh
var keeperScript string

// errStopped is returned for every order after the keeper's input was closed.
var errStopped = errors.New("the cluster is stopped")

// keeper is the shell process that owns the folder and the server.
type keeper struct {
	dir string // the cluster's folder: data, log, the socket
	cmd *exec.Cmd

	mu      sync.Mutex // one order at a time
	orders  io.WriteCloser
	answers io.ReadCloser
	lines   *bufio.Reader // of answers
}

// startKeeper starts the keeper of a new folder inside parent. clockLibrary is
// [Options.ClockLibrary].
func startKeeper(parent, binaries, clockLibrary string) (*keeper, error) {
	attributes, err := processAttributes()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command("/bin/sh", "-c", keeperScript, "keeper", parent, binaries)
	orders, errIn := cmd.StdinPipe()
	answers, errOut := cmd.StdoutPipe()
	cmd.Stderr = cmd.Stdout // until the script has a log
	cmd.Dir = "/"           // the server's account may not be able to read the working directory
	// The caller's PG* variables must not reach the server, and its messages must be in the language
	// that isPortTaken reads.
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C"}
	cmd.Env = append(cmd.Env, clockEnvironment(clockLibrary)...)
	cmd.SysProcAttr = attributes
	if err := cmp.Or(errIn, errOut); err != nil {
		return nil, fmt.Errorf("make pipe: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start keeper: %w", err)
	}
	return &keeper{cmd: cmd, orders: orders, answers: answers, lines: bufio.NewReader(answers)}, nil
}

// folder reads the name of the folder, the keeper's first line.
func (k *keeper) folder(ctx context.Context) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	dir, err := k.answer(ctx)
	if err == nil && !filepath.IsAbs(dir) {
		err = errors.New(dir) // the error text of the failed tool
	}
	if err == nil {
		k.dir = dir
	}
	return results.Wrap(err, "make a temporary folder")
}

// order makes the keeper carry out one line. A failed order returns an error with the end of the log.
// If ctx ends first, the keeper is stopped, because the state of the cluster is unknown.
func (k *keeper) order(ctx context.Context, line string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	name, _, _ := strings.Cut(line, " ")
	_, err := io.WriteString(k.orders, line+"\n")
	if errors.Is(err, os.ErrClosed) {
		err = errStopped
	}
	status := "0"
	if err == nil {
		status, err = k.answer(ctx)
	}
	if err == nil && status != "0" {
		err = fmt.Errorf("exit status %s, and the log ends with:\n%s", status, k.logEnd())
	}
	return results.Wrap(err, "%s", name)
}

// answer reads one line. The caller holds mu.
func (k *keeper) answer(ctx context.Context) (string, error) {
	unhook := context.AfterFunc(ctx, func() { _ = k.answers.Close() })
	line, err := k.lines.ReadString('\n')
	if !unhook() {
		_ = k.orders.Close()
		return "", context.Cause(ctx)
	}
	if err != nil {
		return "", fmt.Errorf("the keeper of the cluster has ended: %w", err)
	}
	return strings.TrimSuffix(line, "\n"), nil
}

// end closes the keeper's input and waits until it has stopped the server and
// removed the folder.
func (k *keeper) end() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	_ = k.orders.Close() // closed already if an order was given up
	return results.Wrap(k.cmd.Wait(), "remove %s", k.dir)
}

// logEnd returns the last lines of the server's log.
func (k *keeper) logEnd() string {
	const limit = 2000
	log, err := os.ReadFile(filepath.Join(k.dir, "log"))
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(log[max(0, len(log)-limit):]))
}

// processAttributes returns the keeper's process attributes. It runs in a separate session, so that an
// interrupt at the terminal reaches only its owner. It never runs as root, because Postgres refuses
// that.
func processAttributes() (*syscall.SysProcAttr, error) {
	attributes := &syscall.SysProcAttr{Setsid: true}
	if os.Geteuid() != 0 {
		return attributes, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		if credential, err := credentialOf(name); err == nil {
			attributes.Credential = credential
			return attributes, nil
		}
	}
	return nil, errors.New("Postgres refuses to run as root and this machine has neither a user postgres nor a user nobody: run this as another user")
}

// credentialOf looks up a user of this machine.
func credentialOf(name string) (*syscall.Credential, error) {
	account, err := user.Lookup(name)
	if err != nil {
		return nil, err
	}
	credential := new(syscall.Credential)
	_, err = fmt.Sscan(account.Uid+" "+account.Gid, &credential.Uid, &credential.Gid)
	return credential, err
}
