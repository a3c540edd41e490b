package signer

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdsa"
	"crypto/pbkdf2"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/ethereum/go-ethereum/crypto"
	"golang.org/x/crypto/scrypt"

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
	text, err := ReadFile(path, maxKeyFile)
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

// ReadFile reads a file of at most limit bytes.
func ReadFile(path string, limit int64) ([]byte, error) {
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

// maxKeystoreFile bounds one file of a keystore, in bytes; a real one has about 500.
const maxKeystoreFile = 64 << 10

// LoadKeystore reads each key file in a folder of go-ethereum's encrypted keystore, for accounts of one
// chain. Files that begin with a dot are ignored. One password, the first line of the file at
// passwordPath, opens them all. Opening one takes, by the keystore's default cost, a second and 256
// MiB.
//
// Errors name the file and never contain a key or the password.
func LoadKeystore(folder, passwordPath string, chainID uint64) (map[txmanager.Submitter]*ecdsa.PrivateKey, error) {
	text, err := os.ReadFile(passwordPath)
	if err != nil {
		return nil, fmt.Errorf("password of the keystore: %w", err)
	}
	password, _, _ := strings.Cut(string(text), "\n")
	files, err := os.ReadDir(folder)
	if err != nil {
		return nil, fmt.Errorf("keystore: %w", err)
	}
	keys := map[txmanager.Submitter]*ecdsa.PrivateKey{}
	for _, f := range files {
		if f.IsDir() || strings.HasPrefix(f.Name(), ".") { // a mounted secret has hidden folders for its versions
			continue
		}
		file, err := ReadFile(filepath.Join(folder, f.Name()), maxKeystoreFile)
		if err != nil {
			return nil, fmt.Errorf("keystore, file %s: %w", f.Name(), err)
		}
		key, err := DecryptKey(file, strings.TrimSuffix(password, "\r"))
		if err != nil {
			return nil, fmt.Errorf("keystore, file %s: %w", f.Name(), err)
		}
		s := eip155.NewSubmitter(chainID, eip155.Address(crypto.PubkeyToAddress(key.PublicKey)))
		if _, twice := keys[s]; twice {
			return nil, fmt.Errorf("keystore, file %s: the account has a file already", f.Name())
		}
		keys[s] = key
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("keystore %s: the folder has no key file", folder)
	}
	return keys, nil
}

// encrypted is a key file of version 3.
//
// Source: https://ethereum.org/en/developers/docs/data-structures-and-encoding/web3-secret-storage/
type encrypted struct {
	Version int    `json:"version"`
	Address string `json:"address"` // without 0x; some writers omit it
	Crypto  struct {
		Cipher       string `json:"cipher"`
		CipherText   string `json:"ciphertext"`
		CipherParams struct {
			IV string `json:"iv"`
		} `json:"cipherparams"`
		KDF       string    `json:"kdf"`
		KDFParams kdfParams `json:"kdfparams"`
		MAC       string    `json:"mac"`
	} `json:"crypto"`
}

// kdfParams are the parameters of scrypt (n, r, p) or of PBKDF2 (c, prf).
type kdfParams struct {
	Salt  string `json:"salt"`
	DKLen int    `json:"dklen"`
	N     int    `json:"n"`
	R     int    `json:"r"`
	P     int    `json:"p"`
	C     int    `json:"c"`
	PRF   string `json:"prf"`
}

// errKeyFile reports a file that is not a key file of version 3.
var errKeyFile = errors.New("not an encrypted key file of version 3 (aes-128-ctr with scrypt or pbkdf2)")

// DecryptKey decrypts a key file of version 3.
func DecryptKey(file []byte, password string) (*ecdsa.PrivateKey, error) {
	var e encrypted
	if json.Unmarshal(file, &e) != nil || e.Version != 3 || e.Crypto.Cipher != "aes-128-ctr" {
		return nil, errKeyFile
	}
	cipherText, err1 := hex.DecodeString(e.Crypto.CipherText)
	iv, err2 := hex.DecodeString(e.Crypto.CipherParams.IV)
	mac, err3 := hex.DecodeString(e.Crypto.MAC)
	if errors.Join(err1, err2, err3) != nil || len(iv) != aes.BlockSize {
		return nil, errKeyFile
	}
	derived, err := e.derive(password)
	if err != nil {
		return nil, err
	}
	if subtle.ConstantTimeCompare(crypto.Keccak256(derived[16:32], cipherText), mac) != 1 {
		return nil, errors.New("the password does not open it")
	}
	block, err := aes.NewCipher(derived[:16])
	if err != nil {
		return nil, errKeyFile
	}
	secret := make([]byte, len(cipherText))
	cipher.NewCTR(block, iv).XORKeyStream(secret, cipherText)
	key, err := crypto.ToECDSA(secret)
	if err != nil {
		return nil, errors.New("its content is not a private key of secp256k1")
	}
	address := eip155.Address(crypto.PubkeyToAddress(key.PublicKey))
	if said := strings.TrimPrefix(strings.ToLower(e.Address), "0x"); said != "" && "0x"+said != address.String() {
		return nil, errors.New("the file names another account than its key has")
	}
	return key, nil
}

// The largest cost that a file can request. scrypt works n times r times p on 128 bytes, with n times r
// and r times p of them in memory. Four times go-ethereum's own cost limits both, to 1 GiB and 512 MiB.
const (
	maxScrypt = 1 << 23
	maxRounds = 10_000_000
)

// derive derives 32 bytes from the password: one half decrypts, the other verifies.
func (e encrypted) derive(password string) ([]byte, error) {
	k := e.Crypto.KDFParams
	salt, err := hex.DecodeString(k.Salt)
	if err != nil || k.DKLen != 32 {
		return nil, errKeyFile
	}
	var derived []byte
	switch e.Crypto.KDF {
	case "scrypt":
		if min(k.N-1, k.R, k.P) < 1 || k.N > maxScrypt || k.R > maxScrypt/k.N || k.P > maxScrypt/k.N/k.R {
			return nil, errKeyFile
		}
		derived, err = scrypt.Key([]byte(password), salt, k.N, k.R, k.P, k.DKLen)
	case "pbkdf2":
		if k.PRF != "hmac-sha256" || k.C < 1 || k.C > maxRounds {
			return nil, errKeyFile
		}
		derived, err = pbkdf2.Key(sha256.New, password, salt, k.C, k.DKLen)
	default:
		return nil, errKeyFile
	}
	if err != nil {
		return nil, errKeyFile
	}
	return derived, nil
}
