package functions_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/webhook"
)

// receiver is a webhook receiver of a partner. It accepts only requests that its secret has signed.
type receiver struct {
	*httptest.Server
	t      *testing.T
	secret webhook.Key
	mu     sync.Mutex
	status int
	answer string
	got    []string // ids, in order
}

func startReceiver(t *testing.T, secret string) *receiver {
	t.Helper()
	r := &receiver{t: t, secret: check.Value(webhook.ParseKey(secret))(t), status: http.StatusNoContent}
	r.Server = httptest.NewServer(r)
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, _ := io.ReadAll(req.Body)
	id, err := webhook.Verify(req.Header, time.Now(), body, r.secret)
	if err != nil || !json.Valid(body) || req.URL.Path != "/hooks/T0PSECRETSECRET" {
		r.t.Errorf("%s: got %s, %v; want it signed", req.URL, body, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.got = append(r.got, id)
	w.WriteHeader(r.status)
	_, _ = io.WriteString(w, r.answer)
}

func (r *receiver) set(status int, answer string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status, r.answer = status, answer
}

func (r *receiver) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	got := r.got
	r.got = nil
	return got
}

// endpointSettings configure the receiver with two secrets, of which it has the second, and an endpoint that is down.
func endpointSettings(r *receiver, secret string) []string {
	return []string{
		"FENCEPOST_EVENTS_MODE=webhook", "FENCEPOST_EVENTS_WEBHOOK_URLS=shop=" + r.URL + "/hooks/T0PSECRETSECRET, down=http://127.0.0.1:1/",
		"FENCEPOST_EVENTS_WEBHOOK_SECRETS=shop=" + hookSecret + ",shop=" + secret + ",down=" + hookSecret,
		"FENCEPOST_EVENTS_WEBHOOK_CALLERS=shop=email:shop@fencepost.example",
	}
}

// An operator sees the state of each endpoint and never a secret, tests one, pauses and resumes it without losing an
// event, and has events delivered again in their order. Each act needs a reason and is on record.
func TestOperatorWorksOnWebhookEndpoints(t *testing.T) {
	t.Parallel()
	secret := "whsec_" + strings.Repeat("REVG", 8)
	shop := startReceiver(t, secret)
	h := buildWithShop(t, endpointSettings(shop, secret)...)
	const path = "/admin/v1/webhook-endpoints"
	create := func(names ...string) (ids []string) {
		for _, name := range names {
			ids = append(ids, h.createTx(name)+"-TxAccepted-1")
		}
		return ids
	}
	deliver := func() {
		check.OK(t)(h.DB.Exec(t.Context(), `update event_delivery_queue set next_attempt_at = clock_timestamp()`))
		h.as("tasks", "POST", "/internal/publish", members{"submitter": shopAccount, "endpoint": "shop"}).wants(t, 204, "publish")
	}
	endpoint := func(name string) string {
		t.Helper()
		a := h.as("ann", "GET", path, nil)
		a.wants(t, 200, "list")
		text := string(check.Value(json.Marshal(a.body))(t))
		if strings.Contains(text, "whsec") || strings.Contains(text, "T0PSECRET") || strings.Contains(text, strings.Repeat("REVG", 8)) {
			t.Errorf("list: got a secret in %s", text)
		}
		for _, one := range a.body["endpoints"].([]any) {
			if one.(map[string]any)["name"] == name {
				return string(check.Value(json.Marshal(one))(t))
			}
		}
		t.Fatalf("%s: got %s, want it listed", name, text)
		return ""
	}
	host := strings.TrimPrefix(shop.URL, "http://")
	says(t, "before a call", endpoint("shop"), `"kind":"webhook"`, `"host":"`+host+`"`, `"path":"/hooks/T0PS…"`, `"callers":["email:shop@fencepost.example"]`,
		`"backlog":{"events":0,"more":false,"submitters":0}`, `"lastAnswer":null`, `"secrets":null`, `"paused":null`, `"lastTest":null`)

	first := create("a", "b")
	deliver()
	if got := shop.take(); !slices.Equal(got, first) {
		t.Fatalf("delivered: got %v, want %v", got, first)
	}
	prints := []string{check.Value(webhook.ParseKey(hookSecret))(t).Fingerprint(), check.Value(webhook.ParseKey(secret))(t).Fingerprint()}
	says(t, "after a call", endpoint("shop"), `"status":204`, `"secrets":{"count":2,"fingerprints":["`+strings.Join(prints, `","`)+`"]}`)
	shop.set(503, "the shop is closed\x00"+strings.Repeat("x", 1000))
	second := create("c", "d")
	deliver()
	shop.take()
	late := endpoint("shop")
	says(t, "refused", late, `"attempts":1`, `"lastError":"it answered 503`, `"status":503`, `"text":"the shop is closed`, `"backlog":{"events":2,"more":false,"submitters":1}`, `"unansweredCalls":1`)
	if len(late) > 1500 {
		t.Errorf("refused: got %d bytes, want a bounded part of the answer: %s", len(late), late)
	}

	reason := members{"reason": "the shop moves"}
	h.as("ann", "POST", path+"/shop/pause", reason).wants(t, 200, "pause")
	shop.set(200, "")
	deliver()
	if got := shop.take(); len(got) != 0 {
		t.Errorf("while it is paused: got %v, want nothing", got)
	}
	says(t, "paused", endpoint("shop"), `"paused":{"by":"email:ann@fencepost.example","reason":"the shop moves","since":"`, `"events":2`)
	attention := h.as("ann", "GET", "/admin/v1/attention", nil)
	attention.wants(t, 200, "attention")
	says(t, "attention", string(check.Value(json.Marshal(attention.body))(t)), `"detail":"the shop moves","kind":"PAUSED","overdue":true`, `"endpoint":"shop"`, `"runbook":"docs/runbooks/events-late.md"`, `"why":"An operator has paused`)

	tested := make(chan answer)
	go func() { tested <- h.as("ann", "POST", path+"/shop/test", reason) }()
	await(t, "the test has its task", func() bool { return h.cloud.task("-t-2") != nil })
	var task members
	check.OK(t)(json.Unmarshal(h.cloud.task("-t-2").GetHttpRequest().GetBody(), &task))
	shop.set(418, "no coffee")
	for range 2 { // the task is delivered twice
		h.as("tasks", "POST", "/internal/publish", task).wants(t, 204, "the task of the test")
	}
	a := <-tested
	says(t, "tested", fmt.Sprint(a.status, a.body), "200", "accepted:false", "status:418", "text:no coffee")
	if got := shop.take(); !slices.Equal(got, []string{"test-2-EndpointTest-1"}) {
		t.Errorf("test: got %v, want it once, although it is paused", got)
	}
	says(t, "tested", endpoint("shop"), `"lastTest":{"answer":{"at":"`, `"text":"no coffee"`)

	shop.set(200, "")
	h.as("ann", "POST", path+"/shop/resume", members{"reason": "it has moved"}).wants(t, 200, "resume")
	deliver()
	if got := shop.take(); !slices.Equal(got, second) {
		t.Errorf("resumed: got %v, want what waited: %v", got, second)
	}
	before := len(h.cloud.about(`"shop"`))
	again := h.as("ann", "POST", path+"/shop/redeliver", members{"after": "1", "submitter": nil, "reason": "the shop lost its day"})
	check.Equal(t, "redeliver", again.is("endpoint", "after", "submitters"), "200 shop 1 1")
	if got := len(h.cloud.about(`"shop"`)); got < before {
		t.Errorf("tasks: got %d, want one more than %d", got, before)
	}
	deliver()
	if got, want := shop.take(), append(first[1:], second...); !slices.Equal(got, want) {
		t.Errorf("delivered again: got %v, want %v", got, want)
	}
	check.Equal(t, "another submitter", h.as("ann", "POST", path+"/shop/redeliver", members{"after": "0", "submitter": payer, "reason": "r"}).is("submitters"), "200 0")
	check.Equal(t, "acts", h.one(`select string_agg(action || ' ' || by || ' ' || reason, '; ' order by id) from webhook_act`),
		"PAUSE email:ann@fencepost.example the shop moves; TEST email:ann@fencepost.example the shop moves; RESUME email:ann@fencepost.example it has moved; "+
			"REDELIVER email:ann@fencepost.example the shop lost its day; REDELIVER email:ann@fencepost.example r")
	for call, want := range map[string]string{
		"shop/redeliver {}":                                  "400 INVALID_FIELD reason",
		`shop/redeliver {"reason":"r"}`:                      "400 INVALID_FIELD after",
		`shop/redeliver {"reason":"r","after":"07"}`:         "400 INVALID_FIELD after",
		`shop/redeliver {"reason":"r","after":"99"}`:         "400 INVALID_FIELD after",
		`shop/redeliver {"reason":"r","after":"1","url":""}`: "400 UNSUPPORTED_FIELD url",
		"shop/pause {}":                                      "400 INVALID_FIELD reason",
		"shop/resume {}":                                     "400 INVALID_FIELD reason",
		"shop/test {}":                                       "400 INVALID_FIELD reason",
		`gone/pause {"reason":"r"}`:                          "404 NOT_FOUND <nil>",
		`gone/test {"reason":"r"}`:                           "404 NOT_FOUND <nil>",
	} {
		name, body, _ := strings.Cut(call, " ")
		check.Equal(t, call, h.as("ann", "POST", path+"/"+name, body).is("code", "field"), want)
	}
	h.run(`update database_identity set timeline_id = timeline_id + 1`)
	check.Equal(t, "in a restored database", h.as("ann", "POST", path+"/shop/redeliver", members{"after": "1", "reason": "r"}).is("code"), "409 TOO_LATE")
	h.run(`update database_identity set timeline_id = timeline_id - 1`)
	h.run(`update event_counter set forgotten = 2`)
	check.Equal(t, "deleted events", h.as("ann", "POST", path+"/shop/redeliver", members{"after": "1", "reason": "r"}).is("code", "field"), "400 INVALID_FIELD after")
}

// A redelivery and the end of a pause need two operators, where approvals.required names webhooks. They are carried out
// only while no operator has paused the endpoint or ended a pause since.
func TestTwoOperatorsResumeAndRedeliver(t *testing.T) {
	t.Parallel()
	shop := startReceiver(t, hookSecret)
	h := buildWithShop(t, append(ruleFor("webhooks"), endpointSettings(shop, hookSecret)...)...)
	h.createTx("a")
	h.as("tasks", "POST", "/internal/publish", members{"submitter": shopAccount, "endpoint": "shop"}).wants(t, 204, "publish")
	const path = "/admin/v1/webhook-endpoints/shop"
	redeliver := members{"after": "0", "reason": "r"}
	stale, _ := h.propose("POST", path+"/redeliver", redeliver)
	h.ann("POST", path+"/resume", members{"reason": "r"}).wants(t, 200, "resume what is not paused")
	h.ann("POST", path+"/pause", members{"reason": "r"}).wants(t, 200, "pause, by one")
	check.Equal(t, "paused since", h.ben("POST", stale+"/approve", agreed).is("code"), "409 PROPOSAL_STALE")
	resumed, _ := h.propose("POST", path+"/resume", members{"reason": "r"})
	check.Equal(t, "proposed", h.one(`select paused_at is not null from event_endpoint where endpoint = 'shop'`), "true")
	check.Equal(t, "resumed", h.ben("POST", resumed+"/approve", agreed).is("status"), "200 CARRIED_OUT")
	again, _ := h.propose("POST", path+"/redeliver", redeliver)
	check.Equal(t, "proposed", h.one(`select delivered from event_delivery_queue where endpoint = 'shop'`), "1")
	check.Equal(t, "redelivered", h.ben("POST", again+"/approve", agreed).is("status"), "200 CARRIED_OUT")
	check.Equal(t, "redelivered", h.one(`select delivered from event_delivery_queue where endpoint = 'shop'`), "0")
	h.run(`update database_identity set timeline_id = timeline_id + 1`)
	for _, act := range []string{"pause", "resume", "test"} {
		check.Equal(t, act+" in a restored database", h.ann("POST", path+"/"+act, members{"reason": "r"}).is("code"), "409 TOO_LATE")
	}
	check.Equal(t, "on record", h.one(`select string_agg(action || ' ' || by || ' ' || coalesce(approved_by, ''), '; ' order by id) from webhook_act`),
		"PAUSE sub:ann-at-work ; RESUME sub:ann-at-work email:ben@fencepost.example; REDELIVER sub:ann-at-work email:ben@fencepost.example")
}
