package processes

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// The range is below the ports that systems assign to outgoing connections (Linux from 32768, others from
// 49152). So no outgoing connection can take a port between its reservation and the child's listening.
const (
	firstPort = 15000
	lastPort  = 29999
)

// reserved are the ports of this process' children. The UDP port of the same number is held with each.
// Another process that starts children sees by it that the port is taken, even before the child listens.
var reserved = struct {
	sync.Mutex
	ports map[int]net.PacketConn
}{ports: map[int]net.PacketConn{}}

// reservePort returns a port without a listener that no other child has, of this process or of another one
// that reserves ports.
func reservePort() (int, error) {
	reserved.Lock()
	defer reserved.Unlock()
	for range lastPort - firstPort {
		port := firstPort + rand.IntN(lastPort-firstPort+1)
		if reserved.ports[port] != nil {
			continue
		}
		kept, err := net.ListenPacket("udp", ":"+strconv.Itoa(port))
		if err != nil {
			continue
		}
		l, err := net.Listen("tcp", ":"+strconv.Itoa(port)) // on every address, as the functions do
		if err != nil {
			_ = kept.Close()
			continue
		}
		_ = l.Close()
		reserved.ports[port] = kept
		return port, nil
	}
	return 0, errors.New("no free port")
}

func releasePort(port int) {
	reserved.Lock()
	defer reserved.Unlock()
	if kept := reserved.ports[port]; kept != nil {
		_ = kept.Close()
	}
	delete(reserved.ports, port)
}
