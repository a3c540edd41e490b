package functions_test

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/client"
)

// An operator sees what a transaction does, or which handler makes it out of what, and the id of its trace. Long data and
// arguments are cut.
func TestOperatorInspectsATransaction(t *testing.T) {
	t.Parallel()
	h := buildWithShop(t, "FENCEPOST_HANDLERS_URLS=pay=http://127.0.0.1:1", "FENCEPOST_HANDLERS_SECRETS=pay=whsec_"+base64.StdEncoding.EncodeToString(make([]byte, 32)))
	ann := h.clientOf(h.callerToken("ann"))
	check.OK(t)(ann.SetCallers(t.Context(), shopAccount, []string{"email:shop@fencepost.example", "handler:pay"}, nil, "a handler"))
	posted := func(request string, body members) string {
		t.Helper()
		body["submitter"], body["requestId"] = shopAccount, request
		a := h.as("shop", "POST", "/api/v1/tx", body)
		a.wants(t, 202, "%s", request)
		return fmt.Sprint(a.body["txId"])
	}
	const long = 5000
	ids := map[string]string{
		"call": posted("call", members{"payload": members{"to": paidTo, "value": "12345678901234567890", "data": "0x" + strings.Repeat("ab", long),
			"maxGas": "900000", "maxFeePerGas": "2000000000", "maxPriorityFeePerGas": "1000000000"}}),
		"deployment": posted("deployment", members{"payload": members{"data": "0x6000", "gas": "100000"}}),
		"handler":    posted("handler", members{"handler": "pay", "payload": members{"order": 4711, "text": "<b>"}}),
		"much":       posted("much", members{"handler": "pay", "payload": strings.Repeat("x", 70_000)}),
	}
	const trace = "4bf92f3577b34da6a3ce929d0e0e4736"
	h.run(`update managed_tx set trace = decode($2 || '00f067aa0ba902b701', 'hex') where tx_id = $1`, ids["call"], trace)
	inspect := func(name string) client.InspectedTx {
		t.Helper()
		x, err := ann.InspectTx(t.Context(), ids[name])
		if err != nil || x.Transaction.TxID != ids[name] || x.Transaction.RequestID != name || x.Transaction.Waiting == nil || x.Caller != "email:shop@fencepost.example" {
			t.Fatalf("%s: got %+v, %v; want it with its caller and its wait", name, x, err)
		}
		return x
	}

	call := inspect("call")
	check.Equal(t, "trace", call.TraceID, trace)
	check.Same(t, "call", call.Payload, &client.TxPayload{To: strings.ToLower(paidTo), Value: "12345678901234567890", Data: "0x" + strings.Repeat("ab", 4096), DataBytes: new(long),
		MaxGas: "900000", MaxFeePerGas: "2000000000", MaxPriorityFeePerGas: "1000000000"})
	check.Same(t, "deployment", inspect("deployment").Payload, &client.TxPayload{Value: "0", Data: "0x6000", DataBytes: new(2), Gas: "100000"})
	if x := inspect("handler"); x.TraceID != "" || x.Payload == nil || x.Payload.Handler != "pay" || x.Payload.ArgsBytes != len(`{"order":4711,"text":"<b>"}`) || string(x.Payload.Args) != `{"order":4711,"text":"<b>"}` {
		t.Errorf("handler: got %+v with %s; want its arguments, and no trace", x.Payload, x.Payload.Args)
	}
	if x := inspect("much"); x.Payload == nil || x.Payload.Args != nil || x.Payload.ArgsBytes != 70_002 {
		t.Errorf("a handler with long arguments: got %+v, want their length alone", x.Payload)
	}

	h.run(`alter table tx_document disable trigger user`)
	h.run(`delete from tx_document where tx_id = $1`, ids["call"])
	if x := inspect("call"); x.Payload != nil {
		t.Errorf("archived: got %+v, want no payload", x.Payload)
	}
	check.Equal(t, "of none", h.as("ann", "GET", "/admin/v1/tx/01a1fda0-b1f9-7b07-a2c1-57c667e395bc", nil).is("code"), "404 NOT_FOUND")
	check.Equal(t, "no id", h.as("ann", "GET", "/admin/v1/tx/x", nil).is("code", "field"), "400 INVALID_FIELD txId")
	if shown := h.as("shop", "GET", "/api/v1/tx/"+ids["handler"], nil).body; shown["payload"] != nil || shown["requestId"] != "handler" {
		t.Errorf("its caller: got %v, want no payload", shown)
	}
}
