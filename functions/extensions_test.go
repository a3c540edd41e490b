package functions_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http/httptest"
	"testing"

	"github.com/fencepost/fencepost/functions"
	"github.com/fencepost/fencepost/shared/config"
	"github.com/fencepost/fencepost/shared/expect"
	"github.com/fencepost/fencepost/shared/signer"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// waits is a business' code that leaves every STUCK transaction to an operator.
type waits struct{}

func (waits) Resolve(txmanager.Tx) (txmanager.Action, string) { return txmanager.ActionWait, "" }

// Every chain's worker calls the code of Extensions.Stuck.
func TestExtensionsReachTheWorkers(t *testing.T) {
	t.Parallel()
	h := build(t)
	c, err := config.Load(h.settings())
	expect.NoError(t, err)
	app, err := functions.New(t.Context(), c, slog.New(slog.DiscardHandler), "node", functions.Extensions{Stuck: waits{}})
	expect.NoError(t, err)
	t.Cleanup(func() { _ = app.Close(context.WithoutCancel(t.Context())) })
	all := app.Resolutions()
	if len(all) == 0 {
		t.Fatal("workers: got none")
	}
	for _, r := range all {
		if r != (waits{}) {
			t.Errorf("a worker's StuckResolution: got %v, want the one given", r)
		}
	}
}

// vault is a business' signer, which has the key of every account.
type vault struct{ signer.Service }

func (vault) Check(context.Context, txmanager.Submitter) error { return nil }

// A registration can name a signer of a kind of Extensions.Signers.
func TestExtensionsAddKindsOfSigners(t *testing.T) {
	t.Parallel()
	h := build(t)
	h.Bundle.Register(t, shopAccount, 1)
	c, err := config.Load(h.settings())
	expect.NoError(t, err)
	kind := signer.Kind{Name: "vault", Key: "<path>", Signer: func(path string) (signer.Service, error) {
		if path != "treasury" {
			return nil, errors.New("no such path")
		}
		return vault{}, nil
	}}
	ext := functions.Extensions{Signers: []signer.Kind{kind}}
	app, err := functions.New(t.Context(), c, slog.New(slog.DiscardHandler), "node", ext)
	expect.NoError(t, err)
	server := httptest.NewServer(app.Handlers()[functions.All])
	t.Cleanup(func() {
		server.Close()
		_ = app.Close(context.WithoutCancel(t.Context()))
	})
	h.url = server.URL
	for name, want := range map[string]string{
		"vault:treasury": "200 <nil> <nil> vault:treasury", "vault:other": "400 INVALID_FIELD signer <nil>", "safe:treasury": "400 INVALID_FIELD signer <nil>",
	} {
		a := h.as("ann", "POST", "/admin/v1/submitters/"+shopAccount+"/signer", map[string]any{"signer": name, "reason": "a test"})
		if got := a.is("code", "field", "signer"); got != want {
			t.Errorf("%s: got %s %v, want %s", name, got, a.body["detail"], want)
		}
	}
	ext.Signers = append(ext.Signers, kind)
	if _, err := functions.New(t.Context(), c, slog.New(slog.DiscardHandler), "node", ext); err == nil {
		t.Error("two kinds of one name: got no error")
	}
}
