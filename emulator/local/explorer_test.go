package local

import (
	"crypto/sha256"
	"fmt"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/fencepost/fencepost/shared/check"
)

// The explorer's document has a curl command for each operation, and the API's URL in place of the page's.
func TestExplorerHasACommandForEachOperation(t *testing.T) {
	t.Parallel()
	whole := string(check.Value(os.ReadFile("../../functions/openapi.yaml"))(t))
	text := check.Value(addCommands(whole, "http://127.0.0.1:8080"))(t)
	document := check.Value(openapi3.NewLoader().LoadFromData([]byte(text)))(t)
	commands := 0
	for path, item := range document.Paths.Map() {
		for method, o := range item.Operations() {
			samples := fmt.Sprint(o.Extensions["x-codeSamples"])
			if !strings.Contains(samples, "curl -sS -X "+method+` "$API/`) {
				t.Errorf("%s %s: got the samples %s, want its command", method, path, samples)
			}
			commands++
		}
	}
	if commands < 30 {
		t.Errorf("operations: got %d, too few to be all", commands)
	}
	check.Equal(t, "the API's URL", document.Servers[0].URL, "http://127.0.0.1:8080")
	for _, want := range []string{
		`curl -sS -X POST \"$API/api/v1/tx\" \\\n  -H \"Authorization: Bearer $TOKEN\"`, `\"requestId\":`,
		`curl -sS -X GET \"$API/admin/v1/submitters/$SUBMITTER\" \\\n  -H \"Authorization: Bearer $OPERATOR_TOKEN\"`, pasteFirst,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the document has no %s", want)
		}
	}
	if _, err := addCommands(strings.Replace(whole, "      operationId: createTx", "      operationId:  createTx", 1), ""); err == nil {
		t.Error("an operation without a command: got no error")
	}
}

// Redoc is npm's file, in the version that the comment of redocFiles names. What is served asks no other host.
func TestRedocIsTheOneOfNPM(t *testing.T) {
	t.Parallel()
	text := check.Value(redocFiles.ReadFile("redoc/redoc.standalone.js"))(t)
	check.Equal(t, "SHA-256", fmt.Sprintf("%x", sha256.Sum256(text)), "dcaf76612bc4a3fbcc923a8966dee2f6146a5f32e5ce1b6f02dd60cbbf89500b")
	check.Equal(t, "the other host in it", strings.Count(string(text), redocLogo), 1)
	check.Equal(t, "the other host in what is served", strings.Count(string(redocScript), "redoc.ly/"), 0)
	for _, name := range []string{"LICENSE", "redoc.standalone.js.LICENSE.txt"} {
		check.Value(redocFiles.ReadFile("redoc/" + name))(t)
	}
}

// The page's policy allows only what has the page's nonce, which is another one each time.
func TestExplorerPolicy(t *testing.T) {
	t.Parallel()
	seen := make(map[string]bool)
	for range 2 {
		w := httptest.NewRecorder()
		showExplorer(w, nil)
		policy := w.Header().Get("Content-Security-Policy")
		_, rest, _ := strings.Cut(policy, "script-src 'nonce-")
		nonce, _, _ := strings.Cut(rest, "'")
		if len(nonce) < 16 || seen[nonce] || strings.Contains(policy, "unsafe") || strings.Contains(policy, "http") {
			t.Errorf("the policy: got %s, want a new nonce, and no other host", policy)
		}
		check.Equal(t, "nonces of the page", strings.Count(w.Body.String(), `nonce="`+nonce+`"`), 3)
		seen[nonce] = true
	}
}
