package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/json"
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

	cdx "github.com/CycloneDX/cyclonedx-go"

	"github.com/fencepost/fencepost/emulator/stack/steps"
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

type image struct {
	name       string // of its files, without their endings
	dockerfile string
	tag        string
	base       string // the archive that it begins from; "": it has nothing but the programs
	bases      []cdx.Component
}

// sums is the name of the file of checksums, in the form of sha256sum.
const sums = "SHA256SUMS"

type builder struct {
	source       source
	platforms    []string        // such as linux/amd64
	imageProgram string          // emulator/image, compiled
	emulatorBase string          // the archive of Postgres's image; "": the release has no image of the emulator
	bases        []cdx.Component // what the archive has, for the bill of materials
	out          io.Writer
}

// releaseName returns the name of a file of the release, without its ending, or of the folder in an archive.
func releaseName(platform string) string {
	return "fencepost_" + buildinfo.Version + "_" + strings.ReplaceAll(platform, "/", "_")
}

func imageName() string         { return releaseName("image/" + imagePlatform) }
func emulatorImageName() string { return releaseName("emulator-image/" + imagePlatform) }

func (b builder) images() []image {
	all := []image{{name: imageName(), dockerfile: "Dockerfile", tag: "fencepost:" + buildinfo.Version}}
	if b.emulatorBase != "" {
		all = append(all, image{emulatorImageName(), "emulator/Dockerfile", "fencepost-emulator:" + buildinfo.Version, b.emulatorBase, b.bases})
	}
	return all
}

// build exports the source into a folder below work, with that time, and makes the files of the release in work/dist.
func (b builder) build(ctx context.Context, work string, at time.Time, environment []string) {
	from, dist := filepath.Join(work, "source"), filepath.Join(work, "dist")
	steps.OK(b.source.export(ctx, from, at))
	steps.OK(os.MkdirAll(dist, 0o755))
	environment = steps.Value(buildEnvironment(ctx, environment))
	for _, platform := range b.platforms {
		steps.OK(b.buildArchive(ctx, from, work, platform, environment), platform)
	}
	for _, i := range b.images() {
		steps.OK(b.buildImage(ctx, i, from, work, environment), i.name)
	}
	writeSums(dist)
}

// sources are the settings of go that say where modules come from and where files are kept. They change no program.
var sources = []string{"GOPROXY", "GONOPROXY", "GOPRIVATE", "GOSUMDB", "GONOSUMDB", "GOINSECURE", "GOVCS", "GOAUTH", "GOPATH", "GOMODCACHE", "GOCACHE", "GOTMPDIR"}

// buildEnvironment returns this process's environment with the settings of go that change a program fixed, and with
// more. Of the values of go env -w it has the sources alone.
func buildEnvironment(ctx context.Context, more []string) (_ []string, err error) {
	defer steps.Return(&err)
	text, err := exec.CommandContext(ctx, "go", append([]string{"env", "-json"}, sources...)...).Output()
	steps.OK(err, "go env")
	var kept map[string]string
	steps.OK(json.Unmarshal(text, &kept), "go env")
	all := os.Environ()
	for _, name := range sources {
		if kept[name] != "" {
			all = append(all, name+"="+kept[name])
		}
	}
	fixed := []string{"GOENV=off", "GOFLAGS=-buildvcs=false", "GOTOOLCHAIN=local", "GOWORK=off", "GO111MODULE=on", "GODEBUG=", "GO_EXTLINK_ENABLED=",
		"GOAMD64=v1", "GOARM64=v8.0", "GOEXPERIMENT=", "GOFIPS140=off"}
	return slices.Concat(all, fixed, more), nil
}

// buildArchive compiles the programs for a platform, and writes their archive and its bill of materials.
func (b builder) buildArchive(ctx context.Context, from, work, platform string, environment []string) (err error) {
	defer steps.Return(&err)
	system, architecture, both := strings.Cut(platform, "/")
	if !both {
		steps.Stopf("want a system and an architecture, such as linux/amd64")
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
		steps.OK(run(cmd), "build ", p.name)
		names = append(names, p.name)
	}
	steps.OK(os.WriteFile(filepath.Join(work, "dist", name+".tar.gz"), b.archive(name, folder, from, names), 0o644))
	b.writeBill(filepath.Join(work, "dist"), name, folder)
	return nil
}

// archive returns the tar archive of the programs in the folder and of the source's pages, compressed.
func (b builder) archive(name, folder, from string, names []string) []byte {
	var text bytes.Buffer
	compressed := gzip.NewWriter(&text)
	archive := tar.NewWriter(compressed)
	add := func(file string, mode int64) {
		content := steps.Value(os.ReadFile(file))
		header := &tar.Header{Name: path.Join(name, filepath.Base(file)), Mode: mode, Size: int64(len(content)), ModTime: b.source.time, Format: tar.FormatPAX}
		steps.OK(archive.WriteHeader(header))
		steps.Value(archive.Write(content))
	}
	for _, program := range names {
		add(filepath.Join(folder, program), 0o755)
	}
	for _, page := range pages {
		add(filepath.Join(from, page), 0o644)
	}
	steps.OK(errors.Join(archive.Close(), compressed.Close())) // which write too
	return text.Bytes()
}

// buildImage writes an image, and the bill of materials of its programs.
func (b builder) buildImage(ctx context.Context, i image, from, work string, environment []string) (err error) {
	defer steps.Return(&err)
	dist := filepath.Join(work, "dist")
	file := filepath.Join(dist, i.name+".tar")
	cmd := exec.CommandContext(ctx, b.imageProgram, "--root", from, "--file", i.dockerfile, "--base", i.base, "--to", file,
		"--platform", imagePlatform, "--tag", i.tag, "--build-arg", "REVISION="+b.source.commit)
	cmd.Env = environment
	folder := filepath.Join(work, i.name)
	steps.OK(run(cmd))
	extractImage(file, folder)
	b.writeBill(dist, i.name, folder, i.bases...)
	return nil
}

// writeSums writes the checksums of the folder's files into a file beside them.
func writeSums(folder string) {
	var text strings.Builder
	for _, f := range steps.Value(os.ReadDir(folder)) {
		fmt.Fprintf(&text, "%s  %s\n", sumOf(filepath.Join(folder, f.Name())), f.Name())
	}
	steps.OK(os.WriteFile(filepath.Join(folder, sums), []byte(text.String()), 0o644))
}

func sumOf(file string) string {
	return fmt.Sprintf("%x", sha256.Sum256(steps.Value(os.ReadFile(file))))
}
