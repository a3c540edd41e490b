package porttest

import (
	"errors"
	"net"
	"syscall"
	"testing"
)

func TestRefusedAddressRefusesConnections(t *testing.T) {
	t.Parallel()
	at := Refused(t)
	if _, err := net.Dial("tcp", at); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("dial %s: got %v, want connection refused", at, err)
	}
	if l, err := net.Listen("tcp", at); err == nil {
		_ = l.Close()
		t.Errorf("listen on %s: got no error, want an error, since the port is in use", at)
	}
}
