package edge_test

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencepost/fencepost/emulator/fake/ubscore/book"
	"github.com/fencepost/fencepost/emulator/fake/ubscore/core"
	"github.com/fencepost/fencepost/emulator/fake/ubscore/edge"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/ledger/trading/wire"
)

const secret = "the secret of the tests"

// filled returns the address of a core that has answered n requests with ids of maximal length.
func filled(t *testing.T, n int, of string) string {
	t.Helper()
	c := check.Value(core.Open(core.Options{Folder: t.TempDir(), Log: slog.New(slog.DiscardHandler)}))(t)
	server := httptest.NewServer(edge.New(c, secret))
	t.Cleanup(func() { server.Close(); _ = c.Close() })
	now := book.MicrosOf(time.Now())
	var done sync.WaitGroup
	const callers = 500 // the core bounds waiting requests
	for first := range callers {
		done.Go(func() {
			for i := first; i < n; i += callers {
				id := strings.Repeat(of, (wire.MaxReqID-5)/len(of)) + fmt.Sprintf("%05d", i)
				_, err := c.Do(t.Context(), book.Request{Kind: book.OutsideDeposit, ReqID: id, UserID: 1, AssetID: 1, Units: 1, CreatedAt: now})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	done.Wait()
	return server.URL
}

func get(t *testing.T, url string) []byte {
	t.Helper()
	r := check.Value(http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil))(t)
	r.Header.Set("Authorization", "Bearer "+secret)
	resp := check.Value(http.DefaultClient.Do(r))(t)
	defer resp.Body.Close()
	content, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: got %d, %v: %.200s", url, resp.StatusCode, err, content)
	}
	return content
}

// A page has as many lines as fit into an answer, whatever length their ids have in JSON. Its last line
// shows whether there are more.
func TestJournalPageFitsItsAnswer(t *testing.T) {
	t.Parallel()
	const lines = 2 * wire.MaxPage
	for of, want := range map[string]int{"x": 2, "<": 2, "\x01": 3} { // pages; a control character takes six bytes
		t.Run(of, func(t *testing.T) {
			t.Parallel()
			url := filled(t, lines, of)
			pages := 0
			for after := uint64(0); after < lines; pages++ {
				content := get(t, fmt.Sprintf("%s%s?after=%d&limit=%d", url, wire.JournalPath, after, wire.MaxPage))
				var page wire.JournalPage
				if err := json.Unmarshal(content, &page); err != nil || len(content) > wire.MaxAnswer || len(page.Entries) == 0 || page.Last != lines {
					t.Fatalf("page after %d: got %d bytes, %d lines of %d, %v; want some, in at most %d bytes", after, len(content), len(page.Entries), page.Last, err, wire.MaxAnswer)
				}
				for _, line := range page.Entries {
					if after++; line.Seq != after {
						t.Fatalf("got line %d, want %d", line.Seq, after)
					}
				}
				if left := wire.MaxAnswer - len(content); after < lines && len(page.Entries) < wire.MaxPage && left > 2*len(content)/len(page.Entries) {
					t.Errorf("page up to %d: got %d lines, and %d bytes left", after, len(page.Entries), left)
				}
			}
			check.Equal(t, "pages", pages, want)
		})
	}
}
