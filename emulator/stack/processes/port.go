package processes

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
)

// The range is below the ports that systems assign to outgoing connections (Linux from 32768, others from
// 49152). So no outgoing connection can take a port between its reservation and the child's listening.
const (
	firstPort = 15000
	lastPort  = 29999
)

// reservePort returns a port without a listener that no other child has, of this process or of another one that
// reserves ports. The UDP port of the same number is held until the caller closes it. It shows the others that the port
// is taken, even before the child listens.
func reservePort() (port int, held net.PacketConn, err error) {
	for range lastPort - firstPort {
		port = firstPort + rand.IntN(lastPort-firstPort+1)
		address := ":" + strconv.Itoa(port) // on every address, as the functions listen
		if held, err = net.ListenPacket("udp", address); err != nil {
			continue
		}
		if l, err := net.Listen("tcp", address); err == nil {
			return port, held, l.Close()
		}
		_ = held.Close()
	}
	return 0, nil, errors.New("no free port")
}
