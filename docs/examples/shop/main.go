// Command shop is a business service that makes transactions for Fencepost.
package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// secret is what the base64 behind whsec_ stands for.
var secret, _ = base64.StdEncoding.DecodeString(strings.TrimPrefix(os.Getenv("SHOP_SECRET"), "whsec_"))

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("http://" + listener.Addr().String() + "/orders")
	log.Fatal(http.Serve(listener, http.HandlerFunc(order)))
}

func order(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
	if err != nil || !proven(r.Header, body) {
		http.Error(w, "not signed", http.StatusUnauthorized)
		return
	}
	var question struct {
		RequestID string
		Payload   struct{ To, Wei string }
	}
	if err := json.Unmarshal(body, &question); err != nil || question.Payload.Wei == "" {
		w.WriteHeader(http.StatusUnprocessableEntity)
		fmt.Fprint(w, `{"detail": "no such order"}`)
		return
	}
	transaction := map[string]string{"to": question.Payload.To, "value": question.Payload.Wei}
	_ = json.NewEncoder(w).Encode(map[string]any{"transaction": transaction})
}

// proven reports whether Fencepost made the call within the last five minutes.
func proven(h http.Header, body []byte) bool {
	id, timestamp := h.Get("webhook-id"), h.Get("webhook-timestamp")
	seconds, err := strconv.ParseInt(timestamp, 10, 64)
	if err != nil || time.Since(time.Unix(seconds, 0)).Abs() > 5*time.Minute {
		return false
	}
	mac := hmac.New(sha256.New, secret)
	fmt.Fprintf(mac, "%s.%s.%s", id, timestamp, body)
	want := []byte("v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	return len(secret) >= 24 && slices.ContainsFunc(strings.Fields(h.Get("webhook-signature")), func(s string) bool {
		return hmac.Equal([]byte(s), want)
	})
}
