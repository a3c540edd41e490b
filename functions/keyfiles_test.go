package functions_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/functions"
	"github.com/fencepost/fencepost/shared/check"
)

// Files with keys, passwords and tokens that other users of the machine can read are refused, and the
// answer says what would be right. They are accepted on Cloud Run, which has no other users.
func TestOpenKeyFilesAreRefused(t *testing.T) {
	t.Parallel()
	h := build(t)
	folder := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(folder, name)
		check.OK(t)(os.MkdirAll(filepath.Dir(path), 0o700))
		check.OK(t)(os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	key := file("store/UTC--key", "no key")
	for _, c := range []struct{ setting, path, settings, otherwise string }{
		{"signer.local.keysFile", file("keys", "# none\n"), "FENCEPOST_SIGNER_LOCAL_KEYS_FILE=" + filepath.Join(folder, "keys"), ""},
		{"signer.remotesFile", file("remotes", "{}"), "FENCEPOST_SIGNER_REMOTES_FILE=" + filepath.Join(folder, "remotes"), ""},
		{"signer.local.passwordFile", file("password", "x"), "FENCEPOST_SIGNER_LOCAL_KEYSTORE=" + filepath.Dir(key) + " FENCEPOST_SIGNER_LOCAL_PASSWORD_FILE=" + filepath.Join(folder, "password"), "keystore, file UTC--key"},
		{"signer.local.keystore", key, "FENCEPOST_SIGNER_LOCAL_KEYSTORE=" + filepath.Dir(key) + " FENCEPOST_SIGNER_LOCAL_PASSWORD_FILE=" + filepath.Join(folder, "password"), "keystore, file UTC--key"},
	} {
		opens := func(mode os.FileMode, more ...string) string {
			t.Helper()
			check.OK(t)(os.Chmod(c.path, mode))
			return h.startError(functions.Extensions{}, append(strings.Fields(c.settings), more...)...)
		}
		for _, mode := range []os.FileMode{0o604, 0o640, 0o444, 0o660} {
			if got := opens(mode); !strings.HasPrefix(got, c.setting+": "+c.path) || !strings.Contains(got, "chmod 600") {
				t.Errorf("%s of mode %#o: got %q, want it refused", c.setting, mode, got)
			}
		}
		if got := opens(0o444, "K_SERVICE=fencepost-advance"); !strings.HasPrefix(got, c.otherwise) || c.otherwise == "" && got != "" {
			t.Errorf("%s of mode 0444 on Cloud Run: got %q, want it read", c.setting, got)
		}
		for _, mode := range []os.FileMode{0o600, 0o400} {
			if got := opens(mode); !strings.HasPrefix(got, c.otherwise) || c.otherwise == "" && got != "" {
				t.Errorf("%s of mode %#o: got %q, want it read", c.setting, mode, got)
			}
		}
	}
}
