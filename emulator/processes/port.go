package processes

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// Ports below those that systems hand out by themselves (Linux from 32768, the
// others from 49152): a connection that goes out under load cannot take the port
// in the moment between our look and the child's listening.
const (
	firstPort = 15000
	lastPort  = 29999
)

var reserved = struct {
	sync.Mutex
	ports map[int]bool
}{ports: map[int]bool{}}

// reservePort is a port on which nobody listens and that no other child of this
// process has.
func reservePort() (int, error) {
	reserved.Lock()
	defer reserved.Unlock()
	for range lastPort - firstPort {
		port := firstPort + rand.IntN(lastPort-firstPort+1)
		if reserved.ports[port] {
			continue
		}
		l, err := net.Listen("tcp", ":"+strconv.Itoa(port)) // every address, as the functions do
		if err != nil {
			continue
		}
		_ = l.Close()
		reserved.ports[port] = true
		return port, nil
	}
	return 0, errors.New("no free port")
}

func releasePort(port int) {
	reserved.Lock()
	defer reserved.Unlock()
	delete(reserved.ports, port)
}
