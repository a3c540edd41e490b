package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Options configure a client.
type Options struct {
	URL string // of the public paths, such as https://api.fencepost.example

	// Token returns the bearer token of each attempt. It should cache a fetched token until
	// that expires.
	Token func(ctx context.Context) (string, error)

	Transport      http.RoundTripper // nil: one of its own
	Within         time.Duration     // one call with all its attempts, where ctx does not end before; 0: 1 min
	AttemptTimeout time.Duration     // one attempt; 0: 30 s, which is more than a transfer is driven for
	RetryFirst     time.Duration     // the wait after the first attempt, at most, if the answer gives none; 0: 100 ms
	RetryMax       time.Duration     // the same after many; 0: 5 s
	PollFirst      time.Duration     // the wait after the first poll of WaitTx and WaitTransfer; 0: 250 ms
	PollMax        time.Duration     // the same after many; 0: 5 s
}

// Client calls one deployment for one caller or user. Create it with [New] and share it.
type Client struct {
	options Options
	base    string // without a slash at its end
	http    *http.Client
}

// New creates a client from the options and sends no request yet. The error names the option
// that is wrong.
func New(o Options) (*Client, error) {
	base, err := url.Parse(o.URL)
	if err != nil || base.Scheme != "http" && base.Scheme != "https" || base.Host == "" || base.RawQuery != "" || base.Fragment != "" {
		return nil, fmt.Errorf("client: URL %q: want one such as https://api.fencepost.example", o.URL)
	}
	if o.Token == nil {
		return nil, errors.New("client: Token is missing")
	}
	for _, d := range []struct {
		name  string
		value *time.Duration
		usual time.Duration
	}{
		{"Within", &o.Within, time.Minute}, {"AttemptTimeout", &o.AttemptTimeout, 30 * time.Second},
		{"RetryFirst", &o.RetryFirst, 100 * time.Millisecond}, {"RetryMax", &o.RetryMax, 5 * time.Second},
		{"PollFirst", &o.PollFirst, 250 * time.Millisecond}, {"PollMax", &o.PollMax, 5 * time.Second},
	} {
		if *d.value < 0 {
			return nil, fmt.Errorf("client: %s %s: want 0 or more", d.name, *d.value)
		}
		*d.value = cmp.Or(*d.value, d.usual)
	}
	if o.Transport == nil {
		o.Transport = newTransport()
	}
	return &Client{options: o, base: strings.TrimSuffix(o.URL, "/"), http: &http.Client{
		Transport: o.Transport,
		// The token is for this deployment only. Following a redirect could send it to another
		// server.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// newTransport keeps all its idle connections for this host; the standard transport keeps two.
func newTransport() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxConnsPerHost, t.MaxIdleConnsPerHost = 64, 64
	return t
}

// CloseIdle closes the idle connections. The client may still be used.
func (c *Client) CloseIdle() { c.http.CloseIdleConnections() }
