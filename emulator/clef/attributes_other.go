//go:build unix && !linux

package clef

import "syscall"

// attributes of the child: a Ctrl-C at the terminal reaches only this process. There is
// no parent-death signal, and a killed parent leaves its clef behind.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
