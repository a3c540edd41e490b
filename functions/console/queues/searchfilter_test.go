package queues_test

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/functions/console/consoletest"
	"github.com/fencepost/fencepost/functions/console/queues"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/client"
	"github.com/fencepost/fencepost/shared/txmanager"
)

const (
	searchedAccount = "eip155:1:0x00000000000000000000000000000000000abcde"
	attack          = `"><script>alert(1)</script>`
)

// filtered serves the page Search. The API answers with one transaction and a further page.
func filtered(t *testing.T) (c *consoletest.Console, sent func() url.Values) {
	t.Helper()
	row := client.FoundTx{ListedTx: client.ListedTx{TxID: "0192a000-0000-7000-8000-000000000001", RequestID: attack, State: client.Queued, CreatedAt: time.Now()}, Caller: "email:shop@fencepost.example"}
	var last url.Values
	c = consoletest.New(t, queues.Section(queues.Links{}), consoletest.Answers{"GET /admin/v1/tx": func(call consoletest.Call) any {
		last = call.Query
		return map[string]any{"transactions": []client.FoundTx{row}, "nextPageToken": "later"}
	}})
	return c, func() url.Values { return last }
}

// A list by submitter, state, caller and time is one call, also where one transaction fits. Its form and the next page's
// address keep the fields.
func TestSearchByStateCallerAndTime(t *testing.T) {
	t.Parallel()
	c, sent := filtered(t)
	of := url.QueryEscape(searchedAccount)
	c.Shows("/console/search?submitter="+of+"&state=QUEUED&caller=email%3Ashop%40fencepost.example&since=2026-11-27T03:00", 1,
		"/console/tx/0192a000-0000-7000-8000-000000000001", "&lt;script&gt;", `value="`+searchedAccount+`"`, "<option selected>QUEUED", `value="email:shop@fencepost.example"`,
		`value="2026-11-27T03:00:00" type="datetime-local"`,
		"/console/search?caller=email%3Ashop%40fencepost.example&amp;pageToken=later&amp;since=2026-11-27T03%3A00%3A00&amp;state=QUEUED&amp;submitter="+of)
	check.Equal(t, "the query", sent().Encode(), "caller=email%3Ashop%40fencepost.example&pageSize=50&since=2026-11-27T03%3A00%3A00Z&state=QUEUED&submitter="+of)
	c.Shows("/console/search?submitter=&state=&caller=&since=&pageToken=here", 1, `"/console/search?pageToken=later"`)
	check.Equal(t, "with empty fields", sent().Encode(), "pageSize=50&pageToken=here")
	c.Shows("/console/search?pageToken=later", 1)
	check.Equal(t, "without fields", sent().Encode(), "pageSize=50&pageToken=later")
	c.Shows("/console/search?state=STUCK&since=2026-11-27T05:00:00%2B02:00", 1, `value="2026-11-27T03:00:00"`)
	check.Equal(t, "without a submitter", sent().Encode(), "pageSize=50&since=2026-11-27T03%3A00%3A00Z&state=STUCK")
	for _, state := range txmanager.States() {
		c.Shows("/console/search?submitter="+of+"&state="+string(state), 1, "<option selected>"+string(state)+"</option>")
	}
}

// A wrong field is named, the form keeps the entered texts, and what no index finds is not asked for.
func TestSearchRefusesWhatNoIndexFinds(t *testing.T) {
	t.Parallel()
	c, _ := filtered(t)
	for query, texts := range map[string][]string{
		"state=QUEUED":                          {"over all submitters only STUCK, PROTECT and FAILED", "<option selected>QUEUED"},
		"caller=email:shop@fencepost.example":   {"Give the submitter too", `value="email:shop@fencepost.example"`},
		"since=yesterday&state=STUCK":           {"Give a date and time in UTC", `value="yesterday" type="text" aria-invalid="true"`, "<option selected>STUCK"},
		"since=1969-12-31T23:59":                {"from 1970 on", `value="1969-12-31T23:59"`},
		"since=0001-01-01T00:00":                {"from 1970 on"},
		"state=NONE":                            {"No transaction can have this state"},
		"caller=a%00b&submitter=x":              {"control characters"},
		"submitter=" + strings.Repeat("x", 301): {"more than 300 bytes"},
		"caller=" + url.QueryEscape(attack):     {"&lt;script&gt;"},
	} {
		c.Shows("/console/search?"+query, 0, append(texts, `role="alert"`)...)
	}
	refusing := consoletest.New(t, queues.Section(queues.Links{}), consoletest.Answers{"GET /admin/v1/tx": &client.Problem{Status: 400, Code: "INVALID_FIELD", Field: "submitter", Detail: "is not an account"}})
	refusing.Shows("/console/search?submitter=nobody&caller=ann", 1, `role="alert" data-field="problem">submitter is not an account<`, `value="nobody"`, `value="ann"`)
}
