package pgcluster

import (
	"errors"
	"os"
	"os/user"
	"strconv"
	"syscall"
)

// processAttributes returns the keeper's process attributes. It runs in a separate session, so that an
// interrupt at the terminal reaches only its owner. It never runs as root, because Postgres refuses
// that.
func processAttributes() (*syscall.SysProcAttr, error) {
	attributes := &syscall.SysProcAttr{Setsid: true}
	if os.Geteuid() != 0 {
		return attributes, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		if credential, err := credentialOf(name); err == nil {
			attributes.Credential = credential
			return attributes, nil
		}
	}
	return nil, errors.New("Postgres refuses to run as root and this machine has neither a user postgres nor a user nobody: run this as another user")
}

// credentialOf looks up a user of this machine.
func credentialOf(name string) (*syscall.Credential, error) {
	account, err := user.Lookup(name)
	if err != nil {
		return nil, err
	}
	uid, err := strconv.ParseUint(account.Uid, 10, 32)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.ParseUint(account.Gid, 10, 32)
	if err != nil {
		return nil, err
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
}
