package signer_test

import (
	"crypto/ecdsa"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"

	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/signer"
	"github.com/fencepost/fencepost/shared/signer/signertest"
)

// The test vectors of the format's specification: one for each key derivation.
const (
	vectorPassword = "testpassword"
	vectorKey      = "7a28b5ba57c53603b0b07b56bba752f7784bf506fa95edc395f5cf6c7514fe9d"
	vectorPBKDF2   = `{"crypto": {"cipher": "aes-128-ctr", "cipherparams": {"iv": "6087dab2f9fdbbfaddc31a909735c1e6"},
		"ciphertext": "5318b4d5bcd28de64ee5559e671353e16f075ecae9f99c7a79a38af5f869aa46", "kdf": "pbkdf2",
		"kdfparams": {"c": 262144, "dklen": 32, "prf": "hmac-sha256", "salt": "ae3cd4e7013836a3df6bd7241b12db061dbe2c6785853cce422d148a624ce0bd"},
		"mac": "517ead924a9d0dc3124507e3393d175ce3ff7c1e96529c6c555ce9e51205e9b2"}, "id": "3198bc9c-6672-5ab3-d995-4942343ae5b6", "version": 3}`
	vectorScrypt = `{"crypto": {"cipher": "aes-128-ctr", "cipherparams": {"iv": "83dbcc02d8ccb40e466191a123791e0e"},
		"ciphertext": "d172bf743a674da9cdad04534d56926ef8358534d458fffccd4e6ad2fbde479c", "kdf": "scrypt",
		"kdfparams": {"dklen": 32, "n": 262144, "r": 1, "p": 8, "salt": "ab0c7876052600dd703518d6fc3fe8984592145b591fc8fb5c6d43190334ba19"},
		"mac": "2103ac29920d71da29f15d75b4a16dbe95cfd7ff8faea1056c33131d846e3097"}, "id": "3198bc9c-6672-5ab3-d995-4942343ae5b6", "version": 3}`
)

func TestDecryptKeyMatchesTheVectors(t *testing.T) {
	t.Parallel()
	for name, file := range map[string]string{"pbkdf2": vectorPBKDF2, "scrypt": vectorScrypt} {
		key := check.Value(signer.DecryptKey([]byte(file), vectorPassword))(t)
		check.Equal(t, name+": key", common.Bytes2Hex(crypto.FromECDSA(key)), vectorKey)
		if _, err := signer.DecryptKey([]byte(file), vectorPassword+"s"); err == nil { // the file has no address to compare with
			t.Errorf("%s, by another password: got nil, want an error", name)
		}
	}
}

// keystore is a folder with a file for each key, and the path of their password's file.
func keystore(t *testing.T, password string, keys ...*ecdsa.PrivateKey) (folder, passwordPath string) {
	t.Helper()
	folder, passwordPath = t.TempDir(), filepath.Join(t.TempDir(), "password")
	for _, key := range keys {
		file := check.Value(signertest.KeyFile(key, password))(t)
		write(t, filepath.Join(folder, "UTC--"+crypto.PubkeyToAddress(key.PublicKey).Hex()), string(file))
	}
	write(t, passwordPath, password+"\n")
	return folder, passwordPath
}

func write(t *testing.T, path, text string) {
	t.Helper()
	check.OK(t)(os.WriteFile(path, []byte(text), 0o600))
}

// A signer with the keys of an encrypted keystore fulfils the contract of all signers.
func TestKeystoreSignerFulfilsTheContract(t *testing.T) {
	t.Parallel()
	signertest.Run(t, func(t *testing.T) signertest.Fixture {
		key, address := newKey(t)
		folder, password := keystore(t, "correct horse", key)
		write(t, filepath.Join(folder, ".hidden"), "not a key file")
		keys := check.Value(signer.LoadKeystore(folder, password, 1337))(t)
		local := check.Value(signer.NewLocal(keys))(t)
		return signertest.Fixture{Signer: local, Submitter: eip155.NewSubmitter(1337, address), Secrets: []string{hexOf(key), "correct horse"}}
	})
}

// An error names the file that cannot be opened, and shows neither password nor key.
func TestLoadKeystoreErrorsNameTheFile(t *testing.T) {
	t.Parallel()
	key, _ := newKey(t)
	for name, spoil := range map[string]func(t *testing.T, folder, password string){
		"wrong password":  func(t *testing.T, _, password string) { write(t, password, "battery staple\ncorrect horse") },
		"no password":     func(t *testing.T, _, password string) { _ = os.Remove(password) },
		"not JSON":        func(t *testing.T, folder, _ string) { write(t, filepath.Join(folder, "a"), hexOf(key)) },
		"another version": func(t *testing.T, folder, _ string) { edit(t, folder, "version", 1) },
		"another account": func(t *testing.T, folder, _ string) { edit(t, folder, "address", strings.Repeat("0", 40)) },
		"the same again":  func(t *testing.T, folder, _ string) { copyOf(t, folder, nil) },
		"too dear":        func(t *testing.T, folder, _ string) { copyOf(t, folder, map[string]any{"n": 1 << 26}) },
		"no cost":         func(t *testing.T, folder, _ string) { copyOf(t, folder, map[string]any{"n": 0}) },
		"too large":       func(t *testing.T, folder, _ string) { write(t, filepath.Join(folder, "a"), strings.Repeat(" ", 1<<17)) },
		"nothing in it":   func(t *testing.T, folder, _ string) { _ = os.Remove(only(t, folder)) },
		"damaged":         func(t *testing.T, folder, _ string) { damage(t, folder) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			folder, password := keystore(t, "correct horse", key)
			spoil(t, folder, password)
			_, err := signer.LoadKeystore(folder, password, 1)
			if err == nil {
				t.Fatal("got nil, want an error")
			}
			for _, secret := range []string{"correct horse", "battery staple", hexOf(key)} {
				if strings.Contains(err.Error(), secret) {
					t.Errorf("got %q, want no secret in it", err)
				}
			}
		})
	}
}

// A file that requests more time or memory than a real one is not opened.
func TestKeystoreRejectsHighCosts(t *testing.T) {
	t.Parallel()
	key, _ := newKey(t)
	for name, costs := range map[string]map[string]any{
		"memory for n":     {"n": 1 << 21, "r": 8, "p": 1},
		"memory for p":     {"n": 2, "r": 1 << 20, "p": 8},
		"time":             {"n": 1 << 16, "r": 8, "p": 32},
		"beyond a product": {"n": 1 << 40, "r": 1 << 40, "p": 1 << 40},
		"below 1":          {"n": -2, "r": -8, "p": 1},
	} {
		folder, password := keystore(t, "correct horse", key)
		copyOf(t, folder, costs)
		if _, err := signer.LoadKeystore(folder, password, 1); err == nil || !strings.Contains(err.Error(), "not an encrypted key file") {
			t.Errorf("%s: got %v, want it refused as no key file", name, err)
		}
	}
}

// only returns the only file of a folder.
func only(t *testing.T, folder string) string {
	t.Helper()
	files, err := os.ReadDir(folder)
	if err != nil || len(files) != 1 {
		t.Fatalf("files: got %d, %v, want one", len(files), err)
	}
	return filepath.Join(folder, files[0].Name())
}

func read(t *testing.T, path string) (file map[string]any) {
	t.Helper()
	text := check.Value(os.ReadFile(path))(t)
	check.OK(t)(json.Unmarshal(text, &file))
	return file
}

func put(t *testing.T, path string, file map[string]any) {
	t.Helper()
	text := check.Value(json.Marshal(file))(t)
	write(t, path, string(text))
}

// edit changes one field of the only file.
func edit(t *testing.T, folder, field string, to any) {
	t.Helper()
	path := only(t, folder)
	file := read(t, path)
	file[field] = to
	put(t, path, file)
}

// copyOf writes the only file a second time, with other costs.
func copyOf(t *testing.T, folder string, costs map[string]any) {
	t.Helper()
	path := only(t, folder)
	file := read(t, path)
	for name, value := range costs {
		file["crypto"].(map[string]any)["kdfparams"].(map[string]any)[name] = value
	}
	put(t, path+"-2", file)
}

// damage flips a bit of the ciphertext.
func damage(t *testing.T, folder string) {
	t.Helper()
	path := only(t, folder)
	file := read(t, path)
	text := common.FromHex(file["crypto"].(map[string]any)["ciphertext"].(string))
	text[0] ^= 1
	file["crypto"].(map[string]any)["ciphertext"] = common.Bytes2Hex(text)
	put(t, path, file)
}
