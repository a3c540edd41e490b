// Package porttest gives tests addresses of this machine.
package porttest

import (
	"net"
	"testing"

	"github.com/fencepost/fencepost/shared/check"
)

// Refused returns an address, host and port, that refuses connections until the test ends. Its port is
// the near end of an open connection, so that no other program gets it meanwhile.
func Refused(t testing.TB) string {
	t.Helper()
	far := check.Value(net.Listen("tcp", "127.0.0.1:0"))(t)
	near := check.Value(net.Dial("tcp", far.Addr().String()))(t)
	t.Cleanup(func() { _, _ = near.Close(), far.Close() })
	return near.LocalAddr().String()
}
