// Package buildinfo describes the build of the running program.
package buildinfo

import (
	"cmp"
	"runtime/debug"
	"strings"
	"sync"
)

// module is the path of this module.
const module = "github.com/fencepost/fencepost"

// A build without a repository, such as that of an image, sets these:
//
//	go build -ldflags "-X github.com/fencepost/fencepost/shared/buildinfo.release=v1.2.3 -X github.com/fencepost/fencepost/shared/buildinfo.revision=COMMIT"
var release, revision string

// unknown stands for what a build does not say.
const unknown = "unknown"

// Info describes a build. It has no secret.
type Info struct {
	Version  string `json:"version"`  // of Fencepost: the release, or a pseudo-version of the Go module
	Revision string `json:"revision"` // the commit that the program was built from
	Modified bool   `json:"modified"` // the source differed from the commit
	Go       string `json:"go"`       // the version of Go
}

// Read returns the build of this program. A text that the build lacks is "unknown".
var Read = sync.OnceValue(func() Info {
	built, _ := debug.ReadBuildInfo()
	return describe(built, release, revision)
})

// describe describes built, which may be nil. The release and the revision that were set at the build
// come first.
func describe(built *debug.BuildInfo, release, revision string) Info {
	i := Info{Version: release, Revision: revision}
	if built != nil {
		i.Version, i.Go = cmp.Or(i.Version, versionIn(built)), built.GoVersion
		for _, s := range built.Settings {
			switch s.Key {
			case "vcs.revision":
				i.Revision = cmp.Or(i.Revision, s.Value)
			case "vcs.modified":
				i.Modified = s.Value == "true"
			}
		}
	}
	i.Version, i.Revision, i.Go = cmp.Or(i.Version, unknown), cmp.Or(i.Revision, unknown), cmp.Or(i.Go, unknown)
	return i
}

// versionIn returns the version of this module, which the program is of or depends on; "": none is known.
func versionIn(built *debug.BuildInfo) string {
	for _, m := range append(built.Deps, &built.Main) {
		if m.Path == module {
			return strings.Trim(m.Version, "()") // go run and go test have "(devel)"
		}
	}
	return ""
}
