package anvil

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Version is the version to install if PATH has no anvil.
const Version = "1.7.1"

// ErrNotThere reports that this machine has no anvil and none could be installed. The wrapping error has the
// cause.
var ErrNotThere = errors.New("anvil is not there")

const (
	// installTime bounds the installation, including the wait for another process that installs.
	installTime = 2 * time.Minute
	// lockPoll is the interval for retrying a lock of another process: a blocking flock(2) has no time-out.
	lockPoll = 50 * time.Millisecond
)

// program returns the program's path. Each process looks it up and installs it once: if it is not available,
// a hundred tests must not wait for the registry a hundred times.
var program = sync.OnceValues(func() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = filepath.Join(os.TempDir(), "cache") // no home folder, as on a build machine
	}
	ctx, cancel := context.WithTimeout(context.Background(), installTime)
	defer cancel()
	path, err := locate(ctx, exec.LookPath, filepath.Join(cache, "fencepost"))
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrNotThere, err)
	}
	return path, nil
})

// locate returns the program found by look in PATH, else the one below cache, else it installs it there.
func locate(ctx context.Context, look func(string) (string, error), cache string) (string, error) {
	if path, err := look("anvil"); err == nil {
		return path, nil
	}
	folder := filepath.Join(cache, "anvil-"+Version)
	path := filepath.Join(folder, "node_modules", "@foundry-rs", "anvil-"+runtime.GOOS+"-"+runtime.GOARCH, "bin", "anvil")
	if executable(path) {
		return path, nil
	}
	npm, err := look("npm")
	if err != nil {
		return "", fmt.Errorf("neither PATH nor %s has it, and there is no npm in PATH to install it with", folder)
	}
	unlock, err := lock(ctx, folder+".lock")
	if err != nil {
		return "", fmt.Errorf("wait for another process that installs it: %w", err)
	}
	defer unlock()
	if executable(path) {
		return path, nil // another process has installed it
	}
	if err := install(ctx, npm, folder); err != nil {
		return "", fmt.Errorf("neither PATH nor %s has it, and npm could not install it: %w", folder, err)
	}
	if !executable(path) {
		return "", fmt.Errorf("npm has no anvil %s for %s on %s", Version, runtime.GOOS, runtime.GOARCH)
	}
	return path, nil
}

func executable(path string) bool {
	_, err := exec.LookPath(path)
	return err == nil
}

// lock takes the file for this process. The kernel frees it when the process ends in any way.
func lock(ctx context.Context, file string) (unlock func(), err error) {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(file, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	again := time.NewTicker(lockPoll)
	defer again.Stop()
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			_ = f.Close()
			return nil, err
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			_ = f.Close()
			return nil, ctx.Err()
		}
	}
}

// install puts the package into folder in one step, so that the remains of a killed npm never count as
// complete. The package's own scripts do not run.
func install(ctx context.Context, npm, folder string) error {
	part := folder + ".part"
	if err := errors.Join(os.RemoveAll(part), os.RemoveAll(folder), os.MkdirAll(part, 0o755)); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, npm, "install", "--prefix", part, "--ignore-scripts", "--include=optional",
		"--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=error",
		"--fetch-retries=1", "--fetch-retry-mintimeout=1000", "@foundry-rs/anvil@"+Version)
	cmd.SysProcAttr = attributes()
	cmd.WaitDelay = stopTime
	// An npm that outlived this process would write where the next one installs.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", errors.Join(err, ctx.Err()), firstLines(out))
	}
	return os.Rename(part, folder)
}

// firstLines returns the first lines of an error of npm. The many lines after them add nothing.
func firstLines(out []byte) string {
	lines := strings.Split(string(bytes.TrimSpace(out)), "\n")
	return strings.Join(lines[:min(len(lines), 4)], "; ")
}
