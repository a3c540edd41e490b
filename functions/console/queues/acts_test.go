package queues_test

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/fencepost/fencepost/functions/console/consoletest"
	"github.com/fencepost/fencepost/functions/console/queues"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/client"
)

// After a refusal, and after an act that used the whole time of the request, the form shows the state of now. A form that
// was not sent makes no second call.
func TestARefusedActShowsTheStateOfNow(t *testing.T) {
	t.Parallel()
	const path = console + "/suspend"
	var acted atomic.Bool
	refused := &client.Problem{Status: 409, Code: "TOO_LATE", Title: "Conflict", Detail: "another was faster"}
	answers := consoletest.Answers{
		"GET /admin/v1/submitters/" + shop: func(consoletest.Call) any {
			if acted.Load() {
				return client.Submitter{Submitter: shop, Status: "SUSPENDED"}
			}
			return client.Submitter{Submitter: shop, Status: "ACTIVE"}
		},
		"POST /admin/v1/submitters/" + shop + "/suspend": func(consoletest.Call) any {
			acted.Store(true)
			return refused
		},
	}
	c := consoletest.New(t, queues.Section(queues.Links{}), answers)
	reason := url.Values{"reason": {"an audit"}}
	c.Refuses(path, url.Values{"reason": {" "}}, 400, 1, "ACTIVE")
	c.Refuses(path, reason, 409, 3, "another was faster", "SUSPENDED", "an audit")

	acted.Store(false)
	ctx, cancel := context.WithCancel(t.Context())
	answers["POST /admin/v1/submitters/"+shop+"/suspend"] = func(consoletest.Call) any {
		acted.Store(true)
		cancel() // as at the deadline of the act
		return refused
	}
	c.Context = ctx
	w, _ := c.Post(path, reason)
	if text := w.Body.String(); w.Code < 400 || !strings.Contains(text, "SUSPENDED") || !strings.Contains(text, "an audit") {
		t.Errorf("after the end of the time: got %d, want the form with the state of now\n%s", w.Code, text)
	}
}

const (
	shop    = "eip155:1:0x00000000000000000000000000000000000abcde"
	api     = "/admin/v1/submitters/" + shop
	console = "/console/submitters/" + shop
)

// settable has the answers about a submitter with a policy, and of the acts that set it, its callers and its signer.
func settable() consoletest.Answers {
	s := client.Submitter{
		Submitter: shop, Status: "ACTIVE", Signer: "local", MaxInFlight: 3, Callers: []string{"email:old@shop.example", "handler:shop"},
		Policy: &client.Policy{MaxPerMinute: 7, Targets: []string{"deploy"}}, Succeeded: []client.Succession{{Caller: "email:older@shop.example", By: "email:old@shop.example"}},
	}
	return consoletest.Answers{
		"GET " + api: s, "GET " + api + "/policy/use": client.PolicyUse{IntentsInMinute: 5, ValueInDay: "0"},
		"PUT " + api + "/policy": s, "PUT " + api + "/callers": s, "POST " + api + "/signer": s,
		"GET " + api + "/lane": map[string]any{}, "GET " + api + "/queue": map[string]any{}, "GET " + api + "/changes": map[string]any{},
	}
}

// The page has the links to its acts for an operator, and not for a viewer.
func TestOnlyOperatorsSeeTheActs(t *testing.T) {
	t.Parallel()
	c := consoletest.New(t, queues.Section(queues.Links{}), settable())
	acts := []string{"/suspend", "/edit", "/policy", "/callers", "/signer", "/retire"}
	for _, act := range acts {
		c.Shows(console, 5, `href="`+console+act+`"`)
	}
	c.Viewer = true
	for _, act := range acts {
		c.Lacks(console, nil, console+act)
	}
}

// A policy is set as the form has it. A text that is no policy, or would be sent as another, is kept and not sent.
func TestPolicyIsSetFromTheForm(t *testing.T) {
	t.Parallel()
	a := settable()
	c := consoletest.New(t, queues.Section(queues.Links{}), a)
	const path = console + "/policy"
	c.Shows(path, 2, "The present policy", "5 of 7", `<label for="policy">`, "&#34;maxPerMinute&#34;: 7,", "&#34;deploy&#34;")
	for text, want := range map[string]string{
		"":                                       "The policy is empty",
		"{\n\"maxPerMinute\": 9,\n}":             "line 3: invalid character",
		`{"maxPerMinute": 9} {}`:                 "The policy is not JSON: line 1",
		`{"maxPerMinute": 9`:                     "unexpected end",
		`[]`:                                     "want an object",
		`null`:                                   "want an object",
		`{"maxPerMin": 9}`:                       "maxPerMin: there is no such field",
		`{"MaxPerMinute": 9}`:                    "MaxPerMinute: there is no such field",
		`{"maxValue": 9}`:                        "maxValue: got the number 9; want a string",
		`{"maxPerMinute": 9, "targets": []}`:     "has an empty member",
		`{"maxPerMinute": 0}`:                    "has an empty member",
		`{"perCaller": {"*": {"maxQueued": 0}}}`: "has an empty member",
		`{"maxPerMinute": 9, "maxPerMinute": 900}`: "occurs twice",
	} {
		w, made := c.Post(path, url.Values{"reason": {"a limit"}, "policy": {text}})
		kept := strings.NewReplacer(`"`, "&#34;").Replace(text) + "</textarea>"
		if body := w.Body.String(); w.Code != 400 || len(made) != 2 || !strings.Contains(body, want) || !strings.Contains(body, kept) || !strings.Contains(body, "a limit</textarea>") {
			t.Errorf("the policy %q: got %d with the calls %+v, want 400 with %q and the text kept\n%s", text, w.Code, made, want, body)
		}
	}
	form := url.Values{"reason": {"a limit"}, "policy": {"{\r\n\"maxPerMinute\": 9, \"maxGas\": 21000, \"perCaller\": {\"*\": {\"maxQueued\": 2}}\r\n}"}}
	check.Equal(t, "the body", fmt.Sprint(c.Does(path, form, 3, console).Body), "map[maxGas:21000 maxPerMinute:9 perCaller:map[*:map[maxQueued:2]] reason:a limit]")
	check.Equal(t, "no limits", fmt.Sprint(c.Does(path, url.Values{"reason": {"a limit"}, "policy": {"{}"}}, 3, console).Body), "map[reason:a limit]")
	a["PUT "+api+"/policy"] = consoletest.Proposed{ProposalID: "p1"}
	c.Does(path, form, 3, "/console/proposals/p1")
	a["PUT "+api+"/policy"] = &client.Problem{Status: 400, Code: "INVALID_FIELD", Title: "Invalid", Field: "maxGas", Detail: "is 21000: want more"}
	c.Refuses(path, form, 400, 5, "is 21000: want more", "&#34;maxGas&#34;: 21000")
}

// The callers and who succeeds whom are set as the form has them, one a line.
func TestCallersAreSetFromTheForm(t *testing.T) {
	t.Parallel()
	a := settable()
	c := consoletest.New(t, queues.Section(queues.Links{}), a)
	const path, lines = console + "/callers", " sub:1=2 \r\n\r\nhandler:shop\r\n"
	c.Shows(path, 1, `<label for="callers">`, "email:old@shop.example\nhandler:shop</textarea>", `<label for="succeeds">`, "email:older@shop.example</code>, succeeded by")
	c.Refuses(path, url.Values{"reason": {"r"}, "callers": {" \n"}}, 400, 1, "Name at least one caller")
	c.Refuses(path, url.Values{"reason": {"r"}, "callers": {lines}, "succeeds": {"sub:1"}}, 400, 1, "as NEW=OLD", "handler:shop\r\n</textarea>", "sub:1</textarea>")
	c.Refuses(path, url.Values{"reason": {"r"}, "callers": {lines}, "succeeds": {"sub:1=sub:2\nsub:1=sub:3"}}, 400, 1, "name sub:1 twice")
	check.Equal(t, "the body", fmt.Sprint(c.Does(path, url.Values{"reason": {"stolen"}, "callers": {lines}}, 2, console).Body), "map[callers:[sub:1=2 handler:shop] reason:stolen]")
	form := url.Values{"reason": {"stolen"}, "callers": {"sub:1"}, "succeeds": {"sub:1 = email:old@shop.example\r\n"}}
	check.Equal(t, "the body", fmt.Sprint(c.Does(path, form, 2, console).Body), "map[callers:[sub:1] reason:stolen succeeds:map[sub:1:email:old@shop.example]]")
	a["PUT "+api+"/callers"] = consoletest.Proposed{ProposalID: "p1"}
	c.Does(path, form, 2, "/console/proposals/p1")
	a["PUT "+api+"/callers"] = &client.Problem{Status: 409, Code: "CALLERS_CONFLICT", Title: "Conflict", Detail: "it was succeeded before"}
	c.Refuses(path, form, 409, 3, "it was succeeded before", "sub:1 = email:old@shop.example")
}

// The signer is changed to the one of the form.
func TestSignerIsChangedFromTheForm(t *testing.T) {
	t.Parallel()
	a := settable()
	c := consoletest.New(t, queues.Section(queues.Links{}), a)
	const path = console + "/signer"
	c.Shows(path, 1, `<label for="signer">`, `value="local"`)
	c.Refuses(path, url.Values{"reason": {"r"}, "signer": {" "}}, 400, 1, "Name the signer")
	form := url.Values{"reason": {"moved"}, "signer": {" remote:treasury "}}
	check.Equal(t, "the body", fmt.Sprint(c.Does(path, form, 2, console).Body), "map[reason:moved signer:remote:treasury]")
	a["POST "+api+"/signer"] = consoletest.Proposed{ProposalID: "p1"}
	c.Does(path, form, 2, "/console/proposals/p1")
	a["POST "+api+"/signer"] = &client.Problem{Status: 400, Code: "INVALID_FIELD", Title: "Invalid", Field: "signer", Detail: "cannot sign for the account"}
	c.Refuses(path, form, 400, 3, "cannot sign for the account", `value=" remote:treasury "`)
}
