package signin

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Sealer encrypts cookies, and makes the tokens of forms, by the session keys. The first key is used, and each
// is accepted.
type Sealer struct {
	ciphers []cipher.AEAD
	macKeys [][]byte
	now     func() time.Time
}

// NewSealer returns a sealer for session keys, each the base64 of at least 32 random bytes.
func NewSealer(keys []string) (*Sealer, error) {
	if len(keys) == 0 {
		return nil, errors.New("the console needs a session key")
	}
	s := &Sealer{now: time.Now}
	for i, text := range keys {
		key, err := base64.StdEncoding.DecodeString(text)
		if err != nil || len(key) < 32 {
			return nil, fmt.Errorf("session key %d is not the base64 of at least 32 bytes", i+1)
		}
		sealing, err := hkdf.Key(sha256.New, key, nil, "console: cookies", 32)
		if err != nil {
			return nil, err
		}
		block, err := aes.NewCipher(sealing)
		if err != nil {
			return nil, err
		}
		aead, err := cipher.NewGCMWithRandomNonce(block)
		if err != nil {
			return nil, err
		}
		macKey, err := hkdf.Key(sha256.New, key, nil, "console: forms", 32)
		if err != nil {
			return nil, err
		}
		s.ciphers, s.macKeys = append(s.ciphers, aead), append(s.macKeys, macKey)
	}
	return s, nil
}

// seal encrypts a value. Only [Sealer.open] with the same purpose reads it.
func (s *Sealer) seal(purpose string, value any) (string, error) {
	plain, err := json.Marshal(value)
	if err != nil {
		return "", err
	}
	return base64.RawURLEncoding.EncodeToString(s.ciphers[0].Seal(nil, nil, plain, []byte(purpose))), nil
}

// open reads a sealed text into value, a pointer. It returns false if no key has sealed the text for the
// purpose.
func (s *Sealer) open(purpose, text string, value any) bool {
	sealed, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return false
	}
	for _, aead := range s.ciphers {
		if plain, err := aead.Open(nil, nil, sealed, []byte(purpose)); err == nil {
			return json.Unmarshal(plain, value) == nil
		}
	}
	return false
}

// FormToken returns the token that the forms of a session have today.
func (s *Sealer) FormToken(session string) string { return formToken(s.macKeys[0], session, s.now()) }

// FormTokenIs reports whether the token is one of the session's of today or yesterday, in constant time.
func (s *Sealer) FormTokenIs(session, token string) bool {
	ok, now := false, s.now().UTC()
	for _, key := range s.macKeys {
		for _, day := range []time.Time{now, now.AddDate(0, 0, -1)} {
			ok = hmac.Equal([]byte(formToken(key, session, day)), []byte(token)) || ok
		}
	}
	return ok
}

func formToken(key []byte, session string, day time.Time) string {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(day.UTC().Format(time.DateOnly) + " " + session))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}
