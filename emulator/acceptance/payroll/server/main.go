// Command server is the functions with a business' handlers compiled in, and its
// decisions about STUCK transactions.
package main

import (
	"github.com/fencepost/fencepost/emulator/acceptance/payroll"
	"github.com/fencepost/fencepost/functions"
)

func main() {
	functions.Main(functions.Extensions{Handlers: payroll.Handlers(), Stuck: payroll.Impatient{}})
}
