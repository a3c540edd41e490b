//go:build unix && !linux

package clef

import "syscall"

// attributes returns the child's attributes: a Ctrl-C at the terminal reaches only this process. There is
// no parent-death signal, so clef outlives a killed parent.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
