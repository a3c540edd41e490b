package main

import (
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
)

// startReceivers starts webhook endpoints that accept every event, and returns the settings that make the functions
// deliver every event to each.
func (h *environment) startReceivers(n int) map[string]string {
	secret := "whsec_" + base64.StdEncoding.EncodeToString([]byte("a secret that signs deliveries"))
	var urls, secrets []string
	for i := range n {
		s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
		h.closers.OnClose(func() error { s.Close(); return nil })
		urls = append(urls, fmt.Sprintf("r%d=%s", i, s.URL))
		secrets = append(secrets, fmt.Sprintf("r%d=%s", i, secret))
	}
	return map[string]string{
		"FENCEPOST_EVENTS_MODE": "webhook", "FENCEPOST_EVENTS_WEBHOOK_URLS": strings.Join(urls, ","), "FENCEPOST_EVENTS_WEBHOOK_SECRETS": strings.Join(secrets, ","),
	}
}
