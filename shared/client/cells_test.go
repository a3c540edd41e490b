package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/client"
)

const (
	ada = "eip155:1:0x00000000000000000000000000000000000000aa"
	bob = "eip155:1:0x00000000000000000000000000000000000000bb"
)

// ofCells are options with short waits.
var ofCells = client.Options{
	RetryFirst: time.Millisecond, RetryMax: 5 * time.Millisecond, Within: 300 * time.Millisecond,
	Token: func(context.Context) (string, error) { return "t", nil },
}

// twoCells are cells a, with ada, and b, with bob.
func twoCells(t *testing.T, a, b *service) *client.Cells {
	t.Helper()
	list := fmt.Sprintf(`{"a": {"url": %q, "accounts": [%q]}, "b": {"url": %q, "accounts": [%q]}}`, a.URL+"/cells/a", ada, b.URL+"/cells/b", bob)
	return check.Value(client.NewCells([]byte(list), ofCells))(t)
}

func saying(status int, body string) http.HandlerFunc {
	media := "application/json"
	if status >= 400 {
		media = "application/problem+json"
	}
	return answer(status, media, body, "")
}

var notFound = saying(http.StatusNotFound, `{"status": 404, "code": "NOT_FOUND"}`)

// Each call goes to the cell of its account, by the path of the list.
func TestEachAccountIsCalledInItsCell(t *testing.T) {
	t.Parallel()
	a, b := serve(t, saying(200, `{"txId": "1"}`)), serve(t, saying(200, `{"txId": "2"}`))
	cells := twoCells(t, a, b)
	for account, want := range map[string]string{ada: "1", strings.Replace(bob, "bb", "BB", 1): "2"} {
		created := check.Value(cells.CreateTx(t.Context(), client.Intent{Submitter: account, RequestID: "r"}))(t)
		check.Equal(t, "txId of "+account, created.TxID, want)
	}
	for cell, s := range map[string]*service{"a": a, "b": b} {
		asked, _ := s.attempts()
		if len(asked) != 1 || !strings.HasPrefix(asked[0], "POST /cells/"+cell+"/api/v1/tx ") {
			t.Errorf("cell %s: got %q, want one POST below /cells/%s", cell, asked, cell)
		}
	}
}

func TestAccountInNoCellIsAnError(t *testing.T) {
	t.Parallel()
	a := serve(t, saying(200, `{"txId": "1"}`))
	cells := twoCells(t, a, a)
	carol := strings.Replace(ada, "aa", "cc", 1)
	_, err := cells.CreateTx(t.Context(), client.Intent{Submitter: carol})
	_, batched := cells.CreateTxBatch(t.Context(), []client.Intent{{Submitter: ada}, {Submitter: carol}})
	for what, err := range map[string]error{"one": err, "a batch": batched} {
		if !errors.Is(err, client.ErrNoCell) || !strings.Contains(err.Error(), carol) || !strings.Contains(err.Error(), "terraform/cells") {
			t.Errorf("%s: got %v, want ErrNoCell with the account and what to do", what, err)
		}
	}
	if asked, _ := a.attempts(); len(asked) != 0 {
		t.Errorf("got %q sent, want nothing", asked)
	}
}

// The list that puts one key into two cells is refused, as Terraform refuses it.
func TestListsOfCellsThatAreRefused(t *testing.T) {
	t.Parallel()
	onAnotherChain := strings.Replace(ada, ":1:", ":137:", 1)
	const two = `{"a": {"url": "https://x/a", "accounts": [%q]}, "b": {"url": "https://x/b", "accounts": [%q]}}`
	for what, tc := range map[string]struct{ list, want string }{
		"an account in two cells":      {fmt.Sprintf(two, ada, ada), "in cell a and in cell b"},
		"one in another letter case":   {fmt.Sprintf(two, ada, strings.Replace(ada, "aa", "AA", 1)), "in cell a and in cell b"},
		"its address on another chain": {fmt.Sprintf(two, ada, onAnotherChain), "in cell a and in cell b"},
		"no cell":                      {`{}`, "is empty"},
		"no JSON":                      {`x`, "invalid character"},
		"an unknown member":            {`{"a": {"uri": "https://x/a"}}`, "uri"},
		"two values":                   {`{"a": {"url": "https://x/a"}} {}`, "more than one value"},
		"a URL that is none":           {`{"a": {"url": "x"}}`, "cell a: "},
	} {
		_, err := client.NewCells([]byte(tc.list), ofCells)
		if err == nil || !strings.Contains(err.Error(), tc.want) || errors.Is(err, client.ErrTwoCells) != strings.HasPrefix(tc.want, "in cell") {
			t.Errorf("%s: got %v, want an error with %q", what, err, tc.want)
		}
	}
	same := fmt.Sprintf(`{"a": {"url": "https://x/a", "accounts": [%q, %q]}}`, ada, onAnotherChain)
	check.Value(client.NewCells([]byte(same), ofCells))(t)
}

// A transaction that only its txId names is found by asking each cell, even while another one is down.
func TestCellOfATransactionIsFound(t *testing.T) {
	t.Parallel()
	down := saying(http.StatusServiceUnavailable, `{"status": 503, "code": "UNAVAILABLE"}`)
	has := saying(200, `{"txId": "1"}`)
	for what, tc := range map[string]struct {
		a, b http.HandlerFunc
		want string // of the cell asked, or of the error
	}{
		"it is in b":             {notFound, has, "/cells/b"},
		"it is in b, a is down":  {down, has, "/cells/b"},
		"it is in none":          {notFound, notFound, "in no cell"},
		"in none, and a is down": {down, notFound, "cell a: "},
	} {
		a, b := serve(t, tc.a), serve(t, tc.b)
		found, err := twoCells(t, a, b).OfTx(t.Context(), "1")
		if err != nil {
			if strings.HasPrefix(tc.want, "/") || !strings.Contains(err.Error(), tc.want) || errors.Is(err, client.ErrNoCell) != (tc.want == "in no cell") {
				t.Errorf("%s: got %v, want %s", what, err, tc.want)
			}
			continue
		}
		before, _ := b.attempts()
		check.Value(found.Tx(t.Context(), "1"))(t)
		if after, _ := b.attempts(); len(after) != len(before)+1 || tc.want != "/cells/b" {
			t.Errorf("%s: got a client of another cell, want %s", what, tc.want)
		}
	}
}

// A batch is one call for each cell, and its results have the order of the intents.
func TestBatchIsSplitByCell(t *testing.T) {
	t.Parallel()
	a, b := serve(t, saying(200, `{"results": [{"txId": "1"}, {"txId": "3"}]}`)), serve(t, saying(200, `{"results": [{"txId": "2"}]}`))
	intents := []client.Intent{{Submitter: ada, RequestID: "1"}, {Submitter: bob, RequestID: "2"}, {Submitter: ada, RequestID: "3"}}
	got := check.Value(twoCells(t, a, b).CreateTxBatch(t.Context(), intents))(t)
	check.Same(t, "results", got, []client.BatchResult{{TxID: "1"}, {TxID: "2"}, {TxID: "3"}})
	down := serve(t, saying(http.StatusForbidden, `{"status": 403, "code": "FORBIDDEN"}`))
	got, err := twoCells(t, a, down).CreateTxBatch(t.Context(), intents)
	if err == nil || !strings.Contains(err.Error(), "cell b: ") {
		t.Errorf("got %v, want an error of cell b", err)
	}
	check.Same(t, "results with a cell that refuses", got, []client.BatchResult{{TxID: "1"}, {}, {TxID: "3"}})
}

func TestCellsAreNamed(t *testing.T) {
	t.Parallel()
	cells := twoCells(t, serve(t, notFound), serve(t, notFound))
	check.Same(t, "names", cells.Names(), []string{"a", "b"})
	if _, err := cells.Named("c"); err == nil || !strings.Contains(err.Error(), "a, b") {
		t.Errorf("got %v, want an error with the names", err)
	}
	check.Value(cells.Named("b"))(t)
}

// The client takes the list that Terraform renders: a test of terraform/cells compares its output with this file.
func TestClientTakesTheListOfTerraform(t *testing.T) {
	t.Parallel()
	list := check.Value(os.ReadFile("../../terraform/cells/tests/client_list.json"))(t)
	cells := check.Value(client.NewCells(list, ofCells))(t)
	check.Equal(t, "cells", len(cells.Names()), 2)
	for _, account := range []string{ada, bob} {
		check.Value(cells.Of(account))(t)
	}
}
