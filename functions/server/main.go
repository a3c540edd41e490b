// Command server is the only program in the container image. It serves the function that
// FUNCTION_TARGET names, or all functions if it names none. A business that compiles in handlers
// writes a similar main.
package main

import "github.com/fencepost/fencepost/functions"

func main() { functions.Main(functions.Extensions{}) }
