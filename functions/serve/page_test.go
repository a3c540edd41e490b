package serve_test

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/fencepost/fencepost/functions/serve"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/web"
)

// A token of a list by name has a name that the database can compare.
func TestTokenOfANameHasOne(t *testing.T) {
	t.Parallel()
	for name, takes := range map[string]bool{"eip155:1": true, "": false, "a\x00b": false, "a\xff": false} {
		token := base64.RawURLEncoding.EncodeToString(append([]byte{10}, name...))
		_, after, err := serve.PageOf(map[string]string{"pageToken": token}, serve.SubmitterPlace)
		if takes != (err == nil) || takes && after != name {
			t.Errorf("%q: got %q, %v; want it taken: %t", name, after, err, takes)
		}
	}
}

// A list has its rows before the token of the next page, and texts as any answer has them. The last page has no token.
func TestListIsWrittenAsItsRowsAndToken(t *testing.T) {
	t.Parallel()
	for want, list := range map[string]serve.List{
		`{"things":["<a&b>"],"nextPageToken":"AQ_-"}`: {Name: "things", Rows: []string{"<a&b>"}, Next: "AQ_-"},
		`{"things":[]}`: {Name: "things", Rows: []string{}},
	} {
		check.Equal(t, "list", string(check.Value(web.Encode(list))(t)), want+"\n")
	}
}

// placeDeclared finds the number with which the tokens of a list begin.
var placeDeclared = regexp.MustCompile(`= (?:\w+Place\(|Place\[\S+\]\{version: )(\d+)`)

// No list takes another one's tokens.
func TestEachListHasTokensOfItsOwn(t *testing.T) {
	t.Parallel()
	list := map[string]string{}
	for _, file := range check.Value(filepath.Glob("*.go"))(t) {
		for _, found := range placeDeclared.FindAllStringSubmatch(string(check.Value(os.ReadFile(file))(t)), -1) {
			if other := list[found[1]]; other != "" {
				t.Errorf("%s and %s: got tokens that begin with the same number", other, found[0])
			}
			list[found[1]] = found[0]
		}
	}
	if len(list) < 20 {
		t.Errorf("lists: got %d, want 20 or more, or this test sees nothing", len(list))
	}
}
