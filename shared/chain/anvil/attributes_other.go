//go:build unix && !linux

package anvil

import "syscall"

// attributes returns the process attributes of a child: a Ctrl-C at the terminal reaches only this process.
// There is no parent-death signal, and a killed parent leaves its node behind.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
