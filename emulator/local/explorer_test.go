package local

import (
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/shared/check"
)

// The explorer shows each operation and schema of the document once, with a curl command, and runs no script.
func TestExplorerShowsTheDocument(t *testing.T) {
	t.Parallel()
	document, err := os.ReadFile("../../functions/openapi.yaml")
	check.OK(t)(err)
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(document) }))
	t.Cleanup(api.Close)
	drawn, err := drawExplorer(t.Context(), api.URL)
	check.OK(t)(err)
	page := string(drawn)
	operations := regexp.MustCompile(`(?m)^      operationId: (\w+)$`).FindAllStringSubmatch(string(document), -1)
	if len(operations) < 30 {
		t.Fatalf("operations of the document: got %d, too few to be all", len(operations))
	}
	for _, o := range operations {
		check.Equal(t, "places of "+o[1], strings.Count(page, `<details id="`+o[1]+`">`), 1)
	}
	check.Equal(t, "curl commands", strings.Count(page, "<pre>curl -sS -X "), len(operations))
	for _, link := range regexp.MustCompile(`href="#([^"]+)"`).FindAllStringSubmatch(page, -1) {
		if !strings.Contains(page, `id="`+link[1]+`"`) {
			t.Errorf("a link to %s leads nowhere", link[1])
		}
	}
	for _, want := range []string{
		`curl -sS -X POST &#34;$API/api/v1/tx&#34; -H &#34;Authorization: Bearer $TOKEN&#34;`, `&#34;requestId&#34;:`, `<code>nextPageToken</code>`,
		`curl -sS -X GET &#34;$API/admin/v1/submitters/$SUBMITTER&#34; -H &#34;Authorization: Bearer $OPERATOR_TOKEN&#34;`,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page has no %s", want)
		}
	}
	if strings.Contains(page, "<script") || !strings.Contains(page, "<style>"+explorerStyle+"</style>") {
		t.Error("want no script, and exactly the style whose hash the policy has")
	}
}
