package anvil

import "syscall"

// attributes returns the process attributes of a child: it dies with the thread that made it, and a Ctrl-C at
// the terminal reaches only this process.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
