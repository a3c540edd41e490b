package operation

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/fencepost/fencepost/functions/console/page"
	"github.com/fencepost/fencepost/shared/client"
)

// actNames are the names of acts, for the filter. The list of the API may have more.
var actNames = []string{
	"account-status", "address-remove", "addresses-block", "addresses-unblock", "adjust", "approve", "approved", "asset", "callers", "cancel", "database-accept",
	"deposit", "foreign-match", "foreign-write-off", "halt-resume", "payout-state", "payout-withdraw", "placeholder", "policy", "proceed", "propose", "rebroadcast",
	"register", "reject", "release", "replace", "resume", "retire", "signer", "suspend", "transfer-acknowledge", "transfer-cancel", "transfer-resolve", "update",
	"wait", "webhook-pause", "webhook-redeliver", "webhook-resume", "webhook-test", "withdrawal",
}

// auditPage is the page of the recorded acts.
type auditPage struct {
	Names  []string
	Error  string // a filter is wrong
	Acts   []client.Act
	Next   string // the path of the next page; "": this is the last
	Export string // the path of the export with the same filters
}

// queryOf reads the filters of the address.
func queryOf(q url.Values) (client.ActQuery, error) {
	since, err := page.Since(q.Get("since"))
	return client.ActQuery{Who: strings.TrimSpace(q.Get("who")), Act: strings.TrimSpace(q.Get("act")), Subject: strings.TrimSpace(q.Get("subject")), Since: since}, err
}

// readActs reads one page of the acts. A part of an act that was not kept is empty.
func readActs(ctx context.Context, admin *client.Client, query client.ActQuery, one *client.Page) ([]client.Act, error) {
	rows, err := page.ReadRows(admin.ListActs(client.WithPage(ctx, one), query))
	for i := range rows {
		for _, part := range []*json.RawMessage{&rows[i].Before, &rows[i].After} {
			if string(*part) == "null" {
				*part = nil
			}
		}
	}
	return rows, err
}

// listActs lists the recorded acts of operators, the newest first, 100 a page. It makes 1 call.
func listActs(ctx context.Context, call page.Call) (page.View, error) {
	q := call.URL.Query()
	filters := map[string]string{"who": q.Get("who"), "act": q.Get("act"), "subject": q.Get("subject"), "since": q.Get("since")}
	p := &auditPage{Names: actNames, Export: page.FilterPath("/console/audit.csv", filters)}
	v := page.View{Title: "Audit", Body: "operation/audit", Data: p}
	query, err := queryOf(q)
	if err != nil {
		p.Error = page.WhyUnread(err)
		return v, nil
	}
	one := client.Page{Token: q.Get("pageToken")}
	p.Acts, err = readActs(ctx, call.Admin, query, &one)
	if client.CodeOf(err) == "INVALID_FIELD" {
		p.Error, err = page.WhyUnread(err), nil
	}
	p.Next = page.NextPath("/console/audit", one.Next, filters)
	return v, err
}

// Bounds of an export.
const (
	exportRows  = 1000 // of one call
	exportPages = 100

	exportWithin = 55 * time.Second // all calls: Cloud Run ends a request of the console after 60 s
)

// exportColumns are the columns of an export.
var exportColumns = []string{"at", "by", "act", "subjectKind", "subject", "submitter", "reason", "approvedBy", "proposalId", "before", "after"}

// exportActs streams the acts that the filters of the page Audit select as CSV, page by page. It makes up to 100 calls of
// 1,000 acts. The first call is made before the answer begins, so that a refusal is drawn as a page. A file that is not
// complete ends with a line that begins with INCOMPLETE and says why.
func exportActs(ctx context.Context, call page.Call) (page.View, error) {
	query, err := queryOf(call.URL.Query())
	if err != nil {
		return page.View{}, err
	}
	query.PageSize = exportRows
	var first client.Page
	rows, err := readActs(ctx, call.Admin, query, &first)
	if err != nil {
		return page.View{}, err
	}
	return page.View{Write: func(w http.ResponseWriter) {
		h := w.Header()
		h.Set("Content-Type", "text/csv; charset=utf-8")
		h.Set("Content-Disposition", `attachment; filename="fencepost-audit-`+time.Now().UTC().Format("20060102T150405Z")+`.csv"`)
		h.Set("Cache-Control", "no-store")
		h.Set("X-Content-Type-Options", "nosniff")
		export(ctx, w, call.Admin, query, rows, first.Next)
	}}, nil
}

// export writes the page of acts, and those from the token next on; "": there are none.
func export(ctx context.Context, w http.ResponseWriter, admin *client.Client, query client.ActQuery, rows []client.Act, next string) {
	out := csv.NewWriter(w)
	out.UseCRLF = true
	_ = out.Write(exportColumns) // the browser may have left: Flush and Error say so
	for n := 1; ; n++ {
		for _, a := range rows {
			_ = out.Write(cellsOf(a))
		}
		out.Flush()
		_ = http.NewResponseController(w).Flush() // a writer without it sends at the end
		switch {
		case out.Error() != nil || next == "":
			return
		case n == exportPages:
			incomplete(out, fmt.Sprintf("this export has at most %d acts; export the older ones by other filters", exportPages*exportRows))
			return
		}
		one := client.Page{Token: next}
		var err error
		if rows, err = readActs(ctx, admin, query, &one); err != nil {
			incomplete(out, "the API refused or did not answer: "+page.WhyUnread(err)+"; export again")
			return
		}
		next = one.Next
	}
}

// incomplete writes the last line of a file that lacks acts.
func incomplete(out *csv.Writer, why string) {
	_ = out.Write([]string{"INCOMPLETE", why})
	out.Flush()
}

// cellsOf are the cells of an act's line.
func cellsOf(a client.Act) []string {
	cells := []string{
		a.At.UTC().Format(time.RFC3339Nano), a.By, a.Act, a.Subject.Kind, a.Subject.ID, a.Subject.Submitter, orEmpty(a.Reason), orEmpty(a.ApprovedBy), orEmpty(a.ProposalID),
		string(a.Before), string(a.After),
	}
	for i, c := range cells {
		cells[i] = protect(c)
	}
	return cells
}

func orEmpty(text *string) string {
	if text == nil {
		return ""
	}
	return *text
}

// protect puts an apostrophe before a text that a spreadsheet would take for a formula. A spreadsheet that splits lines by
// another separator can also take a part of the text for one. Spreadsheets skip spaces and quotes before a formula, and also
// know the full-width forms.
func protect(cell string) string {
	if beginsFormula.MatchString(cell) || splitsToFormula.MatchString(cell) {
		return "'" + cell
	}
	return cell
}

var (
	beginsFormula   = regexp.MustCompile(`^[ \x{a0}\x{3000}]*[=+\-@\t\r\n|%＝＋－＠]`)
	splitsToFormula = regexp.MustCompile(`[;\t\r\n][ "'\x{a0}\x{3000}]*[=+\-@＝＋－＠]`)
)
