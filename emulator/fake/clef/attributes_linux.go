package clef

import "syscall"

// attributes returns the child's attributes: it ends with the thread that started it, and a Ctrl-C at the
// terminal reaches only this process.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
