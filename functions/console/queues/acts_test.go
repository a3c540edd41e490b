package queues_test

import (
	"context"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/fencepost/fencepost/functions/console/consoletest"
	"github.com/fencepost/fencepost/functions/console/queues"
	"github.com/fencepost/fencepost/shared/client"
)

// After a refusal, and after an act that used the whole time of the request, the form shows the state of now. A form that
// was not sent makes no second call.
func TestARefusedActShowsTheStateOfNow(t *testing.T) {
	t.Parallel()
	const shop = "eip155:1:0x00000000000000000000000000000000000abcde"
	const path = "/console/submitters/" + shop + "/suspend"
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
