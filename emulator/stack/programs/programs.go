package stack

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/fencepost/fencepost/emulator/stack/command"
	"github.com/fencepost/fencepost/shared/crash"
)

const (
	module        = "github.com/fencepost/fencepost/"
	serverPackage = "functions/server"
)

// Build compiles the function server with crash points into folder and returns its path. It runs in the
// module's tree.
func Build(ctx context.Context, folder string, flags ...string) (string, error) {
	return BuildProgram(ctx, folder, serverPackage, flags...)
}

// BuildProgram compiles another main package of the module in the same way, such as the function server
// with a business' handlers.
func BuildProgram(ctx context.Context, folder, program string, flags ...string) (string, error) {
	return buildShown(ctx, io.Discard, folder, program, flags...)
}

// buildShown is [BuildProgram], and shows what it compiles.
func buildShown(ctx context.Context, out io.Writer, folder, program string, flags ...string) (string, error) {
	path := filepath.Join(folder, "server")
	args := append([]string{"build", "-v", "-tags", crash.Tag, "-o", path}, flags...)
	build := exec.CommandContext(ctx, "go", append(args, module+program)...)
	build.WaitDelay = time.Second // its compilers hold the output open after ctx has ended
	p := &buildProgress{line: command.NewLine(out), program: program, began: time.Now()}
	if out != io.Discard {
		p.all = stale(ctx, program)
	}
	build.Stdout, build.Stderr = p, p
	if err := build.Run(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", program, err, p.text.String())
	}
	p.end()
	return path, nil
}

// stale returns the number of packages that have to be compiled; 0: unknown.
func stale(ctx context.Context, program string) int {
	list, err := exec.CommandContext(ctx, "go", "list", "-tags", crash.Tag, "-deps", "-f", "{{if .Stale}}{{.ImportPath}}{{end}}", module+program).Output()
	if err != nil {
		return 0 // the build says why
	}
	return bytes.Count(list, []byte("\n"))
}

// buildProgress reads the output of go build -v: one line for each package, and the errors.
type buildProgress struct {
	line    *command.Line
	program string
	all     int
	began   time.Time

	mu   sync.Mutex
	rest []byte // the begin of a line
	done int
	text strings.Builder // of the lines that name no package
}

// Write implements [io.Writer].
func (p *buildProgress) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rest = append(p.rest, b...)
	for {
		line, rest, ok := bytes.Cut(p.rest, []byte("\n"))
		if !ok {
			return len(b), nil
		}
		p.rest = rest
		if bytes.ContainsAny(line, " :#") {
			fmt.Fprintf(&p.text, "%s\n", line)
			continue
		}
		p.done++
		p.line.Show("%s", p.state())
	}
}

func (p *buildProgress) state() string {
	return fmt.Sprintf("Building %s: %d of %d packages, %s", p.program, p.done, max(p.all, p.done), time.Since(p.began).Round(time.Second))
}

// end shows the result, unless there was nothing to compile.
func (p *buildProgress) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done > 0 {
		p.line.End("%s.", p.state())
	}
}
