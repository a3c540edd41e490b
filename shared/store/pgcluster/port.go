package pgcluster

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
)

// randomPort returns a free port of 127.0.0.1. It is below the ranges of the kernels' local ports for
// outgoing connections (32768 and up on Linux), so that it is still free after a restart. It is above
// the range of the tests' processes.
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

// isPortTaken reports whether a start failed because another process took the port after it was found
// free. Postgres reports that only in its log, in the words of the C library.
func isPortTaken(err error) bool {
	return strings.Contains(err.Error(), "Address already in use")
}
