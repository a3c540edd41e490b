package functions_test

import (
	"context"
	"errors"
	"testing"

	"github.com/fencepost/fencepost/functions"
	"github.com/fencepost/fencepost/shared/check"
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
	all := h.openedWith(functions.Extensions{Stuck: waits{}}).Resolutions()
	if len(all) == 0 {
		t.Fatal("workers: got none")
	}
	for _, r := range all {
		check.Equal(t, "a worker's StuckResolution", r, txmanager.StuckResolution(waits{}))
	}
}

// vault is a business' signer, which has the key of every account.
type vault struct{ signer.Service }

func (vault) Check(context.Context, txmanager.Submitter) error { return nil }

// A registration can name a signer of a kind of Extensions.Signers.
func TestExtensionsAddKindsOfSigners(t *testing.T) {
	t.Parallel()
	h := buildWithShop(t)
	kind := signer.Kind{Name: "vault", Key: "<path>", Signer: func(path string) (signer.Service, error) {
		if path != "treasury" {
			return nil, errors.New("no such path")
		}
		return vault{}, nil
	}}
	ext := functions.Extensions{Signers: []signer.Kind{kind}}
	h.url = h.listen(h.openedWith(ext), functions.All)
	for name, want := range map[string]string{
		"vault:treasury": "200 <nil> <nil> vault:treasury", "vault:other": "400 INVALID_FIELD signer <nil>", "safe:treasury": "400 INVALID_FIELD signer <nil>",
	} {
		check.Equal(t, name, h.as("ann", "POST", ofShop+"/signer", members{"signer": name, "reason": "a test"}).is("code", "field", "signer"), want)
	}
	ext.Signers = append(ext.Signers, kind)
	if _, err := h.appWith(ext); err == nil {
		t.Error("two kinds of one name: got no error")
	}
}
