// Command child reaches two points twice.
package main

import (
	"fmt"
	"os"

	"github.com/fencepost/fencepost/shared/crash"
)

func main() {
	p, err := crash.FromEnvironment()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for range 2 {
		p.At("a")
		p.At("b")
	}
	fmt.Print("alive")
}
