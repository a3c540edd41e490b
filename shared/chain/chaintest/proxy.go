package chaintest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ethereum/go-ethereum/common/hexutil"
)

// Proxy stands between a connector and a real node and changes answers on their way back. The node has
// carried out the call.
type Proxy struct {
	// URL is the proxy's address.
	URL string

	target     string
	roundTrips atomic.Uint64
	fault      atomic.Pointer[Fault]

	mu    sync.Mutex
	calls map[string]uint64 // by method
}

// Fault defines what the proxy does with the answer to one HTTP request. The zero Fault passes it on.
type Fault struct {
	// Drop closes the connection instead of answering.
	Drop bool
	// Hang keeps the connection open without an answer until the client closes it.
	Hang bool
	// Status answers with this HTTP status and no content.
	Status int
	// Instead may answer a request before the node gets it. It reports whether it has; nil: it never does.
	Instead func(http.ResponseWriter, Request) bool
	// Batch gets the number of calls in the request; nil: not called.
	Batch func(calls int)
	// Answer replaces the answer to one call. It gets the call and the node's own answer. It returns the
	// fields of a JSON-RPC response ("result" or "error"), or nil to pass the node's answer on.
	Answer func(call Call, own json.RawMessage) map[string]any
}

// Request is one HTTP request.
type Request struct {
	Body  string
	Calls []Call
	Gone  <-chan struct{} // closed when the client closes the connection
}

// Call is one JSON-RPC call of a batch.
type Call struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params []any           `json:"params"`
}

// asksFor reports whether the call requests the block with a tag.
func (c Call) asksFor(tag string) bool {
	return c.asksBlock() && len(c.Params) > 0 && c.Params[0] == tag
}

// asksBlock reports whether the call requests a block by its number, or its header.
func (c Call) asksBlock() bool { return c.Method == getBlock || c.Method == getHeader }

const (
	getBlock  = "eth_getBlockByNumber"
	getHeader = "eth_getHeaderByNumber"
)

// NewProxy starts a proxy before the node at target. It ends with t.
func NewProxy(t *testing.T, target string) *Proxy {
	t.Helper()
	p := &Proxy{target: target, calls: map[string]uint64{}}
	p.fault.Store(&Fault{})
	server := httptest.NewServer(http.HandlerFunc(p.serve))
	t.Cleanup(server.Close)
	p.URL = server.URL
	return p
}

// Set makes f the fault of all following requests.
func (p *Proxy) Set(f Fault) { p.fault.Store(&f) }

// RoundTrips returns the number of HTTP requests.
func (p *Proxy) RoundTrips() uint64 { return p.roundTrips.Load() }

// Calls returns the number of calls of a method.
func (p *Proxy) Calls(method string) uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.calls[method]
}

// read returns the calls of a request, and counts them. A request that is no batch has none.
func (p *Proxy) read(request []byte) (calls []Call) {
	_ = json.Unmarshal(request, &calls)
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, call := range calls {
		p.calls[call.Method]++
	}
	return calls
}

func (p *Proxy) serve(w http.ResponseWriter, r *http.Request) {
	p.roundTrips.Add(1)
	fault := p.fault.Load()
	request, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	calls := p.read(request)
	if fault.Instead != nil && fault.Instead(w, Request{string(request), calls, r.Context().Done()}) {
		return
	}
	answer, err := p.forward(request)
	switch {
	case err != nil:
		http.Error(w, err.Error(), http.StatusBadGateway)
	case fault.Drop:
		panic(http.ErrAbortHandler) // the only way to close without an answer
	case fault.Hang:
		<-r.Context().Done()
	case fault.Status != 0:
		w.WriteHeader(fault.Status)
	default:
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(fault.distort(calls, answer)) // an error means that the client has closed the connection
	}
}

func (p *Proxy) forward(request []byte) ([]byte, error) {
	response, err := http.Post(p.target, "application/json", bytes.NewReader(request))
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	return io.ReadAll(response.Body)
}

// distort replaces parts of a batch's answer. go-ethereum answers a batch in order; other orders would need
// the ids.
func (f *Fault) distort(calls []Call, answer []byte) []byte {
	var own []json.RawMessage
	if f.Batch != nil && len(calls) > 0 {
		f.Batch(len(calls))
	}
	if f.Answer == nil || json.Unmarshal(answer, &own) != nil || len(own) != len(calls) {
		return answer
	}
	for i, call := range calls {
		distorted := f.Answer(call, own[i])
		if distorted == nil {
			continue
		}
		distorted["jsonrpc"], distorted["id"] = "2.0", call.ID
		own[i], _ = json.Marshal(distorted) // it was just decoded, so it can be encoded
	}
	answer, _ = json.Marshal(own)
	return answer
}

// NodeError is the response of a node that refuses a call with this text.
func NodeError(text string) map[string]any {
	return map[string]any{"error": map[string]any{"code": -32000, "message": text}}
}

// Result is the response of a node that answers with this value.
func Result(value any) map[string]any { return map[string]any{"result": value} }

// FaultyMethod is a Fault that answers each call of one method with response.
func FaultyMethod(method string, response map[string]any) Fault {
	return answering(func(call Call) bool { return call.Method == method || method == getBlock && call.asksBlock() }, response)
}

// answering is a Fault that answers each call for which of is true with response.
func answering(of func(Call) bool, response map[string]any) Fault {
	return Fault{Answer: func(call Call, _ json.RawMessage) map[string]any {
		if !of(call) {
			return nil
		}
		return maps.Clone(response)
	}}
}

// changing is a Fault that changes the object, or each object of the list, with which the node answers each call
// for which of is true.
func changing(of func(Call) bool, change func(object map[string]any)) Fault {
	return Fault{Answer: func(call Call, own json.RawMessage) map[string]any {
		var answer struct{ Result any }
		if !of(call) || json.Unmarshal(own, &answer) != nil {
			return nil
		}
		switch result := answer.Result.(type) {
		case map[string]any:
			change(result)
		case []any:
			for _, object := range result {
				change(object.(map[string]any))
			}
		default:
			return nil
		}
		return Result(answer.Result)
	}}
}

// blockOf selects the calls for the block with a number or tag.
func blockOf(numberOrTag string) func(Call) bool {
	return func(call Call) bool { return call.asksFor(numberOrTag) }
}

// blockAt selects the calls for the block of a height by its number.
func blockAt(height uint64) func(Call) bool { return blockOf(hexutil.EncodeUint64(height)) }

// nth selects the n-th of the selected calls.
func nth(n int, selected func(Call) bool) func(Call) bool {
	return func(call Call) bool {
		if !selected(call) {
			return false
		}
		n--
		return n == 0
	}
}

// wholeBlock selects the calls for a block with its transactions.
func wholeBlock(call Call) bool { return call.Method == getBlock && call.Params[1] == true }

// countsWhere selects the calls for an account's count at certain heights.
func countsWhere(selected func(height uint64) bool) func(Call) bool {
	return func(call Call) bool {
		at, ok := call.countsAt()
		return ok && selected(at)
	}
}

// wrongBlocks are the wrong answers to a request for a block.
var wrongBlocks = map[string]func(of func(Call) bool) Fault{
	"missing": func(of func(Call) bool) Fault { return answering(of, Result(nil)) },
	"refused": func(of func(Call) bool) Fault { return answering(of, NodeError("header not found")) },
	"another fork": func(of func(Call) bool) Fault {
		return changing(of, func(block map[string]any) { block["hash"] = absentHash })
	},
	"another height": func(of func(Call) bool) Fault {
		return changing(of, func(block map[string]any) { block["number"] = lower(block["number"]) })
	},
}

// record makes the queries. It returns the Fault of a lagging node, which repeats the last answer of that time to each
// call for which lags is true; nil means all calls.
func (b *bundle) record(queries func()) (replay func(lags func(Call) bool) Fault) {
	var mu sync.Mutex
	answers := map[string]json.RawMessage{}
	question := func(c Call) string { return fmt.Sprint(c.Method, c.Params) }
	b.proxy.Set(Fault{Answer: func(call Call, own json.RawMessage) map[string]any {
		mu.Lock()
		defer mu.Unlock()
		answers[question(call)] = own
		return nil
	}})
	queries()
	b.proxy.Set(Fault{})
	return func(lags func(Call) bool) Fault {
		return Fault{Answer: func(call Call, _ json.RawMessage) (response map[string]any) {
			mu.Lock()
			defer mu.Unlock()
			if own, ok := answers[question(call)]; ok && (lags == nil || lags(call)) {
				_ = json.Unmarshal(own, &response) // a node's answer that was decoded before
			}
			return response
		}}
	}
}
