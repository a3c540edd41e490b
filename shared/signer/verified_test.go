package signer_test

import (
	"context"
	"testing"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/signer"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// broken panics in every call.
type broken struct{}

func (broken) Sign(context.Context, txmanager.Submitter, txmanager.Unsigned) (txmanager.Signed, error) {
	panic("no key")
}
func (broken) Check(context.Context, txmanager.Submitter) error { panic("no key") }
func (broken) InProcess(txmanager.Submitter) bool               { panic("no key") }

// A panic of an added kind is an error of its call, and a key without a signer is an error.
func TestVerifiedRecoversEachCall(t *testing.T) {
	t.Parallel()
	kinds := map[string]func(string) (signer.Service, error){
		"no signer": func(string) (signer.Service, error) { return nil, nil },
		"a panic":   func(string) (signer.Service, error) { panic("no file") },
	}
	for name, open := range kinds {
		if s, err := signer.Verified(signer.Kind{Name: "k", Signer: open}, signer.Verify).Signer("x"); err == nil {
			t.Errorf("%s: got %v, want an error", name, s)
		}
	}
	s, err := signer.Verified(signer.Kind{Name: "k", Signer: func(string) (signer.Service, error) { return broken{}, nil }}, signer.Verify).Signer("x")
	check.OK(t)(err)
	const account = txmanager.Submitter("eip155:1:0x0000000000000000000000000000000000000001")
	if _, err := s.Sign(t.Context(), account, txmanager.Unsigned{}); err == nil {
		t.Error("sign: got no error")
	}
	check.Equal(t, "check fails", s.Check(t.Context(), account) != nil, true)
	check.Equal(t, "in process", s.InProcess(account), false)
}
