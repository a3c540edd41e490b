package remote

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"time"

	"github.com/fencepost/fencepost/shared/signer"
)

// Options define a service and how this deployment authenticates: by a bearer token, by a client
// certificate (mTLS), or by both. As JSON they are an entry of signer.remotesFile.
type Options struct {
	Name    string        `json:"-"`
	Timeout time.Duration `json:"-"` // of one call

	URL    string `json:"url"`    // https, or http to this machine
	Method string `json:"method"` // EthSign or AccountSign; "": EthSign

	BearerToken string `json:"bearerToken"` // "": none

	// In PEM. Server certificates must be issued by authority; "": by an authority of the system.
	ClientCertificate string `json:"clientCertificate"`
	ClientKey         string `json:"clientKey"`
	Authority         string `json:"authority"`
}

// remoteName is the form of a name in a registration.
var remoteName = regexp.MustCompile(`^[a-z][a-z0-9-]{0,31}$`)

// handshake bounds the opening of a connection; a call's time-out bounds the whole call.
const handshake = 5 * time.Second

// maxList bounds the file, in bytes.
const maxList = 1 << 20

// Kind returns the kind of the signers in the file at path, each named by its name there; "": none.
func Kind(path string, timeout time.Duration) (signer.Kind, error) {
	all, err := Load(path, timeout)
	if err != nil {
		return signer.Kind{}, err
	}
	return signer.Kind{Name: "remote", Key: "<name>", Signer: func(name string) (signer.Service, error) {
		if all[name] == nil {
			return nil, errors.New("signer.remotesFile has no signer of that name")
		}
		return all[name], nil
	}}, nil
}

// Load reads a file of signers: a JSON object with [Options] for each name. Without a path there are none. The
// error names the signer and never contains a secret.
func Load(path string, timeout time.Duration) (map[string]signer.Service, error) {
	if path == "" {
		return nil, nil
	}
	text, err := signer.ReadFile(path, maxList)
	if err != nil {
		return nil, fmt.Errorf("remote signers: %w", err)
	}
	var entries map[string]json.RawMessage
	if json.Unmarshal(text, &entries) != nil {
		return nil, errors.New("remote signers: want a JSON object with one object for each name")
	}
	signers := make(map[string]signer.Service, len(entries))
	for name, entry := range entries {
		if !remoteName.MatchString(name) {
			return nil, errors.New("remote signers: a name is wrong: want a lower-case letter, then up to 31 of a-z, 0-9 and dash")
		}
		o := Options{Name: name, Timeout: timeout}
		fields := json.NewDecoder(bytes.NewReader(entry))
		fields.DisallowUnknownFields()
		if fields.Decode(&o) != nil { // the decoder's own text may contain a secret
			return nil, fmt.Errorf("remote signer %s: want an object of url, method, bearerToken, clientCertificate, clientKey and authority, all of them strings", name)
		}
		o.Method = cmp.Or(o.Method, EthSign)
		if signers[name], err = New(o); err != nil {
			return nil, err
		}
	}
	return signers, nil
}

// validate refuses options that cannot work, or would send the token unencrypted.
func (o Options) validate() error {
	u, err := url.Parse(o.URL)
	switch {
	case err != nil || u.Host == "" || u.User != nil || u.Scheme != "https" && u.Scheme != "http":
		return errors.New("want url as https://host:port/path, without a user")
	case u.Scheme == "http" && !thisMachine(u.Hostname()):
		return errors.New("want url with https; http is allowed only to this machine")
	case listing[o.Method] == "":
		return fmt.Errorf("want method %s or %s", EthSign, AccountSign)
	case (o.ClientCertificate == "") != (o.ClientKey == ""):
		return errors.New("want clientCertificate and clientKey together")
	case o.BearerToken == "" && o.ClientCertificate == "" && !thisMachine(u.Hostname()):
		return errors.New("want bearerToken, or clientCertificate and clientKey: without them any client could sign")
	}
	return nil
}

func thisMachine(host string) bool {
	return host == "localhost" || net.ParseIP(host).IsLoopback()
}

// transport returns the transport to the service.
func (o Options) transport() (*http.Transport, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if o.ClientCertificate != "" {
		pair, err := tls.X509KeyPair([]byte(o.ClientCertificate), []byte(o.ClientKey))
		if err != nil {
			return nil, errors.New("want clientCertificate and clientKey as a pair in PEM")
		}
		config.Certificates = []tls.Certificate{pair}
	}
	if o.Authority != "" {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM([]byte(o.Authority)) {
			return nil, errors.New("want authority as certificates in PEM")
		}
	}
	return &http.Transport{
		TLSClientConfig: config, TLSHandshakeTimeout: handshake, MaxIdleConnsPerHost: 16, IdleConnTimeout: time.Minute,
		DialContext: (&net.Dialer{Timeout: handshake}).DialContext, ForceAttemptHTTP2: true,
	}, nil
}

// withoutURL returns err without the URL, which may contain a key.
func withoutURL(err error) error {
	if failed, ok := errors.AsType[*url.Error](err); ok {
		return failed.Err
	}
	return err
}
