// Command server is the container image's one program: it serves the function
// that FUNCTION_TARGET names, or all of them where it names none. A business
// that compiles handlers in has a main of its own like this one.
package main

import "github.com/fencepost/fencepost/functions"

func main() { functions.Main(functions.Extensions{}) }
