package main

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// instruction is a line of a Dockerfile, such as COPY and its arguments.
type instruction struct {
	name, arguments string
}

// stage is the instructions after a FROM.
type stage []instruction

// parse returns the stages of a Dockerfile. It knows the instructions that ours use.
func parse(text string) (stages []stage, err error) {
	text = regexp.MustCompile(`(?m)^\s*#.*\n`).ReplaceAllString(text, "")
	text = strings.ReplaceAll(text, "\\\n", " ")
	known := []string{"ARG", "FROM", "ENV", "WORKDIR", "COPY", "RUN", "USER", "EXPOSE", "ENTRYPOINT", "CMD"}
	for line := range strings.Lines(text) {
		name, arguments, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch {
		case name == "":
		case !slices.Contains(known, name):
			return nil, fmt.Errorf("%s: an instruction that this program does not know", name)
		case name == "FROM":
			stages = append(stages, stage{})
		case len(stages) > 0: // an ARG before the first FROM names its image
			i := len(stages) - 1
			stages[i] = append(stages[i], instruction{name, strings.TrimSpace(arguments)})
		}
	}
	if len(stages) < 2 {
		return nil, fmt.Errorf("got %d stages, want one that builds and one that is the image", len(stages))
	}
	return stages, nil
}

// ignored returns a function that reports whether .dockerignore keeps a path of the context, relative and
// with slashes, out. Of several lines that match the last counts.
func ignored(text string) (func(string) bool, error) {
	type rule struct {
		pattern string
		keep    bool
	}
	var rules []rule
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		pattern, keep := strings.CutPrefix(line, "!")
		if _, err := path.Match(pattern, ""); err != nil {
			return nil, fmt.Errorf(".dockerignore: %q: %w", line, err)
		}
		rules = append(rules, rule{pattern, keep})
	}
	return func(file string) (out bool) {
		for _, r := range rules {
			if matches(r.pattern, file) {
				out = !r.keep
			}
		}
		return out
	}, nil
}

// matches reports whether the pattern matches the path, or a folder above it.
func matches(pattern, file string) bool {
	if rest, anywhere := strings.CutPrefix(pattern, "**/"); anywhere {
		matched, _ := path.Match(rest, path.Base(file)) // checked by ignored
		return matched
	}
	for ; file != "."; file = path.Dir(file) {
		if matched, _ := path.Match(pattern, file); matched {
			return true
		}
	}
	return false
}
