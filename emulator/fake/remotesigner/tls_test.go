package remotesigner_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/crypto"

	"github.com/fencepost/fencepost/emulator/fake/remotesigner"
	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/signer/remote"
)

// pair is a certificate with its key, in PEM.
type pair struct {
	certificate, key string
	parsed           *x509.Certificate
	private          *ecdsa.PrivateKey
}

// issue makes a certificate signed by the authority, or self-signed without one.
func issue(t *testing.T, by *pair) pair {
	t.Helper()
	private := check.Value(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "fencepost test"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: by == nil, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	parent, signs := template, private
	if by != nil {
		parent, signs = by.parsed, by.private
	}
	der := check.Value(x509.CreateCertificate(rand.Reader, template, parent, &private.PublicKey, signs))(t)
	parsed := check.Value(x509.ParseCertificate(der))(t)
	secret := check.Value(x509.MarshalPKCS8PrivateKey(private))(t)
	return pair{
		string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})), parsed, private,
	}
}

// With mTLS the service signs only for the right client certificate, and the signer calls only a service
// with the right certificate.
func TestRemoteSignerUsesMTLS(t *testing.T) {
	t.Parallel()
	key := check.Value(crypto.GenerateKey())(t)
	authority, foreign := issue(t, nil), issue(t, nil)
	server, client, unauthorised := issue(t, &authority), issue(t, &authority), issue(t, &foreign)
	trusted := x509.NewCertPool()
	trusted.AddCert(authority.parsed)
	own := check.Value(tls.X509KeyPair([]byte(server.certificate), []byte(server.key)))(t)
	plain := check.Value(remotesigner.Start(remotesigner.Options{Keys: []*ecdsa.PrivateKey{key}}))(t)
	defer plain.Close()
	service := httptest.NewUnstartedServer(plain)
	service.TLS = &tls.Config{Certificates: []tls.Certificate{own}, ClientCAs: trusted, ClientAuth: tls.RequireAndVerifyClientCert}
	service.StartTLS()
	defer service.Close()
	s := eip155.NewSubmitter(1337, eip155.Address(crypto.PubkeyToAddress(key.PublicKey)))
	for name, c := range map[string]struct {
		of        pair
		authority string
		signs     bool
	}{
		"the right two":         {client, authority.certificate, true},
		"unauthorised":          {unauthorised, authority.certificate, false},
		"a service not trusted": {client, foreign.certificate, false},
		"the system's trust":    {client, "", false},
	} {
		path := filepath.Join(t.TempDir(), "remotes")
		text := check.Value(json.Marshal(map[string]map[string]string{"treasury": {
			"url": service.URL, "clientCertificate": c.of.certificate, "clientKey": c.of.key, "authority": c.authority,
		}}))(t)
		check.OK(t)(os.WriteFile(path, text, 0o600))
		signers, err := remote.Load(path, 10*time.Second)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got, err := signers["treasury"].Sign(t.Context(), s, transfer(3))
		if (err == nil) != c.signs || (got.Raw != nil) != c.signs {
			t.Errorf("%s: got %d bytes, %v; want signed %t", name, len(got.Raw), err, c.signs)
		}
	}
}
