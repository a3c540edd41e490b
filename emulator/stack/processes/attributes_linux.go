package processes

import "syscall"

// Attributes returns a child's attributes. The child ends with the thread that started it. It has its own
// process group, so that Ctrl-C at the terminal reaches only the parent, which then stops its children.
func Attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
