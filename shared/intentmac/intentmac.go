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
	keys []named
}

// key is one of [Keys].
type key interface {
	sum(ctx context.Context, data []byte) ([]byte, error)
	check(ctx context.Context, data, sum []byte) (bool, error)
}

type named struct {
	id string
	key
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

func parse(text string, service Service) (named, error) {
	if name, ok := strings.CutPrefix(text, kmsPrefix); ok {
		parts := strings.Split(name, "/")
		if len(parts) != 10 || parts[0] != "projects" || parts[6] != "cryptoKeys" || parts[8] != "cryptoKeyVersions" || slices.Contains(parts, "") {
			return named{}, errNoKey
		}
		return named{"kms-" + digest("name", []byte(name)), &remote{service: service, name: name}}, nil
	}
	secret, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(secret) < minKey || len(secret) > maxKey {
		return named{}, errNoKey
	}
	return named{"key-" + digest("key", secret), local(secret)}, nil
}

// digest is the id of a key, computed from the key itself. After a key is replaced, its id is
// unknown: intents with its MACs wait and are not refused.
func digest(kind string, of []byte) string {
	sum := sha256.Sum256(encode(domain, kind, string(of)))
	return hex.EncodeToString(sum[:8])
}

// local is a key that this process has.
type local []byte

func (k local) sum(_ context.Context, data []byte) ([]byte, error) {
	h := hmac.New(sha256.New, k)
	h.Write(data)
	return h.Sum(nil), nil
}

func (k local) check(ctx context.Context, data, sum []byte) (bool, error) {
	want, err := k.sum(ctx, data)
	return hmac.Equal(want, sum), err
}

// remote is a key that a service has.
type remote struct {
	service Service
	name    string
	proved  proved
}

func (k *remote) sum(ctx context.Context, data []byte) ([]byte, error) {
	sum, err := k.service.Sum(ctx, k.name, data)
	if err == nil && len(sum) != sha256.Size {
		err = fmt.Errorf("key %s made a MAC of %d bytes: want a key for HMAC_SHA256, which makes %d", k.name, len(sum), sha256.Size)
	}
	return sum, err
}

func (k *remote) check(ctx context.Context, data, sum []byte) (bool, error) {
	if k.proved.has(data, sum) {
		return true, nil
	}
	right, err := k.service.Check(ctx, k.name, data, sum)
	if right && err == nil {
		k.proved.add(data, sum)
	}
	return right, err
}

// provedMax bounds what [proved] remembers: 32 bytes each.
const provedMax = 10_000

// proved remembers valid MACs of one key, so that a waiting intent does not cost a call to
// Cloud KMS at every block. A valid MAC stays valid.
type proved struct {
	mu  sync.Mutex
	all map[[sha256.Size]byte]struct{}
}

func provedID(data, sum []byte) [sha256.Size]byte {
	return sha256.Sum256(encode(string(data), string(sum)))
}

func (p *proved) has(data, sum []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, ok := p.all[provedID(data, sum)]
	return ok
}

func (p *proved) add(data, sum []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.all == nil || len(p.all) >= provedMax {
		p.all = make(map[[sha256.Size]byte]struct{})
	}
	p.all[provedID(data, sum)] = struct{}{}
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
	sum, err := first.sum(ctx, message(t))
	if err != nil {
		return txmanager.MAC{}, fmt.Errorf("make the MAC of intent %s: %w", t.RequestID, err)
	}
	return txmanager.MAC{Key: first.id, Sum: sum}, nil
}

// Verify implements [txmanager.IntentVerifier].
func (k *Keys) Verify(ctx context.Context, t txmanager.IntentTerms, m txmanager.MAC) error {
	i := slices.IndexFunc(k.keys, func(one named) bool { return one.id == m.Key })
	if i < 0 {
		return fmt.Errorf("intent %s, MAC by key %q: %w", t.TxID, m.Key, txmanager.ErrMACKey)
	}
	right, err := k.keys[i].check(ctx, message(t), m.Sum)
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
