package kms_test

import (
	"encoding/base64"
	"errors"
	"testing"
	"time"

	"cloud.google.com/go/kms/apiv1/kmspb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fencepost/fencepost/emulator/fake/kms"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/intentmac"
	kmssigner "github.com/fencepost/fencepost/shared/signer/kms"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// A MAC that was damaged on its way is refused as such, and not verified.
func TestDamagedMACIsRefused(t *testing.T) {
	t.Parallel()
	server := check.Value(kms.Start())(t)
	t.Cleanup(server.Close)
	name := server.AddMAC("intents", make([]byte, 32))
	sum := check.Value(server.MacSign(t.Context(), &kmspb.MacSignRequest{Name: name, Data: []byte("a")}))(t)
	verify := &kmspb.MacVerifyRequest{Name: name, Data: []byte("a"), Mac: sum.Mac, MacCrc32C: sum.MacCrc32C}
	if answer := check.Value(server.MacVerify(t.Context(), verify))(t); !answer.Success || !answer.VerifiedMacCrc32C {
		t.Errorf("whole: got %v, want a success with its checksum", answer)
	}
	verify.MacCrc32C.Value++
	if answer, err := server.MacVerify(t.Context(), verify); status.Code(err) != codes.InvalidArgument {
		t.Errorf("damaged: got %v, %v; want %s", answer, err, codes.InvalidArgument)
	}
}

// Cloud KMS verifies its own MACs. A damaged or missing answer leaves the result unknown: it never counts
// as a forged MAC.
func TestDamagedKMSAnswerIsNoForgedMAC(t *testing.T) {
	t.Parallel()
	server := check.Value(kms.Start())(t)
	t.Cleanup(server.Close)
	clientWithin := func(timeout time.Duration) *kmssigner.Client {
		c := kmssigner.New(kmssigner.Options{Endpoint: server.Addr(), Timeout: timeout})
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	client := clientWithin(20 * time.Second)
	fresh := func() *intentmac.Keys { // has no MAC in its cache
		return check.Value(intentmac.New([]string{"gcpkms:" + server.AddMAC("intents", make([]byte, 32))}, client))(t)
	}
	terms := txmanager.IntentTerms{TxID: "a", Submitter: "b", RequestID: "c", Caller: "d", Fingerprint: make([]byte, 32)}
	m := check.Value(fresh().Make(t.Context(), terms))(t)
	plain := check.Value(intentmac.New([]string{base64.StdEncoding.EncodeToString(make([]byte, 32))}, nil))(t)
	if same, err := plain.Make(t.Context(), terms); err != nil || string(same.Sum) != string(m.Sum) || same.Key == m.Key {
		t.Errorf("by the same key in a secret: got %+v, %v; want the MAC %x under another id", same, err, m.Sum)
	}
	check.OK(t)(fresh().Verify(t.Context(), terms, m))
	forged := terms
	forged.RequestID = "another"
	check.Err(t, "of another intent", txmanager.ErrForged)(fresh().Verify(t.Context(), forged, m))
	client = clientWithin(time.Second) // an unavailable KMS is asked for so long
	for name, fault := range map[string]kms.Fault{"unavailable": kms.Unavailable, "forbidden": kms.Forbidden, "damaged": kms.BadChecksum, "another key's": kms.AnotherName} {
		server.SetFault(fault)
		if err := fresh().Verify(t.Context(), forged, m); err == nil || errors.Is(err, txmanager.ErrForged) {
			t.Errorf("%s: got %v, want an error that is not ErrForged", name, err)
		}
		if _, err := fresh().Make(t.Context(), terms); err == nil {
			t.Errorf("%s: got a MAC, want none", name)
		}
	}
}
