package functions

import (
	"context"
	"crypto/ecdsa"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/fencepost/fencepost/shared/signer"
	"github.com/fencepost/fencepost/shared/signer/remote"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// signerKinds lists what opens each kind of signer that a deployment has. A new kind is added here.
var signerKinds = []func(*App) (signer.Kind, error){
	(*App).localKind,
	func(a *App) (signer.Kind, error) { return a.kms.Kind(), nil },
	func(a *App) (signer.Kind, error) {
		return remote.Kind(a.config.Signer.RemotesFile, a.config.Signer.Timeout)
	},
}

// openSigners opens the signers of this deployment: each kind of the list and the extensions' kinds. A
// submitter's registration names the one that it uses.
func (a *App) openSigners(context.Context) (err error) {
	if err := a.closeKept(); err != nil {
		return err
	}
	var kinds []signer.Kind
	for _, open := range signerKinds {
		kind, err := open(a)
		if err != nil {
			return err
		}
		kinds = append(kinds, kind)
	}
	for _, kind := range a.extensions.Signers {
		kinds = append(kinds, signer.Verified(kind))
	}
	a.signers, err = signer.NewDirectory(kinds...)
	return err
}

// localKind is the kind of the signer with this process's keys.
func (a *App) localKind() (signer.Kind, error) {
	keys, err := a.localKeys()
	if err != nil {
		return signer.Kind{}, err
	}
	local, err := signer.NewLocal(keys)
	return signer.LocalKind(local), err
}

// closeKept refuses secret files that other users of this machine could read. It skips Cloud Run,
// which has no other users and mounts secrets as readable by all.
func (a *App) closeKept() error {
	if a.config.Platform.OnCloudRun() {
		return nil
	}
	c := a.config.Signer
	files := map[string][]string{"signer.local.keysFile": {c.LocalKeysFile}, "signer.local.passwordFile": {c.LocalPasswordFile}, "signer.remotesFile": {c.RemotesFile}}
	if c.LocalKeystore != "" {
		entries, err := os.ReadDir(c.LocalKeystore)
		if err != nil {
			return fmt.Errorf("signer.local.keystore: %w", err)
		}
		for _, e := range entries {
			files["signer.local.keystore"] = append(files["signer.local.keystore"], filepath.Join(c.LocalKeystore, e.Name()))
		}
	}
	for _, setting := range slices.Sorted(maps.Keys(files)) {
		for _, path := range files[setting] {
			if err := ownersAlone(path); path != "" && err != nil {
				return fmt.Errorf("%s: %w", setting, err)
			}
		}
	}
	return nil
}

// ownersAlone returns an error if users other than the owner could read the file. It accepts a path
// that is not a regular file, as no secret is read from it.
func ownersAlone(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if mode := info.Mode(); mode.IsRegular() && mode.Perm()&0o077 != 0 {
		return fmt.Errorf("%s has mode %#o: other users of this machine could read it; set chmod 600", path, mode.Perm())
	}
	return nil
}

// localKeys returns the local keys; none in a function that never signs.
func (a *App) localKeys() (map[txmanager.Submitter]*ecdsa.PrivateKey, error) {
	c := a.config.Signer
	keys := map[txmanager.Submitter]*ecdsa.PrivateKey{}
	if c.LocalKeysFile != "" {
		plain, err := signer.LoadKeys(c.LocalKeysFile)
		if err != nil {
			return nil, err
		}
		maps.Copy(keys, plain)
	}
	if c.LocalKeystore != "" {
		opened, err := signer.LoadKeystore(c.LocalKeystore, c.LocalPasswordFile, a.config.Chain.ID)
		if err != nil {
			return nil, err
		}
		for s, key := range opened {
			if _, twice := keys[s]; twice {
				return nil, fmt.Errorf("%s has a key in signer.local.keysFile and another in signer.local.keystore: leave one out", s)
			}
			keys[s] = key
		}
	}
	return keys, nil
}
