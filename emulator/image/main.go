// Command image builds the functions' image, or the emulator's, without Docker. It runs the commands of the
// Dockerfile's first stage on the context that Docker would get. With --base the image is that archive and the
// programs. Without it, the image has the programs and the machine's CA certificates, and nothing else. It writes the image as an archive that docker load, podman load and crane
// push read, and prints its digest.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/fencepost/fencepost/emulator/stack/command"
)

// deployedPlatform is Cloud Run's.
const deployedPlatform = "linux/amd64"

func main() { command.Main("image", "", realMain) }

func realMain(ctx context.Context, args []string, out io.Writer) error {
	set := command.NewFlags("image", "image builds the functions' image without Docker, and writes it as an archive for docker load, podman load or crane push.\n\n")
	root := set.String("root", ".", "the `folder` of the repository")
	file := set.String("file", "Dockerfile", "the Dockerfile within the repository, a `path`; emulator/Dockerfile needs --base")
	base := set.String("base", "", "the `archive` of the image that the last stage begins from, by docker save or crane pull; without it the image has nothing of that")
	to := set.String("to", "fencepost.tar", "the `file` to write")
	tag := set.String("tag", "fencepost:local", "the image's `name`")
	certificates := set.String("certificates", "", "the `file` with the CA certificates; default: the machine's")
	arguments := argumentFlag{}
	platform := set.String("platform", deployedPlatform, "the system and `architecture` to build for, whatever this machine has")
	set.Var(arguments, "build-arg", "an argument of the build, as `NAME=VALUE`; may be given again. REVISION is the commit, which --version, GET /version, the log and the metrics show")
	if err := set.Parse(args); err != nil {
		return err
	}
	builtFor, err := v1.ParsePlatform(*platform)
	if err != nil || builtFor.OS == "" || builtFor.Architecture == "" {
		return fmt.Errorf("--platform %s: want a system and an architecture, such as %s", *platform, deployedPlatform)
	}
	work, err := os.MkdirTemp("", "fencepost-image-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	img, err := build(ctx, buildOptions{root: *root, dockerfile: *file, base: *base, arguments: arguments, certificates: *certificates, platform: *builtFor, output: out}, work)
	if err != nil {
		return err
	}
	return write(img, *tag, *to, out)
}

func write(img v1.Image, tag, path string, out io.Writer) error {
	reference, err := name.NewTag(tag)
	if err != nil {
		return fmt.Errorf("--tag: %w", err)
	}
	if err := tarball.WriteToFile(path, reference, img); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	digest, err := img.Digest()
	if err == nil {
		_, err = fmt.Fprintf(out, "Wrote %s to %s: %s\n", tag, path, digest)
	}
	return err
}

// argumentFlag collects NAME=VALUE.
type argumentFlag map[string]string

func (a argumentFlag) String() string { return "" }

func (a argumentFlag) Set(text string) error {
	name, value, err := assignment(text)
	a[name] = value
	return err
}

// buildOptions configure one build.
type buildOptions struct {
	root         string // the context, with its .dockerignore
	dockerfile   string // within root
	base         string // the archive that the last stage begins from; "": none
	arguments    map[string]string
	certificates string // "": the machine's
	platform     v1.Platform
	output       io.Writer
}

// build runs the Dockerfile's first stage in the folder work and makes the image of its last.
func build(ctx context.Context, o buildOptions, work string) (v1.Image, error) {
	b, last, err := compile(ctx, o, work)
	if err != nil {
		return nil, err
	}
	return b.assemble(last)
}

// compile runs the Dockerfile's first stage in the folder work, and returns the last stage.
func compile(ctx context.Context, o buildOptions, work string) (*builder, stage, error) {
	text, err := os.ReadFile(filepath.Join(o.root, o.dockerfile))
	if err != nil {
		return nil, nil, err
	}
	stages, err := parse(string(text))
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", o.dockerfile, err)
	}
	b := &builder{buildOptions: o, work: work, variables: map[string]string{}}
	if err := b.runStage(ctx, stages[0]); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", o.dockerfile, err)
	}
	return b, stages[len(stages)-1], nil
}
