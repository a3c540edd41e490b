package pgcluster

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
)

// randomPort returns a port of 127.0.0.1 that nobody listens on now. It stays
// below the ranges from which kernels take the local ports of outgoing
// connections (32768 and up on Linux), so that the port is still free after a
// restart, and above those from which the tests' processes take theirs.
func randomPort() (int, error) {
	const lowest, end, tries = 30000, 32000, 100
	var errs []error
	for range tries {
		port := lowest + rand.IntN(end-lowest)
		listener, err := net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			errs = append(errs, err)
			continue
		}
		return port, listener.Close()
	}
	return 0, fmt.Errorf("find a free port: %w", errors.Join(errs...))
}

// isPortTaken reports whether a start failed because another process took the
// port after it was found free. Postgres tells only its log, in the words of
// the C library.
func isPortTaken(err error) bool {
	return strings.Contains(err.Error(), "Address already in use")
}
