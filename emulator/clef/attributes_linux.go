package clef

import "syscall"

// attributes of the child: it dies with the thread that made it, and a Ctrl-C at the
// terminal reaches only this process.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
