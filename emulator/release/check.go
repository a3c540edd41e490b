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

	"github.com/fencepost/fencepost/shared/buildinfo"
)

// compare returns an error for each file that one of the folders lacks, or that differs.
func compare(first, second string) error {
	names, err := namesIn(first)
	if err != nil {
		return err
	}
	others, err := namesIn(second)
	if err != nil {
		return err
	}
	if !slices.Equal(names, others) {
		return fmt.Errorf("the first build has the files %v, the second %v", names, others)
	}
	var differ []error
	for _, name := range names {
		a, err := os.ReadFile(filepath.Join(first, name))
		if err != nil {
			return err
		}
		b, err := os.ReadFile(filepath.Join(second, name))
		if err != nil {
			return err
		}
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
func (b builder) checkStarts(ctx context.Context, dist, work string) error {
	for _, platform := range b.platforms {
		name := releaseName(platform)
		text, err := os.ReadFile(filepath.Join(dist, name+".tar.gz"))
		if err != nil {
			return err
		}
		stream, err := gzip.NewReader(bytes.NewReader(text))
		if err != nil {
			return err
		}
		if err := extract(stream, filepath.Join(work, "check"), b.source.time); err != nil {
			return err
		}
		if err := b.checkPrograms(ctx, filepath.Join(work, "check", name), platform); err != nil {
			return err
		}
	}
	for _, i := range b.images() {
		folder := filepath.Join(work, "check", i.name)
		if err := extractImage(filepath.Join(dist, i.name+".tar"), folder); err != nil {
			return err
		}
		if err := b.checkPrograms(ctx, folder, imagePlatform); err != nil {
			return err
		}
	}
	return nil
}

// checkPrograms checks the programs in a folder, which may have pages too.
func (b builder) checkPrograms(ctx context.Context, folder, platform string) error {
	names, err := namesIn(folder)
	if err != nil {
		return err
	}
	names = slices.DeleteFunc(names, func(name string) bool { return name == "etc" || slices.Contains(pages, name) })
	here := platform == runtime.GOOS+"/"+runtime.GOARCH
	for _, name := range names {
		file := filepath.Join(folder, name)
		if got, err := platformOf(file); err != nil || got != platform {
			return errors.Join(err, fmt.Errorf("%s: is built for %q, want %s", name, got, platform))
		}
		if !here {
			continue
		}
		out, err := exec.CommandContext(ctx, file, "--version").Output()
		if err != nil || !strings.HasPrefix(string(out), name+" ") || !strings.Contains(string(out), buildinfo.Version+" (commit "+b.source.commit+", go") {
			return fmt.Errorf("%s --version: got %q (%v), want %s, and the commit %s", name, out, err, buildinfo.Version, b.source.commit)
		}
	}
	how := "started"
	if !here {
		how = "are built for it; not started here"
	}
	fmt.Fprintf(b.out, "Checked %s, %s: %s %s.\n", filepath.Base(folder), platform, strings.Join(names, ", "), how)
	return nil
}

// platformOf returns what a Go program was compiled for.
func platformOf(file string) (string, error) {
	built, err := goinfo.ReadFile(file)
	if err != nil {
		return "", err
	}
	settings := make(map[string]string)
	for _, s := range built.Settings {
		settings[s.Key] = s.Value
	}
	return settings["GOOS"] + "/" + settings["GOARCH"], nil
}

// extractImage writes the files of the image's last layer into the folder: those above its base.
func extractImage(file, folder string) error {
	img, err := tarball.ImageFromPath(file, nil)
	if err != nil {
		return err
	}
	layers, err := img.Layers()
	if err != nil {
		return err
	}
	stream, err := layers[len(layers)-1].Uncompressed()
	if err != nil {
		return err
	}
	return errors.Join(extract(stream, folder, time.Time{}), stream.Close())
}

// report verifies the checksums of the folder's files, and prints each file with its size.
func report(folder string, out io.Writer) error {
	text, err := os.ReadFile(filepath.Join(folder, sums))
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "\n%s:\n", folder)
	for line := range strings.Lines(string(text)) {
		want, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		file := filepath.Join(folder, name)
		sum, err := sumOf(file)
		if err != nil {
			return err
		}
		if sum != want {
			return fmt.Errorf("%s: its checksum is %s, but %s has %s", file, sum, sums, want)
		}
		info, err := os.Stat(file)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%8.1f MB  %s  %s\n", float64(info.Size())/1e6, sum, name)
	}
	return nil
}
