package signer_test

import (
	"crypto/ecdsa"
	"encoding/json"
	"maps"
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

// An error shows neither password nor key. A file that requests more time or memory than a real one is not opened.
func TestLoadKeystoreErrorsNameTheFile(t *testing.T) {
	t.Parallel()
	key, _ := newKey(t)
	costs := func(n, r, p int) func(t *testing.T, folder, _ string) {
		return func(t *testing.T, folder, _ string) {
			change(t, folder, "-2", func(_, crypto map[string]any) {
				maps.Copy(crypto["kdfparams"].(map[string]any), map[string]any{"n": n, "r": r, "p": p})
			})
		}
	}
	const none, noKeyFile = "", "not an encrypted key file"
	for name, c := range map[string]struct {
		want  string // part of the error
		spoil func(t *testing.T, folder, password string)
	}{
		"wrong password": {none, func(t *testing.T, _, password string) { write(t, password, "battery staple\ncorrect horse") }},
		"no password":    {none, func(t *testing.T, _, password string) { _ = os.Remove(password) }},
		"not JSON":       {none, func(t *testing.T, folder, _ string) { write(t, filepath.Join(folder, "a"), hexOf(key)) }},
		"another version": {none, func(t *testing.T, folder, _ string) {
			change(t, folder, "", func(file, _ map[string]any) { file["version"] = 1 })
		}},
		"another account": {none, func(t *testing.T, folder, _ string) {
			change(t, folder, "", func(file, _ map[string]any) { file["address"] = strings.Repeat("0", 40) })
		}},
		"the same again": {none, func(t *testing.T, folder, _ string) { change(t, folder, "-2", func(_, _ map[string]any) {}) }},
		"too large":      {none, func(t *testing.T, folder, _ string) { write(t, filepath.Join(folder, "a"), strings.Repeat(" ", 1<<17)) }},
		"nothing in it":  {none, func(t *testing.T, folder, _ string) { _ = os.Remove(only(t, folder)) }},
		"a flipped bit": {none, func(t *testing.T, folder, _ string) {
			change(t, folder, "", func(_, crypto map[string]any) {
				text := common.FromHex(crypto["ciphertext"].(string))
				text[0] ^= 1
				crypto["ciphertext"] = common.Bytes2Hex(text)
			})
		}},
		"memory for n":     {noKeyFile, costs(1<<21, 8, 1)},
		"more for n":       {noKeyFile, costs(1<<26, 8, 6)},
		"memory for p":     {noKeyFile, costs(2, 1<<20, 8)},
		"time":             {noKeyFile, costs(1<<16, 8, 32)},
		"beyond a product": {noKeyFile, costs(1<<40, 1<<40, 1<<40)},
		"no cost":          {noKeyFile, costs(0, 8, 6)},
		"below 1":          {noKeyFile, costs(-2, -8, 1)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			folder, password := keystore(t, "correct horse", key)
			c.spoil(t, folder, password)
			_, err := signer.LoadKeystore(folder, password, 1)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("got %v, want an error with %q", err, c.want)
			}
			for _, secret := range []string{"correct horse", "battery staple", hexOf(key)} {
				if strings.Contains(err.Error(), secret) {
					t.Errorf("got %q, want no secret in it", err)
				}
			}
		})
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

// change edits the only file of a folder, and stores it with a suffix to its name.
func change(t *testing.T, folder, suffix string, edit func(file, crypto map[string]any)) {
	t.Helper()
	path := only(t, folder)
	var file map[string]any
	check.OK(t)(json.Unmarshal(check.Value(os.ReadFile(path))(t), &file))
	edit(file, file["crypto"].(map[string]any))
	write(t, path+suffix, string(check.Value(json.Marshal(file))(t)))
}
