// Command release makes what a release consists of: archives of the programs, the functions' and the emulator's images, bills of
// materials and checksums. It makes all of it twice, compares the two byte for byte, and starts the programs.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"

	"github.com/fencepost/fencepost/emulator/stack/command"
	"github.com/fencepost/fencepost/shared/buildinfo"
)

const usage = `release makes the archives, the images, the bills of materials and the checksums of the version in
shared/buildinfo from the last commit. It does so twice, in two folders, the second time with an empty build cache,
and fails if a byte differs. Then it starts the programs and verifies the checksums.

It refuses a working tree with changes, and a tag of the commit that is not the version. A commit without a tag is a
rehearsal, which may be without --emulator-base. The same commit and, for the
emulator's image, the same base, whose digest the bill has, give the same bytes. The images are for ` + imagePlatform + `.

`

// pullCommand fetches the archive of the image that emulator/Dockerfile begins from.
const pullCommand = "crane pull --platform " + imagePlatform + " postgres:17-bookworm /tmp/postgres.tar"

func main() { command.Main("release", "", realMain) }

func realMain(ctx context.Context, args []string, out io.Writer) error {
	set := command.NewFlags("release", usage)
	root := set.String("root", ".", "the `folder` of the repository")
	to := set.String("to", "dist", "the `folder` for the files, which is made, and must be empty")
	platforms := set.String("platforms", "linux/amd64,linux/arm64,darwin/arm64", "the systems and architectures of the archives, with commas, a `list`")
	emulatorBase := set.String("emulator-base", "", "the `archive` of the image that emulator/Dockerfile begins from, outside of the repository: "+pullCommand)
	oneCache := set.Bool("one-cache", false, "take compiled packages from Go's cache in the second build too: much faster, and proves less")
	if err := set.Parse(args); err != nil {
		return err
	}
	if err := command.Check(set); err != nil {
		return err
	}
	if found, err := os.ReadDir(*to); err == nil && len(found) > 0 {
		return fmt.Errorf("--to %s: the folder has files: remove them, or name another one", *to)
	}
	s, err := readSource(ctx, *root)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "Release %s of commit %s, tag %s.\n", buildinfo.Version, s.commit, cmp.Or(s.tag, "none: a rehearsal"))
	bases, err := readBase(s, *emulatorBase, out)
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "fencepost-release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	b := builder{source: s, platforms: strings.FieldsFunc(*platforms, func(r rune) bool { return r == ',' }), emulatorBase: *emulatorBase, bases: bases, out: out}
	if b.imageProgram, err = buildImageProgram(ctx, work); err != nil {
		return err
	}
	first, err := b.buildTwice(ctx, work, *oneCache)
	if err != nil {
		return err
	}
	if err := b.checkStarts(ctx, first, work); err != nil {
		return err
	}
	if err := os.CopyFS(*to, os.DirFS(first)); err != nil {
		return err
	}
	return report(*to, out)
}

// readBase returns and prints what the emulator's image begins from. Only a rehearsal may be without it.
func readBase(s source, archive string, out io.Writer) ([]cdx.Component, error) {
	switch {
	case archive == "" && s.tag != "":
		return nil, errors.New("--emulator-base: want the archive of Postgres's image, since a release has the emulator's image too: --help has the command")
	case archive == "":
		fmt.Fprintln(out, "Without the emulator's image: --emulator-base is not given.")
		return nil, nil
	}
	if !filepath.IsAbs(archive) {
		return nil, fmt.Errorf("--emulator-base %s: want an absolute path, such as /tmp/postgres.tar: scripts/release runs in the repository's folder", archive)
	}
	base, err := baseOf(archive)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(out, "The emulator's image begins from %s:%s, %s.\n", base.Name, base.Version, base.PackageURL)
	return []cdx.Component{base}, nil
}

// buildImageProgram compiles emulator/image, and returns its path.
func buildImageProgram(ctx context.Context, work string) (string, error) {
	program := filepath.Join(work, "image")
	out, err := exec.CommandContext(ctx, "go", "build", "-o", program, "github.com/fencepost/fencepost/emulator/image").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build emulator/image: %w\n%s", err, out)
	}
	return program, nil
}

// buildTwice makes the release in two folders below work, and returns the first. The second build has other folders, files of
// another time, another time zone and, unless oneCache is set, an empty build cache.
func (b builder) buildTwice(ctx context.Context, work string, oneCache bool) (string, error) {
	began := time.Now()
	fmt.Fprintln(b.out, "Building ...")
	first := filepath.Join(work, "first")
	if err := b.build(ctx, first, b.source.time, nil); err != nil {
		return "", err
	}
	fmt.Fprintf(b.out, "Built in %s. Building again, elsewhere ...\n", time.Since(began).Round(time.Second))
	second := filepath.Join(work, "the", "second")
	environment := []string{"TZ=Pacific/Chatham"}
	if !oneCache {
		environment = append(environment, "GOCACHE="+filepath.Join(work, "cache"))
	}
	if err := b.build(ctx, second, b.source.time.Add(-1000*time.Hour), environment); err != nil {
		return "", err
	}
	if err := compare(filepath.Join(first, "dist"), filepath.Join(second, "dist")); err != nil {
		return "", err
	}
	fmt.Fprintf(b.out, "Both builds are the same, byte for byte, after %s.\n", time.Since(began).Round(time.Second))
	return filepath.Join(first, "dist"), nil
}
