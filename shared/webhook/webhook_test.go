package webhook_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/webhook"
)

func key(t *testing.T, b byte) webhook.Key {
	t.Helper()
	return check.Value(webhook.ParseKey("whsec_" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{b}, 32))))(t)
}

// The example of the scheme's own libraries: other implementations create and accept the same
// signature.
func TestSignatureMatchesTheSchemesExample(t *testing.T) {
	t.Parallel()
	k := check.Value(webhook.ParseKey("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"))(t)
	h, body, at := http.Header{}, []byte(`{"test": 2432232314}`), time.Unix(1614265330, 0)
	webhook.Sign(h, "msg_p5jXN8AQM9LWM0D4loKWxJek", at, body, k)
	check.Equal(t, "signature", h.Get("webhook-signature"), "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=")
	check.Equal(t, "timestamp", h.Get("webhook-timestamp"), "1614265330")
	if id, err := webhook.Verify(h, at, body, k); err != nil || id != "msg_p5jXN8AQM9LWM0D4loKWxJek" {
		t.Errorf("verify: got %q, %v; want the id", id, err)
	}
}

// A request is valid only with a signature by one of the receiver's keys.
func TestVerifyAcceptsOnlyKnownKeys(t *testing.T) {
	t.Parallel()
	old, next, other := key(t, 1), key(t, 2), key(t, 3)
	at, body := time.Unix(1_700_000_000, 0), []byte(`{"nonce":7}`)
	for name, c := range map[string]struct {
		edit func(http.Header)
		at   time.Time
		body string
		keys []webhook.Key
		ok   bool
	}{
		"the old key":     {nil, at, `{"nonce":7}`, []webhook.Key{old}, true},
		"the new key":     {nil, at, `{"nonce":7}`, []webhook.Key{other, next}, true},
		"late, in time":   {nil, at.Add(5 * time.Minute), `{"nonce":7}`, []webhook.Key{old}, true},
		"another key":     {nil, at, `{"nonce":7}`, []webhook.Key{other}, false},
		"no key":          {nil, at, `{"nonce":7}`, nil, false},
		"another body":    {nil, at, `{"nonce":8}`, []webhook.Key{old}, false},
		"too late":        {nil, at.Add(5*time.Minute + time.Second), `{"nonce":7}`, []webhook.Key{old}, false},
		"from the future": {nil, at.Add(-5*time.Minute - time.Second), `{"nonce":7}`, []webhook.Key{old}, false},
		"another id":      {func(h http.Header) { h.Set("webhook-id", "y") }, at, `{"nonce":7}`, []webhook.Key{old}, false},
		"another time":    {func(h http.Header) { h.Set("webhook-timestamp", "1700000001") }, at, `{"nonce":7}`, []webhook.Key{old}, false},
		"no time":         {func(h http.Header) { h.Del("webhook-timestamp") }, at, `{"nonce":7}`, []webhook.Key{old}, false},
		"no id":           {func(h http.Header) { h.Del("webhook-id") }, at, `{"nonce":7}`, []webhook.Key{old}, false},
		"no signature":    {func(h http.Header) { h.Del("webhook-signature") }, at, `{"nonce":7}`, []webhook.Key{old}, false},
		"no scheme's number": {func(h http.Header) {
			h.Set("webhook-signature", strings.ReplaceAll(h.Get("webhook-signature"), "v1,", ""))
		}, at, `{"nonce":7}`, []webhook.Key{old}, false},
	} {
		h := http.Header{}
		webhook.Sign(h, "x", at, body, old, next)
		if c.edit != nil {
			c.edit(h)
		}
		id, err := webhook.Verify(h, c.at, []byte(c.body), c.keys...)
		if (err == nil) != c.ok || (c.ok && id != "x") || (!c.ok && !errors.Is(err, webhook.ErrNotSigned)) {
			t.Errorf("%s: got %q, %v; want it proven: %v", name, id, err, c.ok)
		}
	}
}

// A text that is not a secret is refused without showing it, and a secret is not printed.
func TestParseKeyNeverShowsTheSecret(t *testing.T) {
	t.Parallel()
	random := strings.Repeat("QUJD", 8) // 24 bytes
	for name, text := range map[string]string{
		"no prefix": random, "short": "whsec_" + random[:28], "long": "whsec_" + strings.Repeat("QUJD", 22), "no base64": "whsec_" + random[:31] + "!", "nothing": "",
	} {
		if _, err := webhook.ParseKey(text); !errors.Is(err, webhook.ErrNotKey) || strings.Contains(err.Error(), "QUJD") {
			t.Errorf("%s: got %v, want ErrNotKey and nothing of the text", name, err)
		}
	}
	k := check.Value(webhook.ParseKey("whsec_" + random))(t)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
		check.Equal(t, fmt.Sprintf("%s", verb), fmt.Sprintf(verb, k), "[redacted]")
	}
}
