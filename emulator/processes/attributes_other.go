//go:build unix && !linux

package processes

import "syscall"

// attributes of a child: a process group of its own, so that Ctrl-C at the
// terminal reaches only the parent, which then stops its children in order.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
