package main

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/shared/txmanager"
)

// recorder is a signer that keeps the call.
type recorder struct{ call txmanager.Call }

func (r *recorder) Sign(_ context.Context, c txmanager.Call) (txmanager.Signed, error) {
	r.call = c
	return txmanager.Signed{}, nil
}

// An address in any letter case is paid in its canonical form. Another text is refused before it is signed.
func TestWageParsesTheAddress(t *testing.T) {
	t.Parallel()
	const canonical = "0xabcdef0123456789abcdef0123456789abcdef01"
	for text, want := range map[string]string{canonical: "", "0x" + strings.ToUpper(canonical[2:]): "", "0xabc": "wages", "": "wages"} {
		signer := new(recorder)
		_, err := wage(t.Context(), txmanager.NonceContext{Input: fmt.Appendf(nil, `{"to": %q, "wei": "5"}`, text), Signer: signer})
		switch {
		case want == "" && (err != nil || signer.call.To == nil || *signer.call.To != canonical):
			t.Errorf("wage to %q: got call %+v, %v; want %s paid", text, signer.call, err, canonical)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want) || signer.call.To != nil):
			t.Errorf("wage to %q: got call %+v, %v; want a refusal with %q", text, signer.call, err, want)
		}
	}
}
