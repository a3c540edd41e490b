package clef_test

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/crypto"

	"github.com/fencepost/fencepost/emulator/fake/clef"
	"github.com/fencepost/fencepost/emulator/verify/torture/retry"
	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/signer/remote"
	"github.com/fencepost/fencepost/shared/signer/signertest"
)

// A signer over clef keeps the contract of all signers.
func TestClefContract(t *testing.T) {
	t.Parallel()
	path := program(t)
	signertest.Run(t, func(t *testing.T) signertest.Fixture {
		key := check.Value(crypto.GenerateKey())(t)
		child := check.Value(clef.Start(t.Context(), clef.Options{Path: path, ChainID: 1337, Keys: []*ecdsa.PrivateKey{key}}))(t)
		t.Cleanup(func() {
			check.OK(t)(child.Close())
		})
		s := check.Value(remote.New(remote.Options{Name: "clef", URL: child.URL(), Method: remote.AccountSign, Timeout: 20 * time.Second}))(t)
		t.Cleanup(s.Close)
		return signertest.Fixture{Signer: s, Submitter: eip155.NewSubmitter(1337, eip155.Address(crypto.PubkeyToAddress(key.PublicKey))),
			Secrets: []string{hex.EncodeToString(crypto.FromECDSA(key))}}
	})
}

// program returns clef's path.
func program(t *testing.T) string {
	t.Helper()
	path := os.Getenv("FENCEPOST_TEST_CLEF")
	if path == "" {
		t.Skip("FENCEPOST_TEST_CLEF is not set to a clef program: go install github.com/ethereum/go-ethereum/cmd/clef@v1.16.7 makes one")
	}
	return path
}

// owner is the variable that makes this test, in another process, start a clef and wait to be killed.
const owner = "FENCEPOST_TEST_OWNER_OF_CLEF"

// A clef that approves every request ends with the process that started it, even if that is killed.
func TestClefEndsWithItsOwner(t *testing.T) {
	t.Parallel()
	path := program(t)
	if os.Getenv(owner) != "" {
		child := check.Value(clef.Start(t.Context(), clef.Options{Path: path, ChainID: 1337}))(t)
		fmt.Println("clef is at", child.URL())
		select {}
	}
	if runtime.GOOS != "linux" {
		t.Skip("only Linux has a parent-death signal")
	}
	self := check.Value(os.Executable())(t)
	cmd := exec.Command(self, "-test.run=^TestClefEndsWithItsOwner$")
	cmd.Env = append(os.Environ(), owner+"=1", "TMPDIR="+t.TempDir())
	out := check.Value(cmd.StdoutPipe())(t)
	check.OK(t)(cmd.Start())
	var address string
	for lines := bufio.NewScanner(out); address == "" && lines.Scan(); {
		_, address, _ = strings.Cut(lines.Text(), "clef is at http://")
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if address == "" {
		t.Fatal("clef was not started")
	}
	gone := func() bool {
		c, err := net.Dial("tcp", address)
		if err == nil {
			_ = c.Close()
		}
		return err != nil
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if !retry.Await(ctx, 20*time.Millisecond, gone) {
		t.Fatal("its owner was killed: got clef still there after two minutes, want it dead")
	}
}
