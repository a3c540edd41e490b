package client_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/client"
)

// helpers are the methods that send no request of their own.
var helpers = []string{"CloseIdle", "WaitTx", "WaitTransfer"}

// returned is the part of the answer that a method returns, where it is neither the whole
// answer nor the elements of its only list.
var returned = map[string][]string{
	"cancelTx":           {"outcome"},
	"cancelTxAsOperator": {"outcome"},
	"proceedTx":          {"state"},
	"replayEvents":       {"events", "[]", "event"},
}

// sent is one request that the service got.
type sent struct {
	operation *openapi3.Operation
	query     []string // the names of its parameters
	body      any      // nil: none
}

// contract serves openapi.yaml: it answers each operation by an example of its schema,
// first with all members and then with those that are required.
type contract struct {
	url        string
	operations map[string]*openapi3.Operation // by operationId
	schemas    openapi3.Schemas

	mu   sync.Mutex
	sent []sent
}

// loadContract reads openapi.yaml and serves it. An operation that demands a token is for
// callers, users or operators. The two of `security: []` tell load balancers of an
// instance's health. The paths of Cloud Tasks and Cloud Scheduler begin with /internal/,
// and the document has none.
func loadContract(t *testing.T) *contract {
	t.Helper()
	api := check.Value(openapi3.NewLoader().LoadFromFile("../../functions/openapi.yaml"))(t)
	c := &contract{operations: map[string]*openapi3.Operation{}, schemas: api.Components.Schemas}
	mux := http.NewServeMux()
	for path, item := range api.Paths.Map() {
		if strings.HasPrefix(path, "/internal/") {
			t.Fatalf("%s: got it in openapi.yaml, want no internal path there", path)
		}
		for method, operation := range item.Operations() {
			security := api.Security
			if operation.Security != nil {
				security = *operation.Security
			}
			if len(security) == 0 {
				continue
			}
			c.operations[operation.OperationID] = operation
			mux.HandleFunc(method+" "+path, func(w http.ResponseWriter, r *http.Request) { c.answer(w, r, operation) })
		}
	}
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	c.url = s.URL
	return c
}

// answer keeps the request and answers it.
func (c *contract) answer(w http.ResponseWriter, r *http.Request, operation *openapi3.Operation) {
	one := sent{operation: operation}
	for name := range r.URL.Query() {
		one.query = append(one.query, name)
	}
	if text, _ := io.ReadAll(r.Body); len(text) > 0 {
		_ = json.Unmarshal(text, &one.body)
	}
	c.mu.Lock()
	whole := len(c.sent) == 0
	c.sent = append(c.sent, one)
	c.mu.Unlock()
	status, schema := accepts(operation)
	if schema == nil {
		w.WriteHeader(status)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(example(schema, whole))
}

// accepts is the status by which the operation is accepted, and the schema of the answer;
// nil: it has no body.
func accepts(operation *openapi3.Operation) (int, *openapi3.Schema) {
	for _, status := range []int{200, 204, 202} { // 202 beside one of them is a proposal
		if answer := operation.Responses.Status(status); answer != nil {
			if media := answer.Value.Content["application/json"]; media != nil {
				return status, media.Schema.Value
			}
			return status, nil
		}
	}
	return 0, nil
}

// plain is the schema itself where it is one with others: of allOf the first, of anyOf the
// one that is not null, of oneOf all.
func plain(s *openapi3.Schema) *openapi3.Schema {
	if s.Type == nil && len(s.Properties) == 0 && len(s.OneOf) > 0 {
		return merged(s.OneOf)
	}
	for _, one := range slices.Concat(s.AllOf, s.AnyOf) {
		if s.Type == nil && len(s.Properties) == 0 && !one.Value.Type.Is("null") {
			return plain(one.Value)
		}
	}
	return s
}

// merged has the members of all forms. It requires those that each form requires. A member has the
// schema of the last form.
func merged(forms openapi3.SchemaRefs) *openapi3.Schema {
	all := &openapi3.Schema{Type: &openapi3.Types{"object"}, Properties: openapi3.Schemas{}}
	for i, form := range forms {
		one := plain(form.Value)
		required := slices.Concat(one.Required, form.Value.Required)
		if i == 0 {
			all.Required = required
		}
		all.Required = slices.DeleteFunc(all.Required, func(name string) bool { return !slices.Contains(required, name) })
		maps.Copy(all.Properties, one.Properties)
	}
	return all
}

// nullable is true if the schema allows null.
func nullable(s *openapi3.Schema) bool {
	return s.Type.Includes("null") || slices.ContainsFunc(s.AnyOf, func(one *openapi3.SchemaRef) bool { return one.Value.Type.Is("null") })
}

// isA is true if values of the schema are of the JSON type.
func isA(s *openapi3.Schema, name string) bool {
	s = plain(s)
	return s.Type.Includes(name) || s.Type == nil && name == "string" && len(s.Enum) > 0
}

// example is a value of the schema: with all members, or with those that are required.
func example(s *openapi3.Schema, whole bool) any {
	if !whole && nullable(s) {
		return nil
	}
	s = plain(s)
	switch {
	case isA(s, "object"):
		members := map[string]any{}
		for name, property := range s.Properties {
			if whole || slices.Contains(s.Required, name) {
				members[name] = example(property.Value, whole)
			}
		}
		return members
	case isA(s, "array") && whole:
		return []any{example(s.Items.Value, whole)}
	case isA(s, "array"):
		return []any{}
	case isA(s, "integer"):
		return 7
	case isA(s, "boolean"):
		return true
	case s.Format == "date-time":
		return "2026-01-02T15:04:05Z"
	case len(s.Enum) > 0:
		return s.Enum[0]
	}
	return "x"
}

// call calls the method with arguments that are all set, or all zero, and returns what it
// sent.
func (c *contract) call(t *testing.T, name string, set bool) []sent {
	t.Helper()
	made := check.Value(client.New(client.Options{URL: c.url, Token: func(context.Context) (string, error) { return "token", nil }}))(t)
	t.Cleanup(made.CloseIdle)
	c.mu.Lock()
	c.sent = nil
	c.mu.Unlock()
	method := reflect.ValueOf(made).MethodByName(name)
	arguments := []reflect.Value{reflect.ValueOf(t.Context())}
	for i := 1; i < method.Type().NumIn(); i++ {
		argument := reflect.New(method.Type().In(i)).Elem()
		// A path has no segment that is empty: texts of their own are always set.
		if set || argument.Kind() == reflect.String {
			fill(argument)
		}
		arguments = append(arguments, argument)
	}
	results := method.Call(arguments)
	last := results[len(results)-1]
	if last.Kind() == reflect.Func {
		for _, err := range last.Seq2() {
			if !err.IsNil() {
				t.Errorf("%s: got %v, want the document's example decoded", name, err)
			}
		}
	} else if !last.IsNil() {
		t.Errorf("%s: got %v, want the document's example decoded", name, last)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.sent)
}

// fill sets the value and all in it to something that is not zero.
func fill(v reflect.Value) {
	switch {
	case v.Type() == reflect.TypeFor[time.Time]():
		v.Set(reflect.ValueOf(time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)))
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i))
		}
	case v.Kind() == reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case v.Kind() == reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key)
		fill(value)
		v.SetMapIndex(key, value)
	case v.Kind() == reflect.String:
		v.SetString("7")
	case v.Kind() == reflect.Bool:
		v.SetBool(true)
	case v.CanInt():
		v.SetInt(7)
	case v.CanUint():
		v.SetUint(7)
	case v.Kind() == reflect.Interface:
		v.Set(reflect.ValueOf("x"))
	}
}

// Each operation of openapi.yaml that a caller, user or operator may call is sent by one
// method of the client, with the parameters and members that the document has.
func TestClientHasEveryOperation(t *testing.T) {
	t.Parallel()
	c := loadContract(t)
	if len(c.operations) < 30 {
		t.Fatalf("got %d operations, too few to be all", len(c.operations))
	}
	by := map[string][]string{}
	methods := reflect.TypeFor[*client.Client]()
	for i := range methods.NumMethod() {
		method := methods.Method(i)
		if slices.Contains(helpers, method.Name) {
			continue
		}
		full := c.call(t, method.Name, true)
		if len(full) == 0 {
			t.Errorf("%s: sent no request that openapi.yaml has", method.Name)
			continue
		}
		operation := full[0].operation
		by[operation.OperationID] = append(by[operation.OperationID], method.Name)
		checkRequests(t, method.Name, full, c.call(t, method.Name, false))
		checkResult(t, method.Name, operation, method.Type)
	}
	for id := range c.operations {
		if len(by[id]) != 1 {
			t.Errorf("%s: sent by the methods %v, want exactly one", id, by[id])
		}
	}
}

// checkRequests holds what a method sent with all arguments set, and with none, to its
// operation.
func checkRequests(t *testing.T, method string, full, zero []sent) {
	t.Helper()
	operation := full[0].operation
	var query, described []string
	for _, one := range full {
		query = append(query, one.query...)
	}
	for _, p := range operation.Parameters {
		if p.Value.In == "query" {
			described = append(described, p.Value.Name)
		}
	}
	slices.Sort(query)
	slices.Sort(described)
	if query = slices.Compact(query); !slices.Equal(query, described) {
		t.Errorf("%s: sends the parameters %v, want %v of %s", method, query, described, operation.OperationID)
	}
	if operation.RequestBody == nil || len(zero) == 0 {
		if full[0].body != nil || len(zero) == 0 {
			t.Errorf("%s: sends %v, and %v of zero arguments; want no body, and a request of each", method, full[0].body, zero)
		}
		return
	}
	schema := operation.RequestBody.Value.Content["application/json"].Schema.Value
	for _, wrong := range slices.Concat(bodyFaults(schema, full[0].body, true, ""), bodyFaults(schema, zero[0].body, false, "")) {
		t.Errorf("%s: %s", method, wrong)
	}
}

// bodyFaults lists the faults of a body. With all arguments set, all members are present. With
// zero arguments, the required members are present, and those with zero as a value.
func bodyFaults(s *openapi3.Schema, body any, set bool, at string) (faults []string) {
	s = plain(s)
	if body == nil {
		if set && s.Type != nil {
			return []string{at + ": got null"}
		}
		return nil
	}
	switch got := body.(type) {
	case map[string]any:
		if named := s.AdditionalProperties.Schema; named != nil {
			for _, value := range got {
				faults = append(faults, bodyFaults(named.Value, value, set, at+"/*")...)
			}
		}
		if len(s.Properties) == 0 {
			break // of no form, or by names that are no members
		}
		for name, value := range got {
			property := s.Properties[name]
			switch {
			case property == nil:
				faults = append(faults, fmt.Sprintf("sends %s/%s, which the document does not have", at, name))
			case !set && !slices.Contains(s.Required, name) && plain(property.Value).Type != nil && property.Value.VisitJSON(value) != nil:
				faults = append(faults, fmt.Sprintf("sends %s/%s %v where it was not given", at, name, value))
			default:
				faults = append(faults, bodyFaults(property.Value, value, set, at+"/"+name)...)
			}
		}
		for name := range s.Properties {
			if _, ok := got[name]; !ok && (set || slices.Contains(s.Required, name)) {
				faults = append(faults, fmt.Sprintf("does not send %s/%s", at, name))
			}
		}
	case []any:
		if !isA(s, "array") {
			return []string{fmt.Sprintf("%s: got a list, want %v", at, s.Type)}
		}
		for _, one := range got {
			if s.Items == nil {
				break // of any values
			}
			faults = append(faults, bodyFaults(s.Items.Value, one, set, at+"/[]")...)
		}
	default:
		name := map[reflect.Kind]string{reflect.String: "string", reflect.Bool: "boolean", reflect.Float64: "integer"}[reflect.TypeOf(body).Kind()]
		if s.Type != nil && !isA(s, name) {
			faults = append(faults, fmt.Sprintf("%s: got a %s, want %v", at, name, s.Type))
		}
	}
	return faults
}

// checkResult holds what the method returns to the operation's answer.
func checkResult(t *testing.T, method string, operation *openapi3.Operation, of reflect.Type) {
	t.Helper()
	_, schema := accepts(operation)
	result := of.Out(0)
	if result == reflect.TypeFor[error]() {
		if schema != nil {
			t.Errorf("%s: returns an error alone, and %s answers with a body", method, operation.OperationID)
		}
		return
	}
	if schema == nil {
		t.Errorf("%s: returns %s, and %s answers without a body", method, result, operation.OperationID)
		return
	}
	path := returned[operation.OperationID]
	switch result.Kind() {
	case reflect.Func: // iter.Seq2
		result = result.In(0).In(0)
		if path == nil {
			path = []string{listOf(schema), "[]"}
		}
	case reflect.Slice:
		path = []string{listOf(schema)}
	}
	for _, part := range path {
		if part == "[]" {
			schema = schema.Items.Value
		} else {
			schema = plain(schema).Properties[part].Value
		}
		schema = plain(schema)
	}
	for _, wrong := range typeFaults(schema, result, false, "") {
		t.Errorf("%s: %s", method, wrong)
	}
}

// listOf is the member that is a list.
func listOf(s *openapi3.Schema) string {
	for name, property := range plain(s).Properties {
		if isA(property.Value, "array") {
			return name
		}
	}
	return ""
}

// typeFaults lists where the type differs from the schema of an answer. The type must
// distinguish an optional or nullable member from a required one: by a pointer, or by a zero
// that is no value of the schema.
func typeFaults(s *openapi3.Schema, of reflect.Type, optional bool, at string) []string {
	optional = optional || nullable(s)
	s = plain(s)
	fail := func(want string) []string { return []string{fmt.Sprintf("%s: got %s, want %s", at, of, want)} }
	if of == reflect.TypeFor[json.RawMessage]() {
		return nil
	}
	if of.Kind() == reflect.Pointer {
		if !optional {
			return fail("no pointer: the document always has it")
		}
		return valueFaults(s, of.Elem(), at)
	}
	needsPointer := of.Kind() == reflect.Struct || of.Kind() == reflect.Bool ||
		(of.Kind() != reflect.String && isA(s, "integer") && (s.Min == nil || *s.Min < 1))
	if optional && needsPointer {
		return fail("a pointer: it may be missing or null")
	}
	return valueFaults(s, of, at)
}

// valueFaults says in what the type differs from the schema of a value that is there.
func valueFaults(s *openapi3.Schema, of reflect.Type, at string) []string {
	fail := func(want string) []string { return []string{fmt.Sprintf("%s: got %s, want %s", at, of, want)} }
	isTime := of == reflect.TypeFor[time.Time]()
	switch {
	case isTime:
		if s.Format != "date-time" {
			return fail("no time")
		}
	case of.Kind() == reflect.Struct:
		return membersFaults(s, of, at)
	case of.Kind() == reflect.Slice:
		if !isA(s, "array") {
			return fail("no list")
		}
		return typeFaults(s.Items.Value, of.Elem(), false, at+"/[]")
	case of.Kind() == reflect.Map:
		if !isA(s, "object") || s.AdditionalProperties.Schema == nil || of.Key().Kind() != reflect.String {
			return fail("no map")
		}
		return valueFaults(plain(s.AdditionalProperties.Schema.Value), of.Elem(), at+"/*")
	case of.Kind() == reflect.String && (!isA(s, "string") || s.Format == "date-time"):
		return fail("no text")
	case of.Kind() == reflect.Bool && !isA(s, "boolean"):
		return fail("no bool")
	case reflect.Zero(of).CanInt() || reflect.Zero(of).CanUint():
		if !isA(s, "integer") {
			return fail("no number")
		}
	case of.Kind() != reflect.String && of.Kind() != reflect.Bool:
		return fail("a text, a whole number, a bool, a time, a list, a map or a struct")
	}
	return nil
}

// membersFaults says in what the fields of a struct differ from the members of an object.
func membersFaults(s *openapi3.Schema, of reflect.Type, at string) (faults []string) {
	got := map[string]reflect.Type{}
	for _, f := range reflect.VisibleFields(of) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "-" && !f.Anonymous {
			got[name] = f.Type
		}
	}
	for name, property := range s.Properties {
		field := got[name]
		if field == nil {
			faults = append(faults, fmt.Sprintf("%s has no field for %s/%s", of, at, name))
			continue
		}
		faults = append(faults, typeFaults(property.Value, field, !slices.Contains(s.Required, name), at+"/"+name)...)
	}
	for name := range got {
		if s.Properties[name] == nil {
			faults = append(faults, fmt.Sprintf("%s has a field %q, which %s of the document does not have", of, name, at))
		}
	}
	return faults
}

// A payload that is all set has each member that the document has.
func TestPayloadHasEveryMember(t *testing.T) {
	t.Parallel()
	var in client.Payload
	fill(reflect.ValueOf(&in).Elem())
	for _, set := range []bool{true, false} {
		var body any
		check.OK(t)(json.Unmarshal(check.Value(json.Marshal(in))(t), &body))
		for _, wrong := range bodyFaults(loadContract(t).schemas["Payload"].Value, body, set, "") {
			t.Error(wrong)
		}
		in = client.Payload{}
	}
}
