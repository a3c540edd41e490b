// Command image builds the functions' image, or the emulator's, without Docker. It runs the commands of the
// Dockerfile's first stage on the context that Docker would get. It writes an archive that docker load, podman load and crane
// push read, and prints its digest.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/fencepost/fencepost/emulator/stack/command"
	"github.com/fencepost/fencepost/emulator/stack/steps"
)

// deployedPlatform is Cloud Run's.
const deployedPlatform = "linux/amd64"

func main() { command.Main("image", "", realMain) }

func realMain(ctx context.Context, args []string, out io.Writer) (err error) {
	defer steps.Return(&err)
	set := command.NewFlags("image", "image builds the functions' image, or the emulator's, without Docker, and writes it as an archive for docker load, podman load or crane push.\n\n")
	root := set.String("root", ".", "the `folder` of the repository")
	file := set.String("file", "Dockerfile", "the Dockerfile within the repository, a `path`; emulator/Dockerfile needs --base")
	base := set.String("base", "", "the `archive` of the image that the last stage begins from, by docker save or crane pull; without it the image has nothing of that")
	to := set.String("to", "fencepost.tar", "the `file` to write")
	tag := set.String("tag", "fencepost:local", "the image's `name`")
	certificates := set.String("certificates", "", "the `file` with the CA certificates; default: the machine's")
	arguments := map[string]string{}
	platform := set.String("platform", deployedPlatform, "the system and `architecture` to build for, whatever this machine has")
	set.Func("build-arg", "an argument of the build, as `NAME=VALUE`; may be given again. REVISION is the commit, which --version, GET /version, the log and the metrics show", func(text string) error {
		return assign(arguments, text)
	})
	steps.OK(set.Parse(args))
	builtFor, err := v1.ParsePlatform(*platform)
	if err != nil || builtFor.OS == "" || builtFor.Architecture == "" {
		return fmt.Errorf("--platform %s: want a system and an architecture, such as %s", *platform, deployedPlatform)
	}
	work := steps.Value(os.MkdirTemp("", "fencepost-image-"))
	defer os.RemoveAll(work)
	o := buildOptions{root: *root, dockerfile: *file, base: *base, arguments: arguments, certificates: *certificates, platform: *builtFor, output: out}
	return write(steps.Value(build(ctx, o, work)), *tag, *to, out)
}

func write(img v1.Image, tag, path string, out io.Writer) (err error) {
	defer steps.Return(&err)
	reference, err := name.NewTag(tag)
	steps.OK(err, "--tag")
	steps.OK(tarball.WriteToFile(path, reference, img), "write ", path)
	_, err = fmt.Fprintf(out, "Wrote %s to %s: %s\n", tag, path, steps.Value(img.Digest()))
	return err
}

// assign adds NAME=VALUE.
func assign(to map[string]string, text string) error {
	name, value, both := strings.Cut(text, "=")
	if !both || name == "" {
		return fmt.Errorf("got %q, want NAME=VALUE", text)
	}
	to[name] = value
	return nil
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
func build(ctx context.Context, o buildOptions, work string) (_ v1.Image, err error) {
	defer steps.Return(&err)
	b, last, err := compile(ctx, o, work)
	steps.OK(err)
	return b.assemble(last), nil
}

// compile runs the Dockerfile's first stage in the folder work, and returns the last stage.
func compile(ctx context.Context, o buildOptions, work string) (b *builder, last stage, err error) {
	defer steps.Return(&err)
	stages, err := parse(string(steps.Value(os.ReadFile(filepath.Join(o.root, o.dockerfile)))))
	steps.OK(err, o.dockerfile)
	b = &builder{buildOptions: o, work: work, variables: map[string]string{}}
	steps.OK(b.runStage(ctx, stages[0]), o.dockerfile)
	return b, stages[len(stages)-1], nil
}
