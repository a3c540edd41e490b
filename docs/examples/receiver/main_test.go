package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/shared/check"
)

// The receiver in Python refuses a body that is too long as such, and a secret with a character that base64 has not.
func TestReceiverInPythonRefuses(t *testing.T) {
	t.Parallel()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("SKIPPED: the receiver in Python: " + err.Error())
	}
	held := check.Value(net.Listen("tcp", "127.0.0.1:0"))(t)
	address := held.Addr().String()
	check.OK(t)(held.Close())
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	start := func(secret string) (*exec.Cmd, *bytes.Buffer) {
		c, out := exec.CommandContext(ctx, python, "-B", "receiver.py"), new(bytes.Buffer)
		c.Env = append(os.Environ(), "LISTEN="+address, "STORE="+filepath.Join(t.TempDir(), "store"), "WEBHOOK_SECRETS="+secret)
		c.Stderr = out
		check.OK(t)(c.Start())
		return c, out
	}
	secret := "whsec_" + strings.Repeat("QUJD", 8)
	bad, out := start(secret + "*")
	if err := bad.Wait(); err == nil || !strings.HasPrefix(out.String(), "receiver: WEBHOOK_SECRETS: want") {
		t.Errorf("a secret with a *: got %v, want an error\n%s", err, out)
	}
	c, _ := start(secret)
	t.Cleanup(func() { _ = c.Wait() }) // the context of the test has ended it
	for length, want := range map[int]int{1<<20 + 1: http.StatusRequestEntityTooLarge, 1: http.StatusUnauthorized} {
		if got := answerTo(t, address, length); !strings.Contains(got, fmt.Sprint(" ", want, " ")) {
			t.Errorf("a body of %d bytes: got %q, want %d", length, got, want)
		}
	}
}

// answerTo announces a body of that length, sends one byte of it, and returns the first line of the answer.
func answerTo(t *testing.T, address string, length int) string {
	t.Helper()
	var conn net.Conn
	for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		var err error
		if conn, err = net.Dial("tcp", address); err == nil {
			break
		}
		if time.Since(began) > 20*time.Second {
			t.Fatal("the receiver does not listen: ", err)
		}
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\nx", length)
	answer := make([]byte, 64)
	n, _ := conn.Read(answer)
	line, _, _ := strings.Cut(string(answer[:n]), "\r\n")
	return line
}
