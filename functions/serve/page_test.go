package serve_test

import (
	"encoding/base64"
	"testing"

	"github.com/fencepost/fencepost/functions/serve"
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
