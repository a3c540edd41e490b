package pgproxy

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
)

// The messages that the proxy reads. Some letters mean different things from a client and from the server.
// Source: https://www.postgresql.org/docs/17/protocol-message-formats.html
const (
	parse        = 'P'
	bind         = 'B'
	execute      = 'E'
	simpleQuery  = 'Q'
	functionCall = 'F'
	syncMessage  = 'S'

	commandComplete = 'C'
	errorResponse   = 'E'
	readyForQuery   = 'Z'
)

// Codes in the place of the version in a client's first message, which ask for encryption.
const (
	sslRequest    = 80877103
	gssEncRequest = 80877104
)

// message is one message with its type and length.
type message []byte

const headerSize = 5

func (m message) kind() byte { return m[0] }

// texts returns the first n zero-terminated texts of the body, "" for missing ones.
func (m message) texts(n int) []string {
	texts, rest := make([]string, n), []byte(m[headerSize:])
	for i := range texts {
		var text []byte
		text, rest, _ = bytes.Cut(rest, []byte{0})
		texts[i] = string(text)
	}
	return texts
}

// readMessage reads the next message. An error is the connection's.
func readMessage(r *bufio.Reader) (message, error) {
	kind, err := r.ReadByte()
	if err != nil {
		return nil, err
	}
	rest, err := readStartup(r)
	return append(message{kind}, rest...), err
}

// readStartup reads a message without a type: its length, which includes itself, and its body.
func readStartup(r *bufio.Reader) ([]byte, error) {
	const longest = 1 << 30 // the longest message that Postgres accepts
	length, err := r.Peek(4)
	if err != nil {
		return nil, err
	}
	size := binary.BigEndian.Uint32(length)
	if size < 4 || size > longest {
		return nil, fmt.Errorf("a message of %d bytes", size)
	}
	raw := make([]byte, size)
	_, err = io.ReadFull(r, raw)
	return raw, err
}

// handshake reads a client's first message, and answers no to each request for encryption.
func handshake(r *bufio.Reader, client net.Conn) ([]byte, error) {
	for {
		first, err := readStartup(r)
		if err != nil || len(first) != 8 {
			return first, err
		}
		if code := binary.BigEndian.Uint32(first[4:]); code != sslRequest && code != gssEncRequest {
			return first, nil
		}
		if _, err := client.Write([]byte{'N'}); err != nil {
			return nil, err
		}
	}
}

// half returns about half of the messages, ending inside one of them.
func half(messages []byte) []byte {
	middle := len(messages) / 2
	for at := 0; at <= middle; at += 1 + int(binary.BigEndian.Uint32(messages[at+1:])) {
		if at == middle {
			return messages[:middle+1]
		}
	}
	return messages[:middle]
}
