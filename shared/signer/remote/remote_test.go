package remote_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/signer"
	"github.com/fencepost/fencepost/shared/signer/remote"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// An account is found in the service's list in any letter case, such as with the checksum of EIP-55. An
// account of another family of chains is not.
func TestAccountIsFoundInAnyLetterCase(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"jsonrpc": "2.0", "id": 1, "result": ["0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"]}`))
	}))
	t.Cleanup(server.Close)
	r := check.Value(remote.New(remote.Options{Name: "r", URL: server.URL, Method: remote.EthSign, Timeout: time.Minute}))(t)
	t.Cleanup(r.Close)
	for s, has := range map[txmanager.Submitter]bool{
		"eip155:1:0x5aaeb6053f3e94c9b9a09f33669435e7ef1beaed": true,
		"eip155:1:0x5aaeb6053f3e94c9b9a09f33669435e7ef1beae0": false,
		"mem:7:m9734d509dbef15ac8e7f463be2d8d2ac2656183653d5": false,
	} {
		if err := r.Check(t.Context(), s); (err == nil) != has || err != nil && !errors.Is(err, signer.ErrNoKey) {
			t.Errorf("%s: got %v, want it known: %t", s, err, has)
		}
	}
}
