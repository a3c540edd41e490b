// Command address prints the account of a public key in PEM, which it reads from standard input. scripts/kms-address gives it
// the keys of Cloud KMS.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/ethereum/go-ethereum/common"

	"github.com/fencepost/fencepost/shared/buildinfo"
	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/signer/kms"
)

const usage = `usage: address [--chain ID] < PEM

Prints the checksummed address of a public key on secp256k1. With --chain it prints the account's full name,
eip155:ID:0x…. --version prints the version and the commit instead.
`

// Exit codes.
const (
	exitOK = iota
	exitFailed
	exitUsage
)

// maxSize bounds the input, in bytes. A key has some 200.
const maxSize = 64 << 10

func main() {
	if buildinfo.PrintVersion("address", os.Args[1:], os.Stdout) {
		return
	}
	os.Exit(realMain(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

func realMain(args []string, in io.Reader, out, errs io.Writer) int {
	set := flag.NewFlagSet("address", flag.ContinueOnError)
	set.SetOutput(errs)
	set.Usage = func() { fmt.Fprint(errs, usage) }
	chain := set.Uint64("chain", 0, "")
	if err := set.Parse(args); errors.Is(err, flag.ErrHelp) {
		return exitOK
	} else if err != nil {
		return exitUsage
	}
	named := false
	set.Visit(func(*flag.Flag) { named = true })
	if set.NArg() > 0 || named && *chain == 0 {
		fmt.Fprintln(errs, "address: want at most --chain ID, where ID is above 0")
		return exitUsage
	}
	address, err := read(in)
	if err == nil {
		if named {
			address = fmt.Sprintf("%s:%d:%s", eip155.Namespace, *chain, address)
		}
		_, err = fmt.Fprintln(out, address)
	}
	if err != nil {
		fmt.Fprintln(errs, "address:", err)
		return exitFailed
	}
	return exitOK
}

// read returns the address of the key in the form of EIP-55.
func read(in io.Reader) (string, error) {
	text, err := io.ReadAll(io.LimitReader(in, maxSize+1))
	switch {
	case err != nil:
		return "", fmt.Errorf("read the public key: %w", err)
	case len(text) > maxSize:
		return "", fmt.Errorf("got more than %d bytes, want one public key in PEM", maxSize)
	}
	address, err := kms.AddressOf(string(text))
	if err != nil {
		return "", err
	}
	return common.Address(eip155.MustBytes(address)).Hex(), nil
}
