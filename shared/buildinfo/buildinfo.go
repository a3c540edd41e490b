// Package buildinfo describes the build of the running program.
package buildinfo

import (
	"cmp"
	"fmt"
	"io"
	"runtime/debug"
	"slices"
	"sync"
)

// Version is the release that this source is, or becomes. Programs, answers, logs and metrics have it from here. Its git tag
// has a v in front.
const Version = "0.1.0"

// A build without a repository, such as that of an image, sets the commit:
//
//	go build -ldflags "-X github.com/fencepost/fencepost/shared/buildinfo.revision=COMMIT"
var revision string

// unknown stands for what a build does not say.
const unknown = "unknown"

// Info describes a build. It has no secret.
type Info struct {
	Version  string `json:"version"`  // of Fencepost
	Revision string `json:"revision"` // the commit that the program was built from, in a business' program that of the business' repository
	Modified bool   `json:"modified"` // the source differed from the commit
	Go       string `json:"go"`       // the version of Go
}

// Read returns the build of this program. A text that the build lacks is "unknown".
var Read = sync.OnceValue(func() Info {
	built, _ := debug.ReadBuildInfo()
	return describe(built, revision)
})

// describe describes built, which may be nil. A revision that was set at the build comes first.
func describe(built *debug.BuildInfo, revision string) Info {
	i := Info{Version: Version, Revision: revision}
	if built != nil {
		i.Go = built.GoVersion
		for _, s := range built.Settings {
			switch s.Key {
			case "vcs.revision":
				i.Revision = cmp.Or(i.Revision, s.Value)
			case "vcs.modified":
				i.Modified = s.Value == "true"
			}
		}
	}
	i.Revision, i.Go = cmp.Or(i.Revision, unknown), cmp.Or(i.Go, unknown)
	return i
}

// String returns the build as --version shows it, without the program's name.
func (i Info) String() string {
	modified := ""
	if i.Modified {
		modified = ", modified"
	}
	return fmt.Sprintf("%s (commit %s%s, %s)", i.Version, i.Revision, modified, i.Go)
}

// PrintVersion reports whether --version is among the arguments. Then it writes the program's name and build to out, as one
// line.
func PrintVersion(program string, args []string, out io.Writer) bool {
	asked := slices.Contains(args, "--version")
	if asked {
		fmt.Fprintln(out, program, Read())
	}
	return asked
}
