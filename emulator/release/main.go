// Command release makes what a release consists of: archives of the programs, the functions' and the emulator's images, bills of
// materials and checksums. It makes all of it twice, compares the two byte for byte, and starts the programs. A function
// without an error as its result ends the release by package steps.
package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"

	"github.com/fencepost/fencepost/emulator/stack/command"
	"github.com/fencepost/fencepost/emulator/stack/steps"
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

func realMain(ctx context.Context, args []string, out io.Writer) (err error) {
	defer steps.Return(&err)
	set := command.NewFlags("release", usage)
	root := set.String("root", ".", "the `folder` of the repository")
	to := set.String("to", "dist", "the `folder` for the files, which is made, and must be empty")
	platforms := set.String("platforms", "linux/amd64,linux/arm64,darwin/arm64", "the systems and architectures of the archives, with commas, a `list`")
	emulatorBase := set.String("emulator-base", "", "the `archive` of the image that emulator/Dockerfile begins from, outside of the repository: "+pullCommand)
	oneCache := set.Bool("one-cache", false, "take compiled packages from Go's cache in the second build too: much faster, and proves less")
	steps.OK(set.Parse(args))
	steps.OK(command.Check(set))
	if found, err := os.ReadDir(*to); err == nil && len(found) > 0 {
		return fmt.Errorf("--to %s: the folder has files: remove them, or name another one", *to)
	}
	s := steps.Value(readSource(ctx, *root))
	fmt.Fprintf(out, "Release %s of commit %s, tag %s.\n", buildinfo.Version, s.commit, cmp.Or(s.tag, "none: a rehearsal"))
	bases := readBase(s, *emulatorBase, out)
	work := steps.Value(os.MkdirTemp("", "fencepost-release-"))
	defer os.RemoveAll(work)
	b := builder{
		source: s, platforms: strings.FieldsFunc(*platforms, func(r rune) bool { return r == ',' }), emulatorBase: *emulatorBase, bases: bases, out: out,
		imageProgram: buildImageProgram(ctx, work),
	}
	first := b.buildTwice(ctx, work, *oneCache)
	b.checkStarts(ctx, first, work)
	steps.OK(os.CopyFS(*to, os.DirFS(first)))
	report(*to, out)
	return nil
}

// readBase returns and prints what the emulator's image begins from. Only a rehearsal may be without it.
func readBase(s source, archive string, out io.Writer) []cdx.Component {
	switch {
	case archive == "" && s.tag != "":
		steps.Stopf("--emulator-base: want the archive of Postgres's image, since a release has the emulator's image too: --help has the command")
	case archive == "":
		fmt.Fprintln(out, "Without the emulator's image: --emulator-base is not given.")
		return nil
	case !filepath.IsAbs(archive):
		steps.Stopf("--emulator-base %s: want an absolute path, such as /tmp/postgres.tar: scripts/release runs in the repository's folder", archive)
	}
	base, err := baseOf(archive)
	steps.OK(err, "--emulator-base ", archive)
	fmt.Fprintf(out, "The emulator's image begins from %s:%s, %s.\n", base.Name, base.Version, base.PackageURL)
	return []cdx.Component{base}
}

// buildImageProgram compiles emulator/image, and returns its path.
func buildImageProgram(ctx context.Context, work string) string {
	program := filepath.Join(work, "image")
	steps.OK(run(exec.CommandContext(ctx, "go", "build", "-o", program, "github.com/fencepost/fencepost/emulator/image")), "build emulator/image")
	return program
}

// run runs a command. Its error has what the command prints.
func run(c *exec.Cmd) error {
	text, err := c.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w\n%s", err, text)
	}
	return nil
}

// buildTwice makes the release in two folders below work, and returns the first. The second build has other folders, files of
// another time, another time zone and, unless oneCache is set, an empty build cache.
func (b builder) buildTwice(ctx context.Context, work string, oneCache bool) string {
	began := time.Now()
	fmt.Fprintln(b.out, "Building ...")
	first := filepath.Join(work, "first")
	b.build(ctx, first, b.source.time, nil)
	fmt.Fprintf(b.out, "Built in %s. Building again, elsewhere ...\n", time.Since(began).Round(time.Second))
	second := filepath.Join(work, "the", "second")
	environment := []string{"TZ=Pacific/Chatham"}
	if !oneCache {
		environment = append(environment, "GOCACHE="+filepath.Join(work, "cache"))
	}
	b.build(ctx, second, b.source.time.Add(-1000*time.Hour), environment)
	steps.OK(compare(filepath.Join(first, "dist"), filepath.Join(second, "dist")))
	fmt.Fprintf(b.out, "Both builds are the same, byte for byte, after %s.\n", time.Since(began).Round(time.Second))
	return filepath.Join(first, "dist")
}
