// Package catalogue explains every error code of the API. A problem's "type" is the path of the code's page.
// docs/errors.md is generated from the same table.
package catalogue

import (
	"bytes"
	"fmt"
	"html/template"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/fencepost/fencepost/shared/web"
)

// Repeat tells what the same request gets if it is sent again as it is.
type Repeat string

// The kinds of repeats.
const (
	Safe  Repeat = "yes"   // after Retry-After, if the answer has it. A POST keeps its requestId, cid or id, so it has one effect; see [WithoutCID]
	Later Repeat = "later" // another answer once the cause is gone; until then the same
	Never Repeat = "no"    // the same answer for ever, or as long as the request or the state it is about stays the same
)

// Entry is one error code.
type Entry struct {
	Code   string
	Status []int  // the HTTP statuses with which it is answered
	Cause  string // a sentence
	Action string // what the caller does: a sentence
	Repeat Repeat
}

// Entries has each code that an answer can have as its code, sorted by code.
var Entries = slices.SortedFunc(slices.Values(slices.Concat(general, transactions, operators, transfers, failures)),
	func(a, b Entry) int { return strings.Compare(a.Code, b.Code) })

// Statuses returns the HTTP statuses as text, such as "400, 422".
func (e Entry) Statuses() string {
	all := make([]string, len(e.Status))
	for i, s := range e.Status {
		all[i] = strconv.Itoa(s)
	}
	return strings.Join(all, ", ")
}

// WithoutCID is what a repeat of a transfer or payout needs to be safe.
const WithoutCID = "A transfer or payout that was sent without a cid must not be sent again: ask for its req_id, or read your list, first."

// Meaning returns what Repeat means, as a sentence.
func (r Repeat) Meaning() string {
	switch r {
	case Safe:
		return "Yes. Wait for Retry-After if the answer has it, and keep the requestId, cid or id: the repeat has no second effect. " + WithoutCID
	case Later:
		return "Once the cause is gone. Until then the answer stays the same."
	}
	return "No. The same request gets the same answer."
}

// markup is the page of a code for browsers. It needs no style and no script.
var markup = template.Must(template.New("").Parse(`<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{{.Code}}</title></head>
<body>
<h1>{{.Code}}</h1>
<dl>
<dt>HTTP status</dt><dd>{{.Statuses}}</dd>
<dt>Cause</dt><dd>{{.Cause}}</dd>
<dt>What to do</dt><dd>{{.Action}}</dd>
<dt>May the same request be sent again?</dt><dd>{{.Repeat.Meaning}}</dd>
</dl>
</body>
</html>
`))

// page is a code's page in both forms.
type page struct{ html, text web.Static }

// pages are made once: their number and size do not depend on requests.
var pages = render()

func render() map[string]page {
	all := make(map[string]page, len(Entries))
	for _, e := range Entries {
		var html bytes.Buffer
		if err := markup.Execute(&html, e); err != nil {
			panic(err) // a defect of the template, which the package's tests find
		}
		text := fmt.Sprintf("%s\n\nHTTP status: %s\nCause: %s\nWhat to do: %s\nMay the same request be sent again? %s\n", e.Code, e.Statuses(), e.Cause, e.Action, e.Repeat.Meaning())
		all[e.Code] = page{web.NewStatic("text/html; charset=utf-8", html.Bytes()), web.NewStatic("text/plain; charset=utf-8", []byte(text))}
	}
	return all
}

// Route serves the page of each code, without a token: as HTML where the header Accept has text/html, as text
// otherwise.
func Route(mux *web.Mux) {
	mux.HandleFunc("GET "+web.TypePath+"{code}", func(w http.ResponseWriter, r *http.Request) {
		found, ok := pages[r.PathValue("code")]
		if !ok {
			web.Fail(w, r, web.NewProblem(web.NotFound, "there is no such error code: docs/errors.md lists all"))
			return
		}
		w.Header().Set("Vary", "Accept")
		w.Header().Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
		if strings.Contains(r.Header.Get("Accept"), "text/html") {
			found.html.ServeHTTP(w, r)
			return
		}
		found.text.ServeHTTP(w, r)
	})
}
