package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fencepost/fencepost/shared/buildinfo"
)

// programs are those of an archive, with the folders of their source.
var programs = []struct{ name, folder string }{
	{"fencepost", "shared/client/cmd/fencepost"},
	{"emulator", "emulator"},
	{"server", "functions/server"},
	{"migrate", "migrations/migrate"},
	{"ubscore", "emulator/fake/ubscore/server"},
}

// pages are the other files of an archive.
var pages = []string{"LICENSE", "README.md", "CHANGELOG.md"}

// imagePlatform is Cloud Run's.
const imagePlatform = "linux/amd64"

// sums is the name of the file of checksums, in the form of sha256sum.
const sums = "SHA256SUMS"

// builder makes the files of a release.
type builder struct {
	source       source
	platforms    []string // such as linux/amd64
	imageProgram string   // emulator/image, compiled
	out          io.Writer
}

// releaseName returns the name of a file of the release, without its ending, or of the folder in an archive.
func releaseName(platform string) string {
	return "fencepost_" + buildinfo.Version + "_" + strings.ReplaceAll(platform, "/", "_")
}

func imageName() string { return releaseName("image/" + imagePlatform) }

// build exports the source into a folder below work, with that time, and makes the files of the release in work/dist.
func (b builder) build(ctx context.Context, work string, at time.Time, environment []string) error {
	from, dist := filepath.Join(work, "source"), filepath.Join(work, "dist")
	if err := b.source.export(ctx, from, at); err != nil {
		return err
	}
	if err := os.MkdirAll(dist, 0o755); err != nil {
		return err
	}
	environment = buildEnvironment(environment)
	for _, platform := range b.platforms {
		if err := b.buildArchive(ctx, from, work, platform, environment); err != nil {
			return fmt.Errorf("%s: %w", platform, err)
		}
	}
	if err := b.buildImage(ctx, from, work, environment); err != nil {
		return fmt.Errorf("image: %w", err)
	}
	return writeSums(dist)
}

// buildEnvironment returns this process's environment with the variables that change what go builds fixed, and with more.
func buildEnvironment(more []string) []string {
	fixed := []string{"GOFLAGS=-buildvcs=false", "GOTOOLCHAIN=local", "GOWORK=off", "GOAMD64=v1", "GOARM64=v8.0", "GOEXPERIMENT=", "GOFIPS140=off"}
	return slices.Concat(os.Environ(), fixed, more)
}

// buildArchive compiles the programs for a platform, and writes their archive and its bill of materials.
func (b builder) buildArchive(ctx context.Context, from, work, platform string, environment []string) error {
	system, architecture, both := strings.Cut(platform, "/")
	if !both {
		return errors.New("want a system and an architecture, such as linux/amd64")
	}
	name := releaseName(platform)
	folder := filepath.Join(work, name)
	ldflags := "-ldflags=-s -w -X github.com/fencepost/fencepost/shared/buildinfo.revision=" + b.source.commit
	var names []string
	for _, p := range programs {
		if _, err := os.Stat(filepath.Join(from, p.folder)); errors.Is(err, fs.ErrNotExist) {
			fmt.Fprintf(b.out, "Without %s: there is no %s.\n", p.name, p.folder)
			continue
		}
		cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", ldflags, "-o", filepath.Join(folder, p.name), "./"+p.folder)
		cmd.Dir = from
		cmd.Env = append(environment, "CGO_ENABLED=0", "GOOS="+system, "GOARCH="+architecture)
		if text, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build %s: %w\n%s", p.name, err, text)
		}
		names = append(names, p.name)
	}
	text, err := b.archive(name, folder, from, names)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(work, "dist", name+".tar.gz"), text, 0o644); err != nil {
		return err
	}
	return b.writeBill(filepath.Join(work, "dist"), name, folder)
}

// archive returns the tar archive of the programs in the folder and of the source's pages, compressed.
func (b builder) archive(name, folder, from string, names []string) ([]byte, error) {
	var text bytes.Buffer
	compressed := gzip.NewWriter(&text)
	archive := tar.NewWriter(compressed)
	add := func(file string, mode int64) error {
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		header := &tar.Header{Name: path.Join(name, filepath.Base(file)), Mode: mode, Size: int64(len(content)), ModTime: b.source.time, Format: tar.FormatPAX}
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		_, err = archive.Write(content)
		return err
	}
	for _, program := range names {
		if err := add(filepath.Join(folder, program), 0o755); err != nil {
			return nil, err
		}
	}
	for _, page := range pages {
		if err := add(filepath.Join(from, page), 0o644); err != nil {
			return nil, err
		}
	}
	err := errors.Join(archive.Close(), compressed.Close()) // which write too
	return text.Bytes(), err
}

// buildImage writes the functions' image, and its bill of materials.
func (b builder) buildImage(ctx context.Context, from, work string, environment []string) error {
	dist := filepath.Join(work, "dist")
	file := filepath.Join(dist, imageName()+".tar")
	cmd := exec.CommandContext(ctx, b.imageProgram, "--root", from, "--to", file, "--platform", imagePlatform,
		"--tag", "fencepost:"+buildinfo.Version, "--build-arg", "REVISION="+b.source.commit)
	cmd.Env = environment
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, text)
	}
	folder := filepath.Join(work, "image")
	if err := extractImage(file, folder); err != nil {
		return err
	}
	return b.writeBill(dist, imageName(), folder)
}

// writeSums writes the checksums of the folder's files into a file beside them.
func writeSums(folder string) error {
	files, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	var text strings.Builder
	for _, f := range files {
		sum, err := sumOf(filepath.Join(folder, f.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&text, "%s  %s\n", sum, f.Name())
	}
	return os.WriteFile(filepath.Join(folder, sums), []byte(text.String()), 0o644)
}

// sumOf returns the file's SHA-256 in hex.
func sumOf(file string) (string, error) {
	text, err := os.ReadFile(file)
	return fmt.Sprintf("%x", sha256.Sum256(text)), err
}
