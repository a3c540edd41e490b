// Package programs compiles programs of the module for the emulator and for tests.
package programs

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/fencepost/fencepost/emulator/stack/command"
	"github.com/fencepost/fencepost/emulator/stack/steps"
	"github.com/fencepost/fencepost/shared/crash"
)

const module = "github.com/fencepost/fencepost/"

// sharedVariable names a folder, if it is set. All packages of one run of tests share the programs that they build:
// linking the function server takes longer than many tests.
const sharedVariable = "BUILT_PROGRAMS"

// Build compiles a main package with crash points into folder and returns the program's path. It runs in the module's
// tree, and shows on out what it compiles.
func Build(ctx context.Context, out io.Writer, folder, program string, flags ...string) (path string, err error) {
	defer steps.Return(&err)
	name := strings.ReplaceAll(program, "/", "-")
	shared := os.Getenv(sharedVariable)
	if shared == "" {
		path = filepath.Join(folder, name)
		return path, build(ctx, out, path, program, flags)
	}
	path = filepath.Join(shared, fmt.Sprintf("%s-%x", name, sha256.Sum256([]byte(strings.Join(flags, " "))))[:len(name)+9])
	lock := steps.Value(os.OpenFile(path+".lock", os.O_CREATE|os.O_WRONLY, 0o600))
	defer lock.Close()
	steps.OK(syscall.Flock(int(lock.Fd()), syscall.LOCK_EX), "lock ", lock.Name())
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	steps.OK(build(ctx, out, path+".part", program, flags))
	return path, os.Rename(path+".part", path)
}

// build leaves out the tables for debuggers: they double the time to link.
func build(ctx context.Context, out io.Writer, path, program string, flags []string) error {
	args := append([]string{"build", "-v", "-ldflags=-s -w", "-tags", crash.Tag, "-o", path}, flags...)
	build := exec.CommandContext(ctx, "go", append(args, module+program)...)
	build.WaitDelay = time.Second // its compilers hold the output open after ctx has ended
	p := &progress{out: out, terminal: command.IsTerminal(out), program: program, began: time.Now(), shown: time.Now()}
	if out != io.Discard {
		p.all = stale(ctx, program)
	}
	output := &command.Lines{Line: p.read}
	build.Stdout, build.Stderr = output, output
	if err := build.Run(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", program, err, p.text.String())
	}
	p.end()
	return nil
}

// stale returns the number of packages that have to be compiled; 0: unknown.
func stale(ctx context.Context, program string) int {
	list, err := exec.CommandContext(ctx, "go", "list", "-tags", crash.Tag, "-deps", "-f", "{{if .Stale}}{{.ImportPath}}{{end}}", module+program).Output()
	if err != nil {
		return 0 // the build says why
	}
	return bytes.Count(list, []byte("\n"))
}

// progress gets each line that go build -v writes: one for each package, and the errors. On a terminal it shows one line,
// drawn again in its place; elsewhere it prints a line every ten seconds.
type progress struct {
	out      io.Writer
	terminal bool
	program  string
	all      int
	began    time.Time
	shown    time.Time
	done     int
	text     strings.Builder // of the lines that name no package
}

const showEvery = 10 * time.Second

func (p *progress) read(line string) {
	if strings.ContainsAny(line, " :#") {
		fmt.Fprintln(&p.text, line)
		return
	}
	p.done++
	switch {
	case p.terminal:
		p.show("", "")
	case time.Since(p.shown) >= showEvery:
		p.shown = time.Now()
		p.show("", "\n")
	}
}

func (p *progress) show(point, end string) {
	if p.terminal {
		fmt.Fprint(p.out, "\r")
		point += "\x1b[K" // clears the rest of the line
	}
	fmt.Fprintf(p.out, "Building %s: %d of %d packages, %s%s%s",
		p.program, p.done, max(p.all, p.done), time.Since(p.began).Round(time.Second), point, end)
}

// end shows the result, unless there was nothing to compile.
func (p *progress) end() {
	if p.done > 0 {
		p.show(".", "\n")
	}
}
