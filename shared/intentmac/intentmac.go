// Package intentmac makes and checks the MACs of intents (HMAC-SHA256). A MAC shows that
// a function that accepts intents stored an intent: the other functions, and their roles in
// the database, do not have the key.
package intentmac

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/fencepost/fencepost/shared/txmanager"
)

// domain is part of each MAC's message, so that a MAC of an intent is valid for no other use
// of the key. It ends in the version of the encoding.
const domain = "fencepost intent MAC v1"

// Bounds of a secret key in bytes.
const (
	minKey = 32
	maxKey = 64
)

// kmsPrefix stands before the full name of a version of a key in Cloud KMS.
const kmsPrefix = "gcpkms:"

// Service keeps keys and computes MACs by them: Cloud KMS.
type Service interface {
	// Sum returns the MAC of data by the named key.
	Sum(ctx context.Context, key string, data []byte) ([]byte, error)
	// Check reports whether sum is the MAC of data. An error means that the answer is unknown.
	Check(ctx context.Context, key string, data, sum []byte) (bool, error)
}

// Keys are the keys of a process. The first makes MACs, each checks them. It may be used
// from many goroutines.
type Keys struct {
	keys []key
}

// key is one of [Keys], by the name that its service has for it.
type key struct {
	id, name string
	service  Service
}

var _ txmanager.IntentVerifier = (*Keys)(nil)

// New parses the keys, of which the first makes MACs. Keys in Cloud KMS are used through
// service.
func New(texts []string, service Service) (*Keys, error) {
	all := new(Keys)
	for i, text := range texts {
		one, err := parse(text, service)
		if err != nil {
			return nil, fmt.Errorf("key %d: %w", i+1, err)
		}
		all.keys = append(all.keys, one)
	}
	return all, nil
}

// errNoKey does not show the text, which may be a secret.
var errNoKey = fmt.Errorf("want the base64 of %d to %d random bytes, or %sprojects/P/locations/L/keyRings/R/cryptoKeys/K/cryptoKeyVersions/N", minKey, maxKey, kmsPrefix)

func parse(text string, service Service) (key, error) {
	if name, ok := strings.CutPrefix(text, kmsPrefix); ok {
		parts := strings.Split(name, "/")
		if len(parts) != 10 || parts[0] != "projects" || parts[6] != "cryptoKeys" || parts[8] != "cryptoKeyVersions" || slices.Contains(parts, "") {
			return key{}, errNoKey
		}
		return key{"kms-" + digest("name", []byte(name)), name, &remote{service: service}}, nil
	}
	secret, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(secret) < minKey || len(secret) > maxKey {
		return key{}, errNoKey
	}
	return key{"key-" + digest("key", secret), "", local(secret)}, nil
}

// digest is the id of a key, computed from the key itself. After a key is replaced, its id is
// unknown: intents with its MACs wait and are not refused.
func digest(kind string, of []byte) string {
	sum := sha256.Sum256(encode(domain, kind, string(of)))
	return hex.EncodeToString(sum[:8])
}

// local is a key that this process has. It needs no name.
type local []byte

func (k local) Sum(_ context.Context, _ string, data []byte) ([]byte, error) {
	h := hmac.New(sha256.New, k)
	h.Write(data)
	return h.Sum(nil), nil
}

func (k local) Check(ctx context.Context, name string, data, sum []byte) (bool, error) {
	want, err := k.Sum(ctx, name, data)
	return hmac.Equal(want, sum), err
}

// provedMax bounds what [remote] remembers: 32 bytes each.
const provedMax = 10_000

// remote is the service of one key. It remembers valid MACs, so that a waiting intent does not cost a call
// to Cloud KMS at every block. A valid MAC stays valid.
type remote struct {
	service Service
	mu      sync.Mutex
	proved  map[[sha256.Size]byte]struct{}
}

func (r *remote) Sum(ctx context.Context, name string, data []byte) ([]byte, error) {
	sum, err := r.service.Sum(ctx, name, data)
	if err == nil && len(sum) != sha256.Size {
		err = fmt.Errorf("key %s made a MAC of %d bytes: want a key for HMAC_SHA256, which makes %d", name, len(sum), sha256.Size)
	}
	return sum, err
}

func (r *remote) Check(ctx context.Context, name string, data, sum []byte) (bool, error) {
	id := sha256.Sum256(encode(string(data), string(sum)))
	r.mu.Lock()
	_, proved := r.proved[id]
	r.mu.Unlock()
	if proved {
		return true, nil
	}
	right, err := r.service.Check(ctx, name, data, sum)
	if right && err == nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.proved == nil || len(r.proved) >= provedMax {
			r.proved = make(map[[sha256.Size]byte]struct{})
		}
		r.proved[id] = struct{}{}
	}
	return right, err
}

// IDs are the ids of the keys, as MACs name them.
func (k *Keys) IDs() []string {
	ids := make([]string, len(k.keys)) // never nil: a process without keys knows none
	for i, one := range k.keys {
		ids[i] = one.id
	}
	return ids
}

// Make returns the MAC of t by the first key.
func (k *Keys) Make(ctx context.Context, t txmanager.IntentTerms) (txmanager.MAC, error) {
	first := k.keys[0]
	sum, err := first.service.Sum(ctx, first.name, message(t))
	if err != nil {
		return txmanager.MAC{}, fmt.Errorf("make the MAC of intent %s: %w", t.RequestID, err)
	}
	return txmanager.MAC{Key: first.id, Sum: sum}, nil
}

// Verify implements [txmanager.IntentVerifier].
func (k *Keys) Verify(ctx context.Context, t txmanager.IntentTerms, m txmanager.MAC) error {
	i := slices.IndexFunc(k.keys, func(one key) bool { return one.id == m.Key })
	if i < 0 {
		return fmt.Errorf("intent %s, MAC by key %q: %w", t.TxID, m.Key, txmanager.ErrMACKey)
	}
	right, err := k.keys[i].service.Check(ctx, k.keys[i].name, message(t), m.Sum)
	switch {
	case err != nil:
		return fmt.Errorf("check the MAC of intent %s: %w", t.TxID, err)
	case !right:
		return fmt.Errorf("intent %s: %w", t.TxID, txmanager.ErrForged)
	}
	return nil
}

// message is the authenticated text. It has every field with its length, so that no two
// intents have the same message.
func message(t txmanager.IntentTerms) []byte {
	return encode(domain, t.TxID, string(t.Submitter), t.RequestID, t.Caller, t.Handler, string(t.Fingerprint))
}

// encode writes each field behind its length in bytes.
func encode(fields ...string) []byte {
	var b []byte
	for _, f := range fields {
		b = binary.BigEndian.AppendUint64(b, uint64(len(f)))
		b = append(b, f...)
	}
	return b
}
