package functions_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/google/uuid"

	"github.com/fencepost/fencepost/functions"
	"github.com/fencepost/fencepost/shared/chain/evm"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/store"
)

// route is one operation of openapi.yaml with a valid request.
type route struct {
	method, path string
	of           *openapi3.Operation
	item         *openapi3.PathItem
	token        string
	values       map[string]string // path and query parameters
	body         map[string]any    // nil: none
}

func (r route) String() string { return r.method + " " + r.path }

// parameters returns the parameters of the path or of the query.
func (r route) parameters(in string) (all []*openapi3.Parameter) {
	for _, p := range slices.Concat(r.item.Parameters, r.of.Parameters) {
		if p.Value.In == in {
			all = append(all, p.Value)
		}
	}
	return all
}

// properties returns the schemas of the body's members, by name.
func (r route) properties() map[string]*openapi3.Schema {
	all := map[string]*openapi3.Schema{}
	if r.body == nil {
		return all
	}
	for name, p := range r.of.RequestBody.Value.Content["application/json"].Schema.Value.Properties {
		all[name] = p.Value
	}
	return all
}

// ask makes the request with one parameter or member differing.
func (r route) ask(h deployment, parameter, member string, value any) answer {
	h.t.Helper()
	path, query := r.path, url.Values{}
	if parameter != "" && !strings.Contains(path, "{"+parameter+"}") {
		query.Set(parameter, fmt.Sprint(value))
	}
	for name, v := range r.values {
		if name == parameter {
			v = fmt.Sprint(value)
		}
		path = strings.ReplaceAll(path, "{"+name+"}", url.PathEscape(v))
	}
	for _, p := range r.parameters("query") {
		if p.Required && p.Name != parameter {
			query.Set(p.Name, r.values[p.Name])
		}
	}
	var body any
	if r.body != nil {
		copied := maps.Clone(r.body)
		if member != "" {
			copied[member] = value
		}
		body = copied
	}
	return call(h.t, h.t.Context(), r.token, r.method, h.url+path+"?"+query.Encode(), body)
}

// routes returns all operations except those of health.
func (h deployment) routes(txID string) (all []route) {
	h.t.Helper()
	document := check.Value(openapi3.NewLoader().LoadFromData([]byte(functions.OpenAPI)))(h.t)
	tokens := map[string]string{"caller": h.callerToken("shop"), "operator": h.callerToken("ann"), "user": h.userToken(alice)}
	for path, item := range document.Paths.Map() {
		for method, of := range item.Operations() {
			security := document.Security
			if of.Security != nil {
				security = *of.Security
			}
			if len(security) == 0 {
				continue
			}
			r := route{method: method, path: path, of: of, item: item, values: map[string]string{
				"txId": txID, "submitter": shopAccount, "requestId": "r", "req_id": "01ARZ3NDEKTSV4RRFFQ69G5FAV", "id": "1",
				"user_id": "7", "address_id": "1", "user": "7", "asset": "USDT", "endpoint": "pubsub", "proposalId": txID,
			}}
			for kind := range security[0] {
				r.token = tokens[kind]
			}
			if of.RequestBody != nil {
				r.body = exampleOf(h.t, of)
			}
			all = append(all, r)
		}
	}
	slices.SortFunc(all, func(a, b route) int { return strings.Compare(a.String(), b.String()) })
	return all
}

// exampleOf returns the first example of the operation's body, or a body made from the schema.
func exampleOf(t *testing.T, of *openapi3.Operation) (body map[string]any) {
	t.Helper()
	examples := of.RequestBody.Value.Content["application/json"].Examples
	for _, name := range slices.Sorted(maps.Keys(examples)) {
		check.OK(t)(json.Unmarshal(check.Value(json.Marshal(examples[name].Value.Value))(t), &body))
		return body
	}
	usual := map[string]any{"reason": "looked at the journals", "txId": uuid.NewString(), "through": uuid.NewString(), "nonce": 1}
	body = map[string]any{}
	for _, name := range of.RequestBody.Value.Content["application/json"].Schema.Value.Required {
		body[name] = usual[name]
	}
	return body
}

// strict returns a deployment with one stored transaction and with events on.
func strict(t *testing.T) (h deployment, txID string) {
	t.Helper()
	h = buildWithShop(t, "FENCEPOST_EVENTS_MODE=mq_outbox", "FENCEPOST_EVENTS_PUBSUB_TOPIC=projects/project/topics/topic", "FENCEPOST_EVENTS_PUBSUB_ENDPOINT=127.0.0.1:1")
	h.run(`update submitter set callers = '{email:shop@fencepost.example,handler:payroll}' where submitter = $1`, shopAccount)
	return h, h.createTx("r")
}

// A query parameter that is present must have a value, on every route that has one. So is a page that no list has, and an
// unknown parameter.
func TestEmptyParametersAreRefused(t *testing.T) {
	t.Parallel()
	h, txID := strict(t)
	asked := map[string]bool{}
	for _, r := range h.routes(txID) {
		for _, p := range r.parameters("query") {
			asked[p.Name] = true
			wrong := []string{""}
			switch p.Name {
			case "pageSize":
				wrong = []string{"", "0", "1001", "+5"}
			case "pageToken":
				wrong = []string{"", "xx"}
				check.Equal(t, r.String()+"?after=1", r.ask(h, "after", "", "1").is("code", "field"), "400 UNSUPPORTED_FIELD after")
			}
			for _, value := range wrong {
				check.Equal(t, fmt.Sprintf("%s?%s=%s", r, p.Name, value), r.ask(h, p.Name, "", value).is("code", "field"), "400 INVALID_FIELD "+p.Name)
			}
		}
	}
	for _, name := range []string{"pageSize", "pageToken", "state", "submitter", "requestId", "from", "since", "hash", "dryRun"} {
		if !asked[name] {
			t.Errorf("%s: got no route that has it, or this test sees nothing", name)
		}
	}
}

// otherForms returns texts that a lenient reader would accept as the id.
func otherForms(id string) []string {
	return []string{"{" + id + "}", "urn:uuid:" + id, strings.ReplaceAll(id, "-", ""), " " + id, id + "\n", "{" + id[1:] + "}"}
}

// A transaction's id has one form in paths and bodies. Letter case is ignored, as in RFC 9562.
func TestOtherFormsOfIDsAreRefused(t *testing.T) {
	t.Parallel()
	h, txID := strict(t)
	found := 0
	for _, r := range h.routes(txID) {
		for _, p := range r.parameters("path") {
			forms, upper := []string{"+1", "01", "1.0", "-1"}, ""
			switch p.Name {
			case "txId":
				found++
				forms, upper = otherForms(txID), strings.ToUpper(txID)
			case "id", "user_id", "address_id":
				found++
			default:
				continue
			}
			for _, form := range forms {
				check.Equal(t, fmt.Sprintf("%s with %q", r, form), r.ask(h, p.Name, "", form).is("code", "field"), "400 INVALID_FIELD "+p.Name)
			}
			if upper == "" {
				continue
			}
			if a := r.ask(h, p.Name, "", upper); a.status == http.StatusBadRequest {
				t.Errorf("%s in upper case: got %d %v, want it found", r, a.status, a.body)
			}
		}
		for name, p := range r.properties() {
			if p.Format != "uuid" {
				continue
			}
			found++
			for _, form := range append(otherForms(txID), "") {
				check.Equal(t, fmt.Sprintf("%s with %s %q", r, name, form), r.ask(h, "", name, form).is("code", "field"), "400 INVALID_FIELD "+name)
			}
			if a := r.ask(h, "", name, strings.ToUpper(txID)); a.status == http.StatusBadRequest && strings.Contains(fmt.Sprint(a.body["detail"]), "hex digits") {
				t.Errorf("%s with %s in upper case: got %v, want it read", r, name, a.body)
			}
		}
	}
	if found < 8 {
		t.Errorf("ids: got %d places, want 8 or more, or this test sees nothing", found)
	}
}

// mayBeEmpty lists the texts that may be empty.
var mayBeEmpty = map[string]string{
	"POST /admin/v1/submitters reason": "it is required with startNonce alone",
}

// A text member that is present must not be empty, on every route that has a body.
func TestEmptyTextsAreRefused(t *testing.T) {
	t.Parallel()
	h, txID := strict(t)
	asked := 0
	for _, r := range h.routes(txID) {
		for name, p := range r.properties() {
			if !isText(p) || mayBeEmpty[r.String()+" "+name] != "" {
				continue
			}
			asked++
			a := r.ask(h, "", name, "")
			if a.status != http.StatusBadRequest || a.body["field"] != name && a.body["code"] != "INVALID_ACCOUNT_TYPE" { // INVALID_ACCOUNT_TYPE is about two fields
				t.Errorf("%s with %s empty: got %s %v, want 400 with this field", r, name, a.is("code", "field"), a.body["detail"])
			}
		}
	}
	if asked < 30 {
		t.Errorf("texts: got %d, want 30 or more, or this test sees nothing", asked)
	}
}

// isText reports whether the schema's values are texts.
func isText(s *openapi3.Schema) bool {
	_, word := append(s.Enum, nil)[0].(string)
	return word || s.Type.Is("string")
}

// An empty handler is invalid and stores nothing, alone or in a batch. The batch's other intents are
// stored.
func TestEmptyHandlerIsRefused(t *testing.T) {
	t.Parallel()
	h, _ := strict(t)
	post := func(path, body string) answer { return h.as("shop", "POST", path, body) }
	for more, want := range map[string]string{
		`, "handler": ""`:    "400 INVALID_FIELD handler",
		`, "handler": null`:  "400 INVALID_FIELD handler",
		`, "handler": 7`:     "400 INVALID_FIELD handler",
		`, "handler": "X"`:   "400 INVALID_FIELD handler",
		`, "handler": "\n"`:  "400 INVALID_FIELD handler",
		`, "handler": " "`:   "400 INVALID_FIELD handler",
		`, "Handler": "x"`:   "400 UNSUPPORTED_FIELD Handler",
		`, "handler":"none"`: "400 INVALID_FIELD handler",
	} {
		check.Equal(t, more, post("/api/v1/tx", intentText("h", more)).is("code", "field"), want)
	}
	for value, want := range map[string]string{
		"null": "null is not a value of this field: leave it out, or give it a value",
		"5":    "got the number 5; want a value in the form of this field",
	} {
		check.Equal(t, value, post("/api/v1/tx", `{"handler":`+value+`}`).is("code", "field", "detail"), "400 INVALID_FIELD handler "+want)
	}
	a := post("/api/v1/tx:batch", `{"intents": [`+intentText("h1", `, "handler": ""`)+`, `+intentText("h2", "")+`]}`)
	check.Equal(t, "a batch", a.is("results.0.status", "results.0.field", "results.1.status"), "200 400 handler 202")
	check.Equal(t, "stored", h.one(`select string_agg(request_id, ' ' order by seq) from managed_tx`), "r h2")
}

// intentText is an intent of the shop's, with more members.
func intentText(requestID, more string) string {
	return `{"submitter": "` + shopAccount + `", "requestId": "` + requestID + `"` + more + `, "payload": {"to": "` + paidTo + `", "value": "1"}}`
}

// A new requestId has no character that changes the writing direction, breaks a line or is invisible.
// One that an earlier release stored can be read, and is answered when it is posted again.
func TestUnprintableRequestIDs(t *testing.T) {
	t.Parallel()
	h, _ := strict(t)
	post := func(id string) answer { return h.as("shop", "POST", "/api/v1/tx", intentOf(id)) }
	for _, c := range []string{"\u0085", "\u009b", "\u00ad", "\u200b", "\u200f", "\u2028", "\u2029", "\u202e", "\u2066", "\ufeff", "\U000e0041"} {
		check.Equal(t, fmt.Sprintf("%+q", c), post("a"+c+"b").is("code", "field"), "400 INVALID_FIELD requestId")
	}
	for _, id := range []string{"order 4711", "größe", "注文", "заказ", "طلب", "e\u0301", "👍"} {
		post(id).wants(t, 202, "%s", id)
	}
	const old = "from\u202ebefore"
	payload, fingerprint, err := evm.Family{}.ParsePayload(check.Value(json.Marshal(intentOf(old).Payload))(t))
	check.OK(t)(err)
	in := store.Intent{TxID: uuid.NewString(), Submitter: shopAccount, RequestID: old, Caller: "email:shop@fencepost.example",
		Names: []string{"email:shop@fencepost.example"}, Payload: payload, Fingerprint: fingerprint}
	check.OK(t)(h.Store.Create(t.Context(), in, 100))
	check.Equal(t, "one stored before, again", post(old).is("txId"), "200 "+in.TxID)
	found := check.Value(h.clientOf(h.callerToken("shop")).TxByRequest(t.Context(), shopAccount, old))(t)
	check.Equal(t, "one stored before, read", found.TxID, in.TxID)
}
