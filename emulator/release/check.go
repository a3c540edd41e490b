package main

import (
	"bytes"
	"compress/gzip"
	"context"
	goinfo "debug/buildinfo"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/fencepost/fencepost/emulator/stack/steps"
	"github.com/fencepost/fencepost/shared/buildinfo"
)

// compare returns an error for each file that one of the folders lacks, or that differs.
func compare(first, second string) (err error) {
	defer steps.Return(&err)
	names, others := steps.Value(namesIn(first)), steps.Value(namesIn(second))
	if !slices.Equal(names, others) {
		return fmt.Errorf("the first build has the files %v, the second %v", names, others)
	}
	var differ []error
	for _, name := range names {
		a, b := steps.Value(os.ReadFile(filepath.Join(first, name))), steps.Value(os.ReadFile(filepath.Join(second, name)))
		if !bytes.Equal(a, b) {
			differ = append(differ, fmt.Errorf("%s: the two builds differ (%d and %d bytes)", name, len(a), len(b)))
		}
	}
	return errors.Join(differ...)
}

func namesIn(folder string) (names []string, err error) {
	files, err := os.ReadDir(folder)
	for _, f := range files {
		names = append(names, f.Name())
	}
	return names, err
}

// checkStarts extracts the archives and the images, and starts their programs. Those of another platform than this machine's
// have only to be built for it.
func (b builder) checkStarts(ctx context.Context, dist, work string) {
	for _, platform := range b.platforms {
		name := releaseName(platform)
		text := steps.Value(os.ReadFile(filepath.Join(dist, name+".tar.gz")))
		extract(steps.Value(gzip.NewReader(bytes.NewReader(text))), filepath.Join(work, "check"), b.source.time)
		b.checkPrograms(ctx, filepath.Join(work, "check", name), platform)
	}
	for _, i := range b.images() {
		folder := filepath.Join(work, "check", i.name)
		extractImage(filepath.Join(dist, i.name+".tar"), folder)
		b.checkPrograms(ctx, folder, imagePlatform)
	}
}

// checkPrograms checks the programs in a folder, which may have pages too.
func (b builder) checkPrograms(ctx context.Context, folder, platform string) {
	names := slices.DeleteFunc(steps.Value(namesIn(folder)), func(name string) bool { return name == "etc" || slices.Contains(pages, name) })
	here := platform == runtime.GOOS+"/"+runtime.GOARCH
	for _, name := range names {
		file := filepath.Join(folder, name)
		if got := platformOf(file); got != platform {
			steps.Stopf("%s: is built for %q, want %s", name, got, platform)
		}
		if !here {
			continue
		}
		out, err := exec.CommandContext(ctx, file, "--version").Output()
		if err != nil || !strings.HasPrefix(string(out), name+" ") || !strings.Contains(string(out), buildinfo.Version+" (commit "+b.source.commit+", go") {
			steps.Stopf("%s --version: got %q (%v), want %s, and the commit %s", name, out, err, buildinfo.Version, b.source.commit)
		}
	}
	how := "started"
	if !here {
		how = "are built for it; not started here"
	}
	fmt.Fprintf(b.out, "Checked %s, %s: %s %s.\n", filepath.Base(folder), platform, strings.Join(names, ", "), how)
}

// platformOf returns what a Go program was compiled for.
func platformOf(file string) string {
	settings := make(map[string]string)
	for _, s := range steps.Value(goinfo.ReadFile(file)).Settings {
		settings[s.Key] = s.Value
	}
	return settings["GOOS"] + "/" + settings["GOARCH"]
}

// extractImage writes the files of the image's last layer into the folder: those above its base.
func extractImage(file, folder string) {
	layers := steps.Value(steps.Value(tarball.ImageFromPath(file, nil)).Layers())
	stream := steps.Value(layers[len(layers)-1].Uncompressed())
	extract(stream, folder, time.Time{})
	steps.OK(stream.Close())
}

// report verifies the checksums of the folder's files, and prints each file with its size.
func report(folder string, out io.Writer) {
	text := steps.Value(os.ReadFile(filepath.Join(folder, sums)))
	fmt.Fprintf(out, "\n%s:\n", folder)
	for line := range strings.Lines(string(text)) {
		want, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		file := filepath.Join(folder, name)
		sum := sumOf(file)
		if sum != want {
			steps.Stopf("%s: its checksum is %s, but %s has %s", file, sum, sums, want)
		}
		fmt.Fprintf(out, "%8.1f MB  %s  %s\n", float64(steps.Value(os.Stat(file)).Size())/1e6, sum, name)
	}
}
