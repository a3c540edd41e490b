package queues

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math/big"
	"net/http"
	"net/url"
	"strings"

	"github.com/fencepost/fencepost/functions/console/page"
	"github.com/fencepost/fencepost/shared/client"
)

// transaction is the page Transaction.
type transaction struct {
	client.Tx
	client.InspectedTx
	Asked     *payload // nil: none is stored
	Why       part[client.TxWhy]
	History   part[list[client.TxChange]]
	Versions  part[list[client.TxVersion]]
	Decisions part[list[client.TxDecision]]
	TraceURL  string // "": no link
	LogURL    string // "": no link
}

// fees are the gas and fees of a version, in wei.
type fees struct {
	Gas                  json.Number `json:"gas"`
	MaxFeePerGas         string      `json:"maxFeePerGas"`
	MaxPriorityFeePerGas string      `json:"maxPriorityFeePerGas"`
	GasPrice             string      `json:"gasPrice"`
	Value                string      `json:"value"`
}

// showTx draws the page Transaction. It makes 5 calls.
func (to Links) showTx(ctx context.Context, call page.Call) (page.View, error) {
	tx, err := readTx(ctx, call)
	if err != nil {
		return page.View{}, err
	}
	tx.LogURL = strings.ReplaceAll(to.Log, "{txId}", url.QueryEscape(tx.TxID))
	if tx.TraceID != "" {
		tx.TraceURL = strings.ReplaceAll(to.Trace, "{traceId}", url.QueryEscape(tx.TraceID))
	}
	v := page.View{Title: tx.Heading(), Body: "queues/transaction", Data: tx}
	if !tx.State.Final() {
		v.Poll = poll
	}
	return v, nil
}

// readTx reads all that is known of the transaction of the path.
func readTx(ctx context.Context, call page.Call) (transaction, error) {
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	id := call.PathValue("txId")
	var t transaction
	all := calls{ctx: ctx}
	require(&all, &t.InspectedTx, func(ctx context.Context) (client.InspectedTx, error) { return call.Admin.InspectTx(ctx, id) })
	ask(&all, &t.Why, func(ctx context.Context) (client.TxWhy, error) { return call.Admin.WhyTx(ctx, id) })
	askRows(&all, &t.History, call.Admin.ListTxHistory(ctx, id), maxRows)
	askRows(&all, &t.Versions, call.Admin.ListTxVersions(ctx, id), maxRows)
	askRows(&all, &t.Decisions, call.Admin.ListTxDecisions(ctx, id), maxRows)
	if err := all.wait(); err != nil {
		return t, err
	}
	t.Tx, t.Asked = t.Transaction, payloadOf(t.Payload)
	return t, nil
}

// FeesOf are the fees of a version.
func (transaction) FeesOf(v client.TxVersion) (f fees) {
	_ = json.Unmarshal(v.Fees, &f) // archived fees are null
	return f
}

// IsMined reports whether the version has the receipt.
func (t transaction) IsMined(v client.TxVersion) bool {
	return t.Receipt != nil && t.Receipt.TxHash == v.TxHash
}

// Diagram is the picture of the transaction's states.
func (t transaction) Diagram() diagram { return diagramOf(t.History.Value.Rows, t.Tx) }

// Reorgs are the changes by which the chain lost the transaction's block: it has another one afterwards, or none.
func (t transaction) Reorgs() (all []client.TxChange) {
	block := ""
	for _, c := range t.History.Value.Rows {
		if block != "" && c.BlockHash != block {
			all = append(all, c)
		}
		block = c.BlockHash
	}
	return all
}

// Heading is what the page is about.
func (t transaction) Heading() string {
	if t.Nonce != nil {
		return fmt.Sprint("nonce ", *t.Nonce)
	}
	return "intent " + t.RequestID
}

func (t transaction) id() string { return t.TxID }

// Confirmation is the text to type where an act cannot be undone.
func (t transaction) Confirmation() string { return page.Confirmation(t.TxID) }

// Ours is the state as its badge names it.
func (t transaction) Ours() string {
	if t.SubState == "HELD" {
		return "HELD"
	}
	return string(t.State)
}

// Todo is what an operator can do about the wait.
func (t transaction) Todo() string {
	if w := t.Why.Value.Waiting; w != nil {
		return todo(w.Cause, t.Why.Value.Action)
	}
	return t.Why.Value.Action
}

// MayDecide reports whether an action can be requested: it holds a nonce that is open.
func (t transaction) MayDecide() bool {
	switch t.State {
	case client.InFlight, client.Submitted, client.Tracking, client.Stuck, client.Protect:
		return true
	}
	return false
}

// IsPayout reports whether a transfer made the intent. Its requestId is the transfer's req_id.
func (t transaction) IsPayout() bool { return t.Caller == "transfer" }

func isULID(s string) bool {
	return len(s) == 26 && strings.Trim(strings.ToUpper(s), "0123456789ABCDEFGHJKMNPQRSTVWXYZ") == ""
}

// Archived reports whether the history is no longer in the database.
func (t transaction) Archived() bool {
	return t.History.Err == nil && len(t.History.Value.Rows) == 0 || page.StatusOf(t.History.Err) == http.StatusNotFound
}

// payload is what a caller asked for, with its data decoded.
type payload struct {
	client.TxPayload
	Function string // such as transfer(address,uint256), or the selector; "": there is no call
	Words    []word // the arguments, 32 bytes each; none: the data has another form, or is cut
}

// word is an argument of a call.
type word struct {
	Name    string // such as to; "": the function is not known
	Address string // "": it is none
	Number  string // decimal; "": the function says that it is an address
}

// function is a function of ERC-20 by its selector.
type function struct {
	name string
	args []string // each but amount is an address
}

var functions = map[string]function{
	"a9059cbb": {"transfer(address,uint256)", []string{"to", "amount"}},
	"095ea7b3": {"approve(address,uint256)", []string{"spender", "amount"}},
	"23b872dd": {"transferFrom(address,address,uint256)", []string{"from", "to", "amount"}},
}

const (
	selectorDigits = 8
	wordDigits     = 64
	addressDigits  = 40
	leastAddress   = 24 // a number of fewer digits is no address
	maxWords       = 32 // that are shown decoded
)

// payloadOf decodes a stored payload; nil: there is none.
func payloadOf(p *client.TxPayload) *payload {
	if p == nil {
		return nil
	}
	out := &payload{TxPayload: *p}
	digits := strings.TrimPrefix(p.Data, "0x")
	if p.To == "" || len(digits) < selectorDigits {
		return out
	}
	known := functions[digits[:selectorDigits]]
	out.Function = cmp.Or(known.name, "0x"+digits[:selectorDigits])
	rest := digits[selectorDigits:]
	whole := p.DataBytes == nil || 2**p.DataBytes == len(digits)
	if !whole || len(rest)%wordDigits != 0 || len(rest) > maxWords*wordDigits {
		return out
	}
	for i := 0; i < len(rest); i += wordDigits {
		name := ""
		if n := i / wordDigits; n < len(known.args) {
			name = known.args[n]
		}
		out.Words = append(out.Words, wordOf(name, rest[i:i+wordDigits]))
	}
	return out
}

// Size is the length of the whole data, in bytes; 0: there are none.
func (p payload) Size() int {
	if p.DataBytes == nil {
		return 0
	}
	return *p.DataBytes
}

// wordOf reads a word. One with a name is an amount or an address. One without is a number, and an address if it can be one.
// An address is in the last 20 bytes.
func wordOf(name, digits string) word {
	w := word{Name: name}
	if n, ok := new(big.Int).SetString(digits, 16); ok && (name == "" || name == "amount") {
		w.Number = n.String()
	}
	value := strings.TrimLeft(digits, "0")
	if name == "" && len(value) <= addressDigits && len(value) >= leastAddress || name != "" && name != "amount" {
		w.Address = "0x" + digits[wordDigits-addressDigits:]
	}
	return w
}
