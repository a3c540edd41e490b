package attacks

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/emulator/stack"
)

// begun sends the beginning of a request straight to a function process, and says how that
// ends: the status of its answer, and that the connection is closed behind it.
func (b deployment) begun(t *testing.T, text string) string {
	t.Helper()
	conn := must(net.Dial("tcp", b.Processes()[0].Addr()))(t)
	defer conn.Close()
	if deadline, ok := b.ctx.Deadline(); ok {
		check(t, conn.SetDeadline(deadline))
	}
	must(io.WriteString(conn, text))(t)
	from := bufio.NewReader(conn)
	resp, err := http.ReadResponse(from, nil)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err.Error()
	}
	end := "open"
	if _, err := from.ReadByte(); errors.Is(err, io.EOF) {
		end = "closed"
	}
	_, code, _ := strings.Cut(string(body), `"code":"`)
	code, _, _ = strings.Cut(code, `"`)
	return fmt.Sprint(resp.StatusCode, " ", code, ", ", end)
}

// A body that never comes holds a function for http.bodyTimeout and no longer, and without
// a token not even for that.
func TestBodiesThatNeverComeEnd(t *testing.T) {
	t.Parallel()
	post := func(path, token string) string {
		return "POST " + path + " HTTP/1.1\r\nHost: x\r\n" + token + "Content-Length: 5000\r\n\r\n{"
	}
	parallel(t, "without a token", func(t *testing.T) {
		b := attacked(t, stack.Options{Settings: map[string]string{"FENCEPOST_HTTP_BODY_TIMEOUT": "10m"}}) // longer than the test may take
		for path, want := range map[string]string{
			"/api/v1/tx": "401 UNAUTHORIZED, closed", "/api/v1/tx:batch": "401 UNAUTHORIZED, closed", "/admin/v1/submitters": "401 UNAUTHORIZED, closed",
			"/internal/advance": "401 UNAUTHORIZED, closed", "/nothing": "404 NOT_FOUND, closed", "/readyz": "405 METHOD_NOT_ALLOWED, closed",
		} {
			equal(t, path, b.begun(t, post(path, "")), want)
		}
	})
	parallel(t, "with a token", func(t *testing.T) {
		b := attacked(t, stack.Options{Settings: map[string]string{"FENCEPOST_HTTP_BODY_TIMEOUT": (200 * time.Millisecond).String()}})
		token := b.token(t, stack.CallerAccount)
		for _, path := range []string{"/api/v1/tx", "/api/v1/tx:batch"} {
			if got, want := b.begun(t, post(path, "Authorization: Bearer "+token+"\r\n")), "408 BODY_TIMEOUT, closed"; got != want {
				t.Errorf("%s: got %s, want %s", path, got, want)
			}
		}
	})
}
