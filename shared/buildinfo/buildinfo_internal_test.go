package buildinfo

import (
	"runtime/debug"
	"testing"

	"github.com/fencepost/fencepost/shared/check"
)

// The version is that of this module, also in a program of another module. A release set at the build
// comes first.
func TestDescribe(t *testing.T) {
	t.Parallel()
	settings := []debug.BuildSetting{{Key: "vcs.revision", Value: "abc"}, {Key: "vcs.modified", Value: "true"}, {Key: "GOOS", Value: "linux"}}
	own := &debug.BuildInfo{GoVersion: "go1", Main: debug.Module{Path: module, Version: "v0.1.0"}, Settings: settings}
	business := &debug.BuildInfo{GoVersion: "go1", Main: debug.Module{Path: "shop.example/pay", Version: "v9.0.0"},
		Deps: []*debug.Module{{Path: "other.example/x", Version: "v8.0.0"}, {Path: module, Version: "v0.2.0"}}}
	for _, c := range []struct {
		name              string
		built             *debug.BuildInfo
		release, revision string
		want              Info
	}{
		{"from a repository", own, "", "", Info{Version: "v0.1.0", Revision: "abc", Modified: true, Go: "go1"}},
		{"with a release", own, "v0.3.0", "def", Info{Version: "v0.3.0", Revision: "def", Modified: true, Go: "go1"}},
		{"a business' program", business, "", "", Info{Version: "v0.2.0", Revision: "unknown", Go: "go1"}},
		{"by go run", &debug.BuildInfo{GoVersion: "go1", Main: debug.Module{Path: module, Version: "(devel)"}}, "", "", Info{Version: "devel", Revision: "unknown", Go: "go1"}},
		{"without information", nil, "", "", Info{Version: "unknown", Revision: "unknown", Go: "unknown"}},
	} {
		check.Equal(t, c.name, describe(c.built, c.release, c.revision), c.want)
	}
}
