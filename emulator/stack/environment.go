package stack

// Environment returns the environment of every function process, in the form of [os.Environ]. A business'
// own program that posts requests gets the same.
func (s *Stack) Environment() []string { return list(s.settings) }
