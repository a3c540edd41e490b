package functions

import (
	"context"
	"crypto/ecdsa"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fencepost/fencepost/functions/counted"
	"github.com/fencepost/fencepost/shared/signer"
	"github.com/fencepost/fencepost/shared/signer/remote"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/web"
)

// openSigners opens the signers that this deployment has. A submitter's registration names the one
// that it uses.
func (a *App) openSigners(context.Context) error {
	c := a.config.Signer
	if err := a.closeKept(); err != nil {
		return err
	}
	keys, err := a.localKeys()
	if err != nil {
		return err
	}
	local, err := signer.NewLocal(keys)
	if err != nil {
		return err
	}
	a.signers = signer.Directory{Local: local, KMS: func(version string) signer.Service { return a.kms.Key(version) }}
	if c.RemotesFile != "" {
		a.signers.Remotes, err = remote.Load(c.RemotesFile, c.Timeout)
	}
	return err
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
		return fmt.Errorf("%s has mode %#o: others on this machine could read it; want it readable by its owner alone, by chmod 600", path, mode.Perm())
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

// signerNamed returns the signer of that name, with its calls counted.
func (a *App) signerNamed(name string) txmanager.Signer {
	kind, _, _ := strings.Cut(name, ":")
	return counted.NewSigner(a.signers.For(name), kind)
}

// signerHasIt refuses a signer without a key of the account. The chain would reject its signatures,
// and the nonce would stay blocked for ever.
func (a *App) signerHasIt(r *http.Request, s txmanager.Submitter, name string) error {
	service, err := a.signers.Named(name)
	if err == nil {
		err = service.Check(r.Context(), s)
	}
	switch {
	case errors.Is(err, signer.ErrNoKey):
		return web.FieldProblem("signer", "cannot sign for the account: %v", err)
	case err != nil:
		return web.UnavailableBecause(err, "the signer could not be asked for the account; nothing was changed")
	}
	return nil
}
