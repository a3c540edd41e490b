package functions_test

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/functions/console/incidents"
	"github.com/fencepost/fencepost/functions/console/money"
	"github.com/fencepost/fencepost/functions/console/operation"
	"github.com/fencepost/fencepost/functions/console/page"
	"github.com/fencepost/fencepost/functions/console/queues"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/client"
)

// statementsOf are the statements that each read of admin makes which a page of the console calls. Each is planned beside
// as many rows as a large deployment has: by the golden plan of package store, or the test of a package below it.
var statementsOf = map[string][]string{
	"GET /admin/v1/overview":                          {"stateCounts", "oldestTx", "lastMinutes", "attentionCounts"},
	"GET /admin/v1/attention":                         {"attentionPage"},
	"GET /admin/v1/chains":                            {}, // it asks the nodes
	"GET /admin/v1/conservation":                      {"conservation/checkedAt", "conservation/standing", "transfers/countHalts", "transfers/openHalts"},
	"GET /admin/v1/submitters":                        {"listSubmitters", "listSubmittersActive", "listSubmittersNotActive", "listSubmittersProtect", "listSubmittersByName"},
	"GET /admin/v1/submitters/{submitter}":            {"viewSubmitter"},
	"GET /admin/v1/submitters/{submitter}/lane":       {"laneBounds", "laneNonces"},
	"GET /admin/v1/submitters/{submitter}/queue":      {"queuePage"},
	"GET /admin/v1/submitters/{submitter}/changes":    {"viewSubmitter", "listChanges"},
	"GET /admin/v1/submitters/{submitter}/incidents":  {"viewSubmitter", "listIncidents"},
	"GET /admin/v1/submitters/{submitter}/policy/use": {"viewSubmitter", "policyUse", "policyScopes"},
	"GET /admin/v1/submitters/{submitter}/lost":       {"viewSubmitter", "openRequests", "foreignTransactions", "foreignReading", "ownVersions", "matchingIntents", "moreIntents"},
	"GET /admin/v1/submitters/{submitter}/foreign":    {"viewSubmitter", "openHolds"},
	"GET /admin/v1/tx":                                {"findNewest", "findClass", "findCause", "findCauseOf", "findRequest", "findNonce", "findHash", "findCallers", "listAll"},
	"GET /admin/v1/tx/{txId}":                         {"record", "explainWait", "txOrder"},
	"GET /admin/v1/tx/{txId}/why":                     {"record", "explainWait", "blockedHeads"},
	"GET /admin/v1/tx/{txId}/history":                 {"txHistory"},
	"GET /admin/v1/tx/{txId}/versions":                {"txVersions"},
	"GET /admin/v1/tx/{txId}/decisions":               {"txDecisions"},
	"GET /admin/v1/proposals":                         {"listProposals", "listOpenProposals"},
	"GET /admin/v1/proposals/{proposalId}":            {"oneProposal"},
	"GET /admin/v1/audit":                             {"acts_01_submitter", "acts_02_submitter_change", "acts_03_tx_decision", "acts_16_proposal"}, // all: TestPlansOfOperatorActs
	"GET /admin/v1/webhook-endpoints":                 {"events/countLateQueues", "events/countLateEvents", "events/oldestLate", "events/endpointState", "events/lastTest"},
	"GET /admin/v1/transfers":                         {"transfers/allWanted", "transfers/openWanted", "transfers/failedWanted", "transfers/endedWanted", "transfers/olderWanted", "transfers/userWanted", "transfers/usersOpenWanted"},
	"GET /admin/v1/transfers/{req_id}/why":            {"transfers/history", "transfers/resolutions", "transfers/acknowledgements", "transfers/byReqID"},
}

// consolePages are the console's pages that read, each at an address with all that the page can show, and its calls of
// admin with the number of each.
func consolePages(tx, proposal, transfer string) map[string]struct {
	path  string
	calls map[string]int
} {
	at, of := page.Path("submitter", shopAccount), page.Path("tx", tx)
	const one = "GET /admin/v1/submitters/{submitter}"
	submitter := map[string]int{one: 1}
	oneTx := map[string]int{"GET /admin/v1/tx/{txId}": 1, "GET /admin/v1/tx/{txId}/why": 1, "GET /admin/v1/tx/{txId}/history": 1, "GET /admin/v1/tx/{txId}/versions": 1, "GET /admin/v1/tx/{txId}/decisions": 1}
	foreign := map[string]int{one + "/foreign": 1}
	proposed := map[string]int{"GET /admin/v1/proposals/{proposalId}": 1}
	why, conservation := map[string]int{"GET /admin/v1/transfers/{req_id}/why": 1}, map[string]int{"GET /admin/v1/conservation": 1}
	endpoints := map[string]int{"GET /admin/v1/webhook-endpoints": 1}
	return map[string]struct {
		path  string
		calls map[string]int
	}{
		"/console/{$}":                    {"/console/", map[string]int{"GET /admin/v1/overview": 1, "GET /admin/v1/attention": 1, "GET /admin/v1/conservation": 1, "GET /admin/v1/chains": 1}},
		"/console/attention":              {"/console/attention", map[string]int{"GET /admin/v1/attention": 1}},
		"/console/submitters":             {"/console/submitters", map[string]int{"GET /admin/v1/submitters": 1, "GET /admin/v1/attention": 1, one: 1}},
		"/console/search":                 {"/console/search?q=" + tx, map[string]int{"GET /admin/v1/tx/{txId}": 1, "GET /admin/v1/proposals/{proposalId}": 1, "GET /admin/v1/tx": 1}},
		"/console/submitters/{submitter}": {at, map[string]int{one: 1, one + "/lane": 1, one + "/queue": 1, one + "/changes": 1, one + "/policy/use": 1}},

		"/console/submitters/{submitter}/suspend":           {at + "/suspend", submitter},
		"/console/submitters/{submitter}/resume":            {at + "/resume", submitter},
		"/console/submitters/{submitter}/edit":              {at + "/edit", submitter},
		"/console/submitters/{submitter}/policy":            {at + "/policy", map[string]int{one: 1, one + "/policy/use": 1}},
		"/console/submitters/{submitter}/callers":           {at + "/callers", submitter},
		"/console/submitters/{submitter}/signer":            {at + "/signer", submitter},
		"/console/submitters/{submitter}/retire":            {at + "/retire", submitter},
		"/console/submitters/{submitter}/protect":           {at + "/protect", map[string]int{one: 1, one + "/lost": 1, one + "/incidents": 1}},
		"/console/submitters/{submitter}/protect/release":   {at + "/protect/release?mode=resync", map[string]int{one: 1, one + "/lost": 1}},
		"/console/submitters/{submitter}/foreign":           {at + "/foreign", foreign},
		"/console/submitters/{submitter}/foreign/match":     {at + "/foreign/match?nonce=1", foreign},
		"/console/submitters/{submitter}/foreign/write-off": {at + "/foreign/write-off?nonce=1&through=true", foreign},

		"/console/tx/{txId}":         {of, oneTx},
		"/console/tx/{txId}/decide":  {of + "/decide", oneTx},
		"/console/tx/{txId}/cancel":  {of + "/cancel", oneTx},
		"/console/tx/{txId}/proceed": {of + "/proceed", oneTx},

		"/console/proposals":              {"/console/proposals", map[string]int{"GET /admin/v1/proposals": 1}},
		"/console/proposals/{id}":         {page.Path("proposal", proposal), proposed},
		"/console/proposals/{id}/approve": {page.Path("proposal", proposal) + "/approve", proposed},
		"/console/proposals/{id}/reject":  {page.Path("proposal", proposal) + "/reject", proposed},

		"/console/transfers":            {"/console/transfers", map[string]int{"GET /admin/v1/transfers": 1}},
		"/console/transfers/{id}":       {page.Path("transfer", transfer), map[string]int{"GET /admin/v1/transfers/{req_id}/why": 1}},
		"/console/transfers/{id}/{act}": {page.Path("transfer", transfer) + "/acknowledge", why},

		"/console/conservation":                      {"/console/conservation", conservation},
		"/console/conservation/check":                {"/console/conservation/check", conservation},
		"/console/conservation/findings/{id}/adjust": {"/console/conservation/findings/1/adjust", conservation},
		"/console/conservation/halts/{id}/resume":    {"/console/conservation/halts/1/resume", conservation},

		"/console/webhooks":                  {"/console/webhooks", endpoints},
		"/console/webhooks/{endpoint}/{act}": {"/console/webhooks/shop/test", endpoints},
		"/console/chains":                    {"/console/chains", map[string]int{"GET /admin/v1/chains": 1}},
		"/console/audit":                     {"/console/audit", map[string]int{"GET /admin/v1/audit": 1}},
		"/console/audit.csv":                 {"/console/audit.csv", map[string]int{"GET /admin/v1/audit": 1}},
	}
}

// Each page that reads makes the calls of admin that the table says and no other. A test holds the plan of each statement
// behind them beside many rows.
func TestConsolePagesMakeBoundedReads(t *testing.T) {
	t.Parallel()
	h, c := listed(t)
	sections := []page.Section{queues.Section(queues.Links{}), incidents.Section(), money.Section(), operation.Section(nil)}
	p := h.console(sections...)
	tx := check.Value(collect(c.FindTxs(t.Context(), client.TxFilter{RequestID: "r4"}), func(x client.FoundTx) string { return x.TxID }))(t)
	const transfer = "01ARZ3NDEKTSV4RRFFQ69G5FAV" // there is none: the page of one would also read its payout or the halts
	table := consolePages(tx, "0197c0de-0000-7000-8000-000000000000", transfer)
	var served []string
	for _, s := range sections {
		for _, route := range s.Routes {
			if method, path, _ := strings.Cut(route.Pattern, " "); method == http.MethodGet {
				served = append(served, path)
			}
		}
	}
	slices.Sort(served)
	check.Same(t, "pages in the table", slices.Sorted(maps.Keys(table)), served)
	for pattern, one := range table {
		w, made := p.Get(one.path)
		calls := map[string]int{}
		for _, call := range made {
			calls[patternOf(call.Operation, maps.Keys(statementsOf))]++
		}
		check.Same(t, fmt.Sprintf("%s, status %d: calls of admin", pattern, w.Code), calls, one.calls)
		for call := range one.calls {
			if _, ok := statementsOf[call]; !ok {
				t.Errorf("%s: statementsOf lacks %s", pattern, call)
			}
		}
	}
	for call, statements := range statementsOf {
		for _, name := range statements {
			if !isPlanned(t, name) {
				t.Errorf("%s: no test holds a plan of the statement %s", call, name)
			}
		}
	}
}

// isPlanned reports whether the statement has a golden plan, or its package's test of plans names it.
func isPlanned(t *testing.T, statement string) bool {
	t.Helper()
	folder, name := "../shared/store", statement
	if sub, rest, ok := strings.Cut(statement, "/"); ok {
		folder, name = filepath.Join(folder, sub), rest
	}
	if plan, err := os.ReadFile(filepath.Join(folder, "testdata", "plans", name+".txt")); err == nil && strings.HasPrefix(string(plan), "Postgres 17\n") {
		return true // one of another version is compared by no test
	}
	text, err := os.ReadFile(filepath.Join(folder, "plans_test.go"))
	return err == nil && strings.Contains(string(text), `"`+name+`"`)
}
