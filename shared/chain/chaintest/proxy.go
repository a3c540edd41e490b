package chaintest

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
)

// Proxy stands between a connector and a real node and spoils answers on their
// way back. What the node was asked, it has done.
type Proxy struct {
	// URL is where the connector finds the proxy.
	URL string

	target     string
	roundTrips atomic.Uint64
	fault      atomic.Pointer[Fault]
}

// Fault is what the proxy does with the answer to one HTTP request. The zero
// Fault passes it on.
type Fault struct {
	// Drop closes the connection instead of answering.
	Drop bool
	// Hang keeps the connection open and silent until the client gives up.
	Hang bool
	// Status answers with this HTTP status and no content.
	Status int
	// Batch gets the number of calls in the request; nil: nothing does.
	Batch func(calls int)
	// Answer replaces the answer to one call: it gets the call and the node's
	// own answer, and returns the fields of a JSON-RPC response ("result" or
	// "error"), or nil to pass the node's answer on.
	Answer func(call Call, own json.RawMessage) map[string]any
}

// Call is one JSON-RPC call of a batch.
type Call struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params []any           `json:"params"`
}

// asksFor says whether the call is for the block with a tag.
func (c Call) asksFor(tag string) bool {
	return c.asksBlock() && len(c.Params) > 0 && c.Params[0] == tag
}

// asksBlock says whether the call is for a block by its number, or for the header
// of one.
func (c Call) asksBlock() bool { return c.Method == getBlock || c.Method == getHeader }

const (
	getBlock  = "eth_getBlockByNumber"
	getHeader = "eth_getHeaderByNumber"
)

// NewProxy starts a proxy in front of the node at target; it ends with t.
func NewProxy(t *testing.T, target string) *Proxy {
	t.Helper()
	p := &Proxy{target: target}
	p.fault.Store(&Fault{})
	server := httptest.NewServer(http.HandlerFunc(p.serve))
	t.Cleanup(server.Close)
	p.URL = server.URL
	return p
}

// Set makes f the fault of the requests from now on.
func (p *Proxy) Set(f Fault) { p.fault.Store(&f) }

// RoundTrips counts the HTTP requests that came.
func (p *Proxy) RoundTrips() uint64 { return p.roundTrips.Load() }

func (p *Proxy) serve(w http.ResponseWriter, r *http.Request) {
	p.roundTrips.Add(1)
	fault := p.fault.Load()
	request, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	answer, err := p.forward(r, request)
	switch {
	case err != nil:
		http.Error(w, err.Error(), http.StatusBadGateway)
	case fault.Drop:
		panic(http.ErrAbortHandler) // the one way to close without an answer
	case fault.Hang:
		<-r.Context().Done()
	case fault.Status != 0:
		w.WriteHeader(fault.Status)
	default:
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(fault.spoil(request, answer)) // a client that has gone needs none
	}
}

func (p *Proxy) forward(r *http.Request, request []byte) ([]byte, error) {
	onward, err := http.NewRequestWithContext(r.Context(), http.MethodPost, p.target, bytes.NewReader(request))
	if err != nil {
		return nil, err
	}
	onward.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(onward)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	return io.ReadAll(response.Body)
}

// spoil replaces parts of a batch's answer. go-ethereum answers a batch in its
// own order; other orders would need the ids.
func (f *Fault) spoil(request, answer []byte) []byte {
	var calls []Call
	var own []json.RawMessage
	if json.Unmarshal(request, &calls) == nil && f.Batch != nil {
		f.Batch(len(calls))
	}
	if f.Answer == nil || json.Unmarshal(answer, &own) != nil || len(own) != len(calls) {
		return answer
	}
	for i, call := range calls {
		spoiled := f.Answer(call, own[i])
		if spoiled == nil {
			continue
		}
		spoiled["jsonrpc"], spoiled["id"] = "2.0", call.ID
		own[i], _ = json.Marshal(spoiled) // made of what has just been decoded
	}
	answer, _ = json.Marshal(own)
	return answer
}

// NodeError is the response of a node that refuses a call with these words.
func NodeError(text string) map[string]any {
	return map[string]any{"error": map[string]any{"code": -32000, "message": text}}
}

// SpoilMethod is a Fault that answers each call of one method with response.
func SpoilMethod(method string, response map[string]any) Fault {
	return Fault{Answer: func(call Call, _ json.RawMessage) map[string]any {
		if call.Method != method && (method != getBlock || !call.asksBlock()) {
			return nil
		}
		return response
	}}
}
