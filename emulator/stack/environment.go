package stack

// Environment is what every function process is given, in the form of
// [os.Environ]: a business' own program that posts requests has the same.
func (s *Stack) Environment() []string { return list(s.settings) }
