// Package clef runs clef, go-ethereum's signer, as a child process, and approves every request as its user
// interface over standard input and output.
package clef

import (
	"context"
	"crypto/ecdsa"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/rpc"

	"github.com/fencepost/fencepost/emulator/stack/processes"
	"github.com/fencepost/fencepost/shared/signer/signertest"
)

// password opens every key file.
const password = "clef asks for it at each signature"

// Options describe the child process.
type Options struct {
	Path    string // path of the program
	ChainID uint64
	Keys    []*ecdsa.PrivateKey // keys of its accounts
}

// Clef is the running child process.
type Clef struct {
	url    string
	folder string
	cmd    *exec.Cmd
	server *rpc.Server
	ended  chan struct{}
}

// Start starts clef on a free port of 127.0.0.1, and returns when it answers. The caller ends it with
// [Clef.Close].
func Start(ctx context.Context, o Options) (_ *Clef, err error) {
	c := &Clef{ended: make(chan struct{}), server: rpc.NewServer()}
	if c.folder, err = os.MkdirTemp("", "fencepost-clef-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Close())
		}
	}()
	if err := c.writeKeys(o.Keys); err != nil {
		return nil, err
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	c.url = "http://127.0.0.1:" + strconv.Itoa(port)
	if err := c.run(o, port); err != nil {
		return nil, fmt.Errorf("start clef: %w", err)
	}
	return c, c.awaitAnswer(ctx)
}

// URL is clef's address.
func (c *Clef) URL() string { return c.url }

// Close ends clef and removes its files.
func (c *Clef) Close() error {
	if c.cmd != nil {
		_ = c.cmd.Process.Kill()
		<-c.ended
	}
	c.server.Stop()
	return os.RemoveAll(c.folder)
}

func (c *Clef) writeKeys(keys []*ecdsa.PrivateKey) error {
	folder := filepath.Join(c.folder, "keystore")
	if err := os.Mkdir(folder, 0o700); err != nil {
		return err
	}
	for _, key := range keys {
		file, err := signertest.KeyFile(key, password)
		if err != nil {
			return err
		}
		name := "UTC--2026-01-01T00-00-00.000000000Z--" + strings.ToLower(crypto.PubkeyToAddress(key.PublicKey).Hex()[2:])
		if err := os.WriteFile(filepath.Join(folder, name), file, 0o600); err != nil {
			return err
		}
	}
	return nil
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

func (c *Clef) run(o Options, port int) error {
	cmd := exec.Command(o.Path, "--stdio-ui", "--suppress-bootwarn", "--advanced", "--lightkdf", "--nousb", "--ipcdisable", "--auditlog", "",
		"--chainid", strconv.FormatUint(o.ChainID, 10), "--configdir", filepath.Join(c.folder, "config"), "--keystore", filepath.Join(c.folder, "keystore"),
		"--http", "--http.addr", "127.0.0.1", "--http.port", strconv.Itoa(port))
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := c.server.RegisterName("ui", approver{}); err != nil {
		return err
	}
	cmd.SysProcAttr = processes.Attributes()
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // clef ends with the thread that started it
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		if err == nil {
			c.cmd = cmd
		}
		if started <- err; err != nil {
			return
		}
		defer close(c.ended)
		c.server.ServeCodec(rpc.NewCodec(pipes{out, in}), 0) // returns when clef ends
		_ = cmd.Wait()
	}()
	return <-started
}

func (c *Clef) awaitAnswer(ctx context.Context) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		q, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"account_version","params":[]}`))
		if err != nil {
			return err
		}
		q.Header.Set("Content-Type", "application/json")
		if answer, err := http.DefaultClient.Do(q); err == nil {
			_ = answer.Body.Close()
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("clef did not answer: %w", ctx.Err())
		case <-c.ended:
			return errors.New("clef ended before it answered")
		case <-tick.C:
		}
	}
}

// pipes joins clef's output and input into one connection.
type pipes struct {
	io.ReadCloser
	in io.WriteCloser
}

func (p pipes) Write(b []byte) (int, error)      { return p.in.Write(b) }
func (p pipes) Close() error                     { return errors.Join(p.in.Close(), p.ReadCloser.Close()) }
func (p pipes) SetWriteDeadline(time.Time) error { return nil }

// approver answers clef's requests to its user.
//
// Source: https://geth.ethereum.org/docs/tools/clef/datatypes
type approver struct{}

// ApproveTx approves a transaction unchanged.
func (approver) ApproveTx(q struct {
	Transaction json.RawMessage `json:"transaction"`
}) map[string]any {
	return map[string]any{"transaction": q.Transaction, "approved": true}
}

// ApproveListing returns all accounts.
func (approver) ApproveListing(q struct {
	Accounts json.RawMessage `json:"accounts"`
}) map[string]any {
	return map[string]any{"accounts": q.Accounts}
}

// OnInputRequired returns the password.
func (approver) OnInputRequired(json.RawMessage) map[string]any {
	return map[string]any{"text": password}
}

// The rest are notifications. The caller gets an error too.
func (approver) OnSignerStartup(json.RawMessage) {}
func (approver) OnApprovedTx(json.RawMessage)    {}
func (approver) ShowInfo(json.RawMessage)        {}
func (approver) ShowError(json.RawMessage)       {}
