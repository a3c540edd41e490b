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
	check.Equal(t, "two kinds of one name: it starts", h.startError(ext) == "", false)
}
