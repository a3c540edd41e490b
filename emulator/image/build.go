package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/fencepost/fencepost/emulator/stack/steps"
)

// builder runs the first stage below the folder work, which stands for the stage's root.
type builder struct {
	buildOptions
	work      string
	folder    string // WORKDIR
	variables map[string]string
}

func (b *builder) runStage(ctx context.Context, s stage) error {
	for _, i := range s {
		if err := b.run(ctx, i); err != nil {
			return fmt.Errorf("%s %s: %w", i.name, i.arguments, err)
		}
	}
	return nil
}

func (b *builder) run(ctx context.Context, i instruction) (err error) {
	defer steps.Return(&err)
	switch i.name {
	case "ARG":
		name, value, _ := strings.Cut(i.arguments, "=")
		if given, ok := b.arguments[name]; ok {
			value = given
		}
		b.variables[name] = value
	case "ENV":
		for _, word := range strings.Fields(i.arguments) {
			steps.OK(assign(b.variables, word))
		}
	case "WORKDIR":
		b.folder = i.arguments
		return os.MkdirAll(filepath.Join(b.work, b.folder), 0o755)
	case "COPY":
		b.copyContext(strings.Fields(i.arguments))
	case "RUN":
		return b.shell(ctx, i.arguments)
	default:
		return errors.New("the first stage only builds")
	}
	return nil
}

// shell runs a command in WORKDIR. An absolute path of the stage, such as /out/, is below work.
func (b *builder) shell(ctx context.Context, line string) error {
	const out = " /out/"
	steps.OK(os.MkdirAll(filepath.Join(b.work, "out"), 0o755))
	cmd := exec.CommandContext(ctx, "sh", "-c", strings.ReplaceAll(line, out, " "+filepath.Join(b.work, "out")+"/"))
	cmd.Dir = filepath.Join(b.work, b.folder)
	cmd.Env = append(os.Environ(), "GOFLAGS=") // a caller's tags and flags would be in the image, as they are not by Docker
	if b.platform.OS != "" {
		cmd.Env = append(cmd.Env, "GOOS="+b.platform.OS, "GOARCH="+b.platform.Architecture)
	}
	for name, value := range b.variables {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	cmd.Stdout, cmd.Stderr = b.output, b.output
	return cmd.Run()
}

// copyContext copies files and folders of the context to a folder, without what .dockerignore keeps out.
func (b *builder) copyContext(words []string) {
	if len(words) < 2 {
		steps.Stopf("want a source and a target")
	}
	text, err := os.ReadFile(filepath.Join(b.root, b.dockerfile+".dockerignore")) // goes before the other, as in Docker
	if errors.Is(err, fs.ErrNotExist) {
		text, err = os.ReadFile(filepath.Join(b.root, ".dockerignore"))
	}
	steps.OK(err)
	out := steps.Value(ignored(string(text)))
	sources, target := words[:len(words)-1], words[len(words)-1]
	for _, source := range sources {
		source = cmp.Or(strings.TrimPrefix(path.Clean("/"+source), "/"), ".") // of the context, as in Docker
		to := target                                                          // of a folder's content
		if !steps.Value(os.Stat(filepath.Join(b.root, source))).IsDir() {
			to = path.Join(target, source)
		}
		b.copyTree(source, to, out)
	}
}

func (b *builder) copyTree(source, target string, out func(string) bool) {
	copied := 0
	context := os.DirFS(b.root)
	steps.OK(fs.WalkDir(context, source, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || out(file) {
			return err
		}
		copied++
		to := filepath.Join(b.work, b.folder, target, steps.Value(filepath.Rel(source, file)))
		steps.OK(os.MkdirAll(filepath.Dir(to), 0o755))
		return os.WriteFile(to, steps.Value(fs.ReadFile(context, file)), 0o644)
	}))
	if copied == 0 {
		steps.Stopf("%s: .dockerignore keeps all of it out", source)
	}
}

// certificateFiles are where systems keep their CA certificates.
var certificateFiles = []string{"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"}

func (b *builder) readCertificates() []byte {
	for _, file := range certificateFiles {
		if b.certificates != "" {
			file = b.certificates
		}
		if text, err := os.ReadFile(file); err == nil && bytes.Contains(text, []byte("BEGIN CERTIFICATE")) {
			return text
		}
	}
	steps.Stopf("no CA certificates found: name their file by --certificates")
	return nil
}

// assemble makes the image of the last stage: the base and the programs, or without a base the programs and CA
// certificates.
func (b *builder) assemble(last stage) v1.Image {
	base, files := b.begin()
	config := steps.Value(base.ConfigFile()).DeepCopy().Config
	if config.ExposedPorts == nil {
		config.ExposedPorts = map[string]struct{}{}
	}
	for _, i := range last {
		steps.OK(b.apply(i, files, &config), i.name, " ", i.arguments)
	}
	img := steps.Value(mutate.AppendLayers(base, layerOf(files)))
	file := steps.Value(img.ConfigFile()).DeepCopy()
	file.OS, file.Architecture, file.Config = b.platform.OS, b.platform.Architecture, config
	return steps.Value(mutate.ConfigFile(img, file))
}

// begin returns the image that the last stage begins from, and the first files of the layer above it.
func (b *builder) begin() (v1.Image, map[string][]byte) {
	if b.base == "" {
		config := v1.Config{Env: []string{"PATH=/", "SSL_CERT_FILE=/" + certificateFile}}
		return steps.Value(mutate.Config(empty.Image, config)), map[string][]byte{certificateFile: b.readCertificates()}
	}
	img, err := tarball.ImageFromPath(b.base, nil)
	steps.OK(err, "--base")
	file, err := img.ConfigFile()
	steps.OK(err, "--base ", b.base)
	if file.OS != b.platform.OS || file.Architecture != b.platform.Architecture {
		steps.Stopf("--base %s: the image is for %s/%s, want %s/%s", b.base, file.OS, file.Architecture, b.platform.OS, b.platform.Architecture)
	}
	return img, map[string][]byte{}
}

// certificateFile is where an image without a base has its CA certificates.
const certificateFile = "etc/ssl/certs/ca-certificates.crt"

func (b *builder) apply(i instruction, files map[string][]byte, config *v1.Config) error {
	switch i.name {
	case "COPY":
		words := slices.DeleteFunc(strings.Fields(i.arguments), func(w string) bool { return strings.HasPrefix(w, "--from=") })
		for _, source := range words[:len(words)-1] {
			content, err := os.ReadFile(filepath.Join(b.work, source))
			if err != nil {
				return err
			}
			files[strings.TrimPrefix(path.Join(words[len(words)-1], path.Base(source)), "/")] = content
		}
	case "USER":
		config.User = i.arguments
	case "EXPOSE":
		config.ExposedPorts[i.arguments+"/tcp"] = struct{}{}
	case "ENTRYPOINT":
		config.Entrypoint, config.Cmd = nil, nil // the base's arguments are not for this program, as in Docker
		return json.Unmarshal([]byte(i.arguments), &config.Entrypoint)
	default:
		return errors.New("not known in the last stage")
	}
	return nil
}

// layerOf returns a layer with the files, the same for the same files.
func layerOf(files map[string][]byte) v1.Layer {
	var text bytes.Buffer
	archive := tar.NewWriter(&text)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		mode := int64(0o555)
		if strings.HasPrefix(name, "etc/") {
			mode = 0o444
		}
		header := &tar.Header{Name: name, Mode: mode, Size: int64(len(files[name])), ModTime: time.Unix(0, 0), Format: tar.FormatPAX}
		steps.OK(archive.WriteHeader(header))
		steps.Value(archive.Write(files[name]))
	}
	steps.OK(archive.Close())
	return steps.Value(tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text.Bytes())), nil }))
}
