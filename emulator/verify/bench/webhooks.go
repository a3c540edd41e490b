package main

import (
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
)

// receivers are webhook endpoints that accept every event.
type receivers struct{ servers []*httptest.Server }

func startReceivers(n int) *receivers {
	r := new(receivers)
	for range n {
		r.servers = append(r.servers, httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
			_, _ = io.Copy(io.Discard, req.Body)
		})))
	}
	return r
}

func (r *receivers) close() {
	for _, s := range r.servers {
		s.Close()
	}
}

// settings make the functions deliver every event to each receiver.
func (r *receivers) settings() map[string]string {
	secret := "whsec_" + base64.StdEncoding.EncodeToString([]byte("a secret that signs deliveries"))
	var urls, secrets []string
	for i, s := range r.servers {
		urls = append(urls, fmt.Sprintf("r%d=%s", i, s.URL))
		secrets = append(secrets, fmt.Sprintf("r%d=%s", i, secret))
	}
	return map[string]string{
		"FENCEPOST_EVENTS_MODE": "webhook", "FENCEPOST_EVENTS_WEBHOOK_URLS": strings.Join(urls, ","), "FENCEPOST_EVENTS_WEBHOOK_SECRETS": strings.Join(secrets, ","),
	}
}
