// Package runbooks lists the API calls that the pages of docs/runbooks name, and the test that runs
// each of them.
package runbooks

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/fencepost/fencepost/shared/web/webtest"
)

// Call is one call of the API that a page names.
type Call struct {
	Operation string   // "POST /admin/v1/halts/{id}/resume"; or, short for one that the API has, "POST …/foreign/match"
	Bodies    []string // the JSON objects on the page after this call and before the next call with a body
}

var (
	fenced = regexp.MustCompile("(?s)```.*?```")
	quoted = regexp.MustCompile("`([^`]+)`")
	named  = regexp.MustCompile(`^(GET|POST|PUT|PATCH|DELETE) (/(?:admin|api)/v1/[^?…\s]*|…/\S+)`)
)

// Pages returns the texts of the pages in the folder, by file name, without the list of all pages.
func Pages(folder string) (map[string]string, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.md"))
	if err != nil || len(files) < 3 {
		return nil, fmt.Errorf("pages in %s: got %d, %w", folder, len(files), err)
	}
	pages := make(map[string]string)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		pages[filepath.Base(file)] = string(text)
	}
	delete(pages, "README.md")
	return pages, nil
}

// Calls returns the page's calls in order. A JSON object belongs to the last call before it that is not
// a GET.
func Calls(page string) (all []Call) {
	last := -1
	for _, m := range quoted.FindAllStringSubmatch(fenced.ReplaceAllString(page, ""), -1) {
		said := strings.Join(strings.Fields(m[1]), " ")
		if call := named.FindStringSubmatch(said); call != nil {
			if call[1] != "GET" {
				last = len(all)
			}
			all = append(all, Call{Operation: call[1] + " " + call[2]})
		} else if strings.HasPrefix(said, "{") && strings.HasSuffix(said, "}") && strings.Contains(said, `"`) && last >= 0 {
			all[last].Bodies = append(all[last].Bodies, said)
		}
	}
	return all
}

// Test is a test function, and the folder of its package.
type Test struct{ Folder, Name string }

// RunBy is the test to read for each operation on a page.
var RunBy = map[string]Test{
	"GET /api/v1/events":              {acceptance, "TestEventsByWebhook"},
	"GET /api/v1/tx/{txId}":           {acceptance, "TestTX004SecondWaitsForTheFirst"},
	"POST /admin/v1/tx/{txId}/cancel": {functions, "TestOperatorCancelsByAdmin"},
	"POST /admin/v1/tx/{txId}/decide": {acceptance, "TestStuckIsReplacedByDecision"},

	"GET /admin/v1/proposals":                       {functions, "TestProposalsEnd"},
	"POST /admin/v1/proposals/{proposalId}/approve": {functions, "TestTwoOperatorsDecide"},
	"POST /admin/v1/proposals/{proposalId}/reject":  {functions, "TestProposalsEnd"},

	"GET /admin/v1/audit":                                   {functions, "TestOperatorReadsTheAudit"},
	"GET /admin/v1/overview":                                {functions, "TestOperatorSeesTheOverview"},
	"GET /admin/v1/submitters/{submitter}/lane":             {functions, "TestOperatorSeesLaneAndQueue"},
	"GET /admin/v1/transfers":                               {functions, "TestOperatorListsAllTransfers"},
	"GET /admin/v1/webhook-endpoints":                       {functions, "TestOperatorWorksOnWebhookEndpoints"},
	"POST /admin/v1/webhook-endpoints/{endpoint}/redeliver": {functions, "TestOperatorWorksOnWebhookEndpoints"},
	"POST /admin/v1/webhook-endpoints/{endpoint}/resume":    {functions, "TestOperatorWorksOnWebhookEndpoints"},
	"POST /admin/v1/webhook-endpoints/{endpoint}/test":      {functions, "TestOperatorWorksOnWebhookEndpoints"},
	"GET /admin/v1/accounts":                                {functions, "TestDepositsAreBookedOnce"},
	"GET /admin/v1/accounts/{user}/{asset}":                 {functions, "TestDepositsAreBookedOnce"},
	"POST /admin/v1/accounts/{user}/{asset}/deposits":       {functions, "TestDepositsAreBookedOnce"},
	"POST /admin/v1/accounts/{user}/{asset}/withdrawals":    {functions, "TestDepositsAreBookedOnce"},
	"POST /admin/v1/accounts/{user}/{asset}/status":         {functions, "TestStatusInBothLedgers"},

	"POST /admin/v1/database/accept":                          {acceptance, "TestRestoreHoldsWhatMayHaveRunOrWasCancelled"},
	"POST /admin/v1/database/release-untouched":               {acceptance, "TestPlannedMoveReleasesTheUntouched"},
	"POST /admin/v1/tx/{txId}/proceed":                        {acceptance, "TestRestoreHoldsWhatMayHaveRunOrWasCancelled"},
	"POST /admin/v1/submitters/{submitter}/foreign/match":     {acceptance, "TestRestoreHoldsWhatMayHaveRunOrWasCancelled"},
	"GET /admin/v1/submitters/{submitter}/foreign":            {functions, "TestForeignTransactionsOverHTTP"},
	"POST /admin/v1/submitters/{submitter}/foreign/write-off": {functions, "TestForeignTransactionsOverHTTP"},
	"POST /admin/v1/submitters/{submitter}/proceed":           {functions, "TestHeldAfterARestore"},
	"POST /admin/v1/submitters/{submitter}/queue/cancel":      {attacks, "TestRunbookOfAStolenCredential"},
	"GET /admin/v1/submitters":                                {functions, "TestSubmitterIsRetired"},
	"GET /admin/v1/submitters/{submitter}":                    {functions, "TestHeldAfterARestore"},
	"GET /admin/v1/submitters/{submitter}/changes":            {functions, "TestSubmitterIsUpdated"},
	"GET /admin/v1/submitters/{submitter}/incidents":          {functions, "TestOperatorSeesIncidents"},
	"GET /admin/v1/submitters/{submitter}/lost":               {acceptance, "TestH09ForeignTransactionThatDoesTheSame"},
	"POST /admin/v1/submitters/{submitter}/release":           {acceptance, "TestH06ResumeGoesOn"},
	"PATCH /admin/v1/submitters/{submitter}":                  {functions, "TestSubmitterIsUpdated"},
	"PUT /admin/v1/submitters/{submitter}/policy":             {acceptance, "TestPolicyOverHTTP"},
	"PUT /admin/v1/submitters/{submitter}/callers":            {attacks, "TestRunbookOfAStolenCredential"},
	"POST /admin/v1/submitters/{submitter}/suspend":           {attacks, "TestRunbookOfAStolenCredential"},
	"POST /admin/v1/submitters/{submitter}/resume":            {attacks, "TestRunbookOfAStolenCredential"},

	"GET /admin/v1/tx/{txId}":                                             {functions, "TestOperatorInspectsATransaction"},
	"GET /admin/v1/tx/{txId}/why":                                         {functions, "TestOperatorSeesWhyATransactionWaits"},
	"GET /admin/v1/tx/{txId}/history":                                     {functions, "TestOperatorSeesWhyATransactionWaits"},
	"GET /admin/v1/tx/{txId}/versions":                                    {functions, "TestOperatorSeesWhyATransactionWaits"},
	"GET /admin/v1/tx/{txId}/decisions":                                   {functions, "TestOperatorSeesWhyATransactionWaits"},
	"GET /admin/v1/tx":                                                    {"functions", "TestOperatorFindsTransactions"},
	"GET /admin/v1/submitters/{submitter}/queue":                          {"functions", "TestOperatorSeesLaneAndQueue"},
	"GET /admin/v1/attention":                                             {"functions", "TestOperatorSeesWhatNeedsAttention"},
	"GET /admin/v1/chains":                                                {"functions", "TestAChainWithoutAnAnswerIsShown"},
	"GET /admin/v1/transfers/{req_id}/why":                                {transfers, "TestFND002VanishingFunds"},
	"GET /admin/v1/users/{user_id}/payout_addresses":                      {functions, "TestClientOfPayoutAddresses"},
	"POST /admin/v1/users/{user_id}/payout_addresses/{address_id}/remove": {functions, "TestClientOfPayoutAddresses"},
	"POST /admin/v1/users/{user_id}/payout_addresses/block":               {functions, "TestClientOfPayoutAddresses"},
	"POST /admin/v1/users/{user_id}/payout_addresses/unblock":             {functions, "TestClientOfPayoutAddresses"},

	"POST /admin/v1/transfers/{req_id}/resolve":                   {transfers, "TestForgottenEndsByAProvedWord"},
	"POST /admin/v1/transfers/{req_id}/cancel":                    {functions, "TestCancel"},
	"POST /admin/v1/transfers/{req_id}/acknowledge":               {functions, "TestAnOperatorAcknowledges"},
	"POST /admin/v1/transfers/{req_id}/payout-statement":          {functions, "TestStatementsAboutPayouts"},
	"POST /admin/v1/transfers/{req_id}/payout-statement/withdraw": {functions, "TestStatementsAboutPayouts"},

	"GET /admin/v1/conservation":                       {transfers, "TestMON003ConservationBroken"},
	"POST /admin/v1/conservation/check":                {transfers, "TestMON003ConservationBroken"},
	"POST /admin/v1/conservation/findings/{id}/adjust": {transfers, "TestAnAccountOfTheCoreIsAdjusted"},
	"POST /admin/v1/halts/{id}/resume":                 {transfers, "TestMON003ConservationBroken"},
}

const (
	acceptance = "emulator/acceptance"
	attacks    = "emulator/acceptance/attacks"
	transfers  = "emulator/acceptance/transfers"
	functions  = "functions"
)

// Unproven returns an error for the operations of which no request was accepted in this process,
// although their test is in the folder. It checks only after all tests of the package have run: not if
// a flag has selected some.
func Unproven(folder string) error {
	for _, name := range []string{"test.run", "test.skip", "test.list"} {
		if f := flag.Lookup(name); f != nil && f.Value.String() != "" {
			return nil
		}
	}
	for _, operation := range slices.Sorted(maps.Keys(RunBy)) {
		if test := RunBy[operation]; test.Folder == folder && !webtest.Accepted(operation) {
			return fmt.Errorf("a runbook names %s, which %s should run: no request for it was accepted", operation, test.Name)
		}
	}
	return nil
}
