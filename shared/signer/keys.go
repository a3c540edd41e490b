package signer

import (
	"crypto/ecdsa"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/ethereum/go-ethereum/crypto"

	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// maxKeyFile bounds a key file in bytes: about eight thousand keys.
const maxKeyFile = 1 << 20

// LoadKeys reads the key file at path, with one line for each submitter:
//
//	eip155:<chainId>:0x<40 hex digits>=<64 hex digits of the private key, with or without 0x>
//
// Empty lines and lines that begin with # are ignored. Each key must be that of its account, and each
// account may occur once. Errors name the line and never contain its text, because a mistake may have
// put a key anywhere.
func LoadKeys(path string) (map[txmanager.Submitter]*ecdsa.PrivateKey, error) {
	text, err := readFile(path, maxKeyFile)
	if err != nil {
		return nil, fmt.Errorf("key file: %w", err)
	}
	keys := map[txmanager.Submitter]*ecdsa.PrivateKey{}
	for i, line := range strings.Split(string(text), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if err := readKey(keys, line); err != nil {
			return nil, fmt.Errorf("key file, line %d: %w", i+1, err)
		}
	}
	return keys, nil
}

// readFile reads a file of at most limit bytes.
func readFile(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(text)) > limit {
		err = fmt.Errorf("want at most %d bytes", limit)
	}
	return text, err
}

func readKey(keys map[txmanager.Submitter]*ecdsa.PrivateKey, line string) error {
	account, digits, _ := strings.Cut(line, "=")
	s, err := eip155.ParseSubmitter(strings.TrimSpace(account), 0)
	if err != nil {
		return errors.New("want eip155:<chainId>:0x<40 hex digits>=<private key>")
	}
	secret, err := hex.DecodeString(strings.TrimPrefix(strings.TrimSpace(digits), "0x"))
	if err != nil {
		return errors.New("want the private key as 64 hex digits")
	}
	key, err := crypto.ToECDSA(secret)
	if err != nil {
		return errors.New("want a private key of secp256k1, 64 hex digits")
	}
	if eip155.Address(crypto.PubkeyToAddress(key.PublicKey)) != s.Address() {
		return errors.New("the key is of another account than the line names")
	}
	if _, twice := keys[s]; twice {
		return errors.New("the account has a line already")
	}
	keys[s] = key
	return nil
}
