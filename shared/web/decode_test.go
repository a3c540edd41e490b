package web_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/web"
	"github.com/google/go-cmp/cmp"
)

type payload struct {
	To    *string `json:"to"`
	Value string  `json:"value"`
	Gas   uint64  `json:"gas"`
}

type named struct {
	RequestID string `json:"requestId"`
}

type intent struct {
	named
	Submitter string          `json:"submitter"`
	Payload   payload         `json:"payload"`
	Items     []payload       `json:"items,omitempty"`
	Raw       json.RawMessage `json:"raw,omitempty"`
	Dry       bool            `json:"dry"`
	Labels    map[string]int8 `json:"labels"`
	Hidden    string          `json:"-"`
}

const limit = 1 << 12

func decode(text string) (intent, error) {
	r := httptest.NewRequest("POST", "/", strings.NewReader(text))
	r.Header.Set("Content-Type", "application/json; charset=utf-8")
	return web.Decode[intent](httptest.NewRecorder(), r, limit)
}

func TestDecodeTakesOneWellFormedValue(t *testing.T) {
	t.Parallel()
	got := check.Value(decode(` {"requestId":"r \ud83d\ude00 \\ud800","payload":{"to":null,"value":"1","gas":7},
		"items":[{"value":"2"},{"gas":18446744073709551615}],"raw":{"any":[{"x":1}]},"labels":{"a":-128}} `))(t)
	want := intent{
		named: named{"r 😀 \\ud800"}, Payload: payload{Value: "1", Gas: 7},
		Items: []payload{{Value: "2"}, {Gas: 18446744073709551615}},
		Raw:   json.RawMessage(`{"any":[{"x":1}]}`), Labels: map[string]int8{"a": -128},
	}
	check.Same(t, "value", got, want, cmp.AllowUnexported(intent{}))
}

func TestDecodeRefusesWithCodeAndField(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, text, code, field string }{
		{"empty", "  ", "INVALID_JSON", ""},
		{"syntax", `{"dry":}`, "INVALID_JSON", ""},
		{"cut off", `{"dry":true`, "INVALID_JSON", ""},
		{"trailing value", `{} {}`, "INVALID_JSON", ""},
		{"trailing text", `{}x`, "INVALID_JSON", ""},
		{"not UTF-8", "{\"requestId\":\"\xff\"}", "INVALID_JSON", ""},
		{"lone high surrogate", `{"requestId":"\ud800"}`, "INVALID_JSON", ""},
		{"lone low surrogate", `{"requestId":"\udc00\ud800"}`, "INVALID_JSON", ""},
		{"high surrogate then a letter", `{"requestId":"\ud800\u0041"}`, "INVALID_JSON", ""},
		{"array for the whole", `[]`, "INVALID_JSON", ""},
		{"null for the whole", `null`, "INVALID_JSON", ""},
		{"too deep", `{"raw":` + strings.Repeat("[", 70) + strings.Repeat("]", 70) + `}`, "INVALID_JSON", ""},
		{"too long", `{"requestId":"` + strings.Repeat("x", limit) + `"}`, "BODY_TOO_LARGE", ""},
		{"unknown", `{"nonce":1}`, "UNSUPPORTED_FIELD", "nonce"},
		{"unknown below", `{"payload":{"valeu":"1"}}`, "UNSUPPORTED_FIELD", "payload.valeu"},
		{"unknown in a list", `{"items":[{},{"x":{}}]}`, "UNSUPPORTED_FIELD", "items[1].x"},
		{"hidden", `{"Hidden":"x"}`, "UNSUPPORTED_FIELD", "Hidden"},
		{"other letter case", `{"REQUESTID":"x"}`, "UNSUPPORTED_FIELD", "REQUESTID"},
		{"twice", `{"dry":true,"dry":false}`, "INVALID_FIELD", "dry"},
		{"twice, escaped", `{"dry":true,"d\u0072y":false}`, "INVALID_FIELD", "dry"},
		{"twice below", `{"payload":{"value":"1","value":"2"}}`, "INVALID_FIELD", "payload.value"},
		{"twice in raw", `{"raw":{"a":[{"b":1,"b":2}]}}`, "INVALID_FIELD", "raw.a[0].b"},
		{"number for a string", `{"payload":{"value":1}}`, "INVALID_FIELD", "payload.value"},
		{"string for a number", `{"payload":{"gas":"1"}}`, "INVALID_FIELD", "payload.gas"},
		{"fraction", `{"payload":{"gas":1.5}}`, "INVALID_FIELD", "payload.gas"},
		{"negative", `{"payload":{"gas":-1}}`, "INVALID_FIELD", "payload.gas"},
		{"overflow", `{"labels":{"a":128}}`, "INVALID_FIELD", "labels.a"},
		{"null", `{"payload":{"value":null}}`, "INVALID_FIELD", "payload.value"},
		{"object for a string", `{"submitter":{}}`, "INVALID_FIELD", "submitter"},
		{"list for an object", `{"payload":[]}`, "INVALID_FIELD", "payload"},
		{"object for a list", `{"items":{}}`, "INVALID_FIELD", "items"},
		{"string for an object", `{"payload":"x"}`, "INVALID_FIELD", "payload"},
		{"string for a flag", `{"dry":"true"}`, "INVALID_FIELD", "dry"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got, err := decode(tc.text)
			if p, ok := errors.AsType[*web.Problem](err); !ok || p.Code.Name != tc.code || p.Field != tc.field {
				t.Errorf("got %+v, %v, want %s %q", got, err, tc.code, tc.field)
			}
		})
	}
}

// The path of a field is made for an error alone: made for each value, it would be about 900 MB for this body.
func TestDecodeIsLinearBesideALongName(t *testing.T) { // not parallel: it counts what the process allocates
	text := `{"raw":{"` + strings.Repeat("x", 30_000) + `":[` + strings.Repeat("1,", 15_000) + `1]}}`
	r := httptest.NewRequest("POST", "/", strings.NewReader(text))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	check.OK(t)(web.Decode[intent](httptest.NewRecorder(), r, 1<<20))
	runtime.ReadMemStats(&after)
	if got := (after.TotalAlloc - before.TotalAlloc) >> 20; got > 50 {
		t.Errorf("allocated for a body of %d bytes: got %d MB, want less than 50", len(text), got)
	}
}

func TestDecodeWantsJSONAsContentType(t *testing.T) {
	t.Parallel()
	for contentType, ok := range map[string]bool{
		"": true, "application/json": true, "Application/JSON": true, "text/plain": false, "application/jsonx": false, ";": false,
	} {
		r := httptest.NewRequest("POST", "/", strings.NewReader(`{}`))
		r.Header.Set("Content-Type", contentType)
		_, err := web.Decode[intent](httptest.NewRecorder(), r, limit)
		check.Equal(t, fmt.Sprintf("Content-Type %q: accepted", contentType), err == nil, ok)
	}
}

// FuzzDecode compares Decode with encoding/json: the strict standard decoder accepts what Decode
// accepts, with the same result. For any input Decode returns a value or a 4xx problem.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		`{"requestId":"r","payload":{"to":"0x","value":"1","gas":7},"items":[{}],"raw":{"a":[1,null]},"labels":{"x":1}}`,
		`{"raw":1,"raw":2}`, `{"requestId":"\ud83d\ude00"}`, `[`, `{"payload":{"to":null}}`, "\xff", `{"a":1}{`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := decode(text)
		if err != nil {
			if p, ok := errors.AsType[*web.Problem](err); !ok || p.Code.Status >= 500 || p.Detail == "" || len(p.Field) > 256 {
				t.Fatalf("got %#v, want a problem of the 4xx kind with a detail", err)
			}
			return
		}
		var want intent
		dec := json.NewDecoder(bytes.NewReader([]byte(text)))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&want); err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("%q: got %+v, want %+v as encoding/json (%v)", text, got, want, err)
		}
	})
}

// Two notations of a number would be one key of a map, and the first entry would be lost silently.
func TestKeysThatAreNumbersHaveOneSpelling(t *testing.T) {
	t.Parallel()
	type names struct {
		Requests map[uint64]string `json:"requests"`
	}
	got, err := web.DecodeText[names]([]byte(`{"requests": {"0": "a", "18446744073709551615": "b"}}`))
	if err != nil || got.Requests[0] != "a" || len(got.Requests) != 2 {
		t.Errorf("two keys: got %v, %v", got, err)
	}
	for _, key := range []string{"00", "01", "+1", "-0", " 1", "1.0", "1e3", "0x1", "", "18446744073709551616"} {
		_, err := web.DecodeText[names]([]byte(`{"requests": {"0": "a", "` + key + `": "b"}}`))
		if p, ok := errors.AsType[*web.Problem](err); !ok || p.Code != web.InvalidField || !strings.HasPrefix(p.Field, "requests.") {
			t.Errorf("the key %q: got %v, want INVALID_FIELD of requests", key, err)
		}
	}
}
