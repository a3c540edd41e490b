package signertest

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdsa"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/ethereum/go-ethereum/crypto"
	"golang.org/x/crypto/scrypt"
)

// The lowest cost of go-ethereum's own key files (--lightkdf).
const (
	lightN, lightP = 4096, 6
	blockSize      = 8
)

// KeyFile returns a key in the format of go-ethereum's encrypted keystore, at a low cost.
func KeyFile(key *ecdsa.PrivateKey, password string) ([]byte, error) {
	salt, iv := make([]byte, 32), make([]byte, aes.BlockSize)
	rand.Read(salt) // never fails: crypto/rand
	rand.Read(iv)
	derived, err := scrypt.Key([]byte(password), salt, lightN, blockSize, lightP, 32)
	if err != nil {
		return nil, fmt.Errorf("write a key file: %w", err)
	}
	block, err := aes.NewCipher(derived[:16])
	if err != nil {
		return nil, fmt.Errorf("write a key file: %w", err)
	}
	secret := crypto.FromECDSA(key)
	cipher.NewCTR(block, iv).XORKeyStream(secret, secret)
	return json.Marshal(map[string]any{
		"version": 3, "id": "3198bc9c-6672-5ab3-d995-4942343ae5b6", "address": hex.EncodeToString(crypto.PubkeyToAddress(key.PublicKey).Bytes()),
		"crypto": map[string]any{
			"cipher": "aes-128-ctr", "ciphertext": hex.EncodeToString(secret), "cipherparams": map[string]any{"iv": hex.EncodeToString(iv)},
			"kdf": "scrypt", "kdfparams": map[string]any{"n": lightN, "r": blockSize, "p": lightP, "dklen": 32, "salt": hex.EncodeToString(salt)},
			"mac": hex.EncodeToString(crypto.Keccak256(derived[16:32], secret)),
		},
	})
}
