// Package porttest gives tests addresses of this machine.
package porttest

import (
	"fmt"
	"syscall"
	"testing"
)

// Refused returns an address, host and port, that refuses connections until the test ends. Its port is
// bound without a listener, so that no other program gets it meanwhile.
func Refused(t testing.TB) string {
	t.Helper()
	socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(socket) })
	syscall.CloseOnExec(socket)
	if err := syscall.Bind(socket, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	at, err := syscall.Getsockname(socket)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("127.0.0.1:%d", at.(*syscall.SockaddrInet4).Port)
}
