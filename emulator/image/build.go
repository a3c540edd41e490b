package main

import (
	"archive/tar"
	"bytes"
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
		var err error
		switch i.name {
		case "ARG":
			name, value, _ := strings.Cut(i.arguments, "=")
			if given, ok := b.arguments[name]; ok {
				value = given
			}
			b.variables[name] = value
		case "ENV":
			err = b.setVariables(i.arguments)
		case "WORKDIR":
			b.folder = i.arguments
			err = os.MkdirAll(filepath.Join(b.work, b.folder), 0o755)
		case "COPY":
			err = b.copyContext(strings.Fields(i.arguments))
		case "RUN":
			err = b.shell(ctx, i.arguments)
		default:
			err = errors.New("the first stage only builds")
		}
		if err != nil {
			return fmt.Errorf("%s %s: %w", i.name, i.arguments, err)
		}
	}
	return nil
}

func (b *builder) setVariables(arguments string) error {
	for _, word := range strings.Fields(arguments) {
		name, value, err := assignment(word)
		if err != nil {
			return err
		}
		b.variables[name] = value
	}
	return nil
}

// shell runs a command in WORKDIR. An absolute path of the stage, such as /out/, is below work.
func (b *builder) shell(ctx context.Context, line string) error {
	const out = " /out/"
	if err := os.MkdirAll(filepath.Join(b.work, "out"), 0o755); err != nil {
		return err
	}
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
func (b *builder) copyContext(words []string) error {
	if len(words) < 2 {
		return errors.New("want a source and a target")
	}
	text, err := os.ReadFile(filepath.Join(b.root, b.dockerfile+".dockerignore")) // goes before the other, as in Docker
	if errors.Is(err, fs.ErrNotExist) {
		text, err = os.ReadFile(filepath.Join(b.root, ".dockerignore"))
	}
	if err != nil {
		return err
	}
	out, err := ignored(string(text))
	if err != nil {
		return err
	}
	sources, target := words[:len(words)-1], words[len(words)-1]
	for _, source := range sources {
		to := target // of a folder's content
		if info, err := os.Stat(filepath.Join(b.root, source)); err != nil {
			return err
		} else if !info.IsDir() {
			to = path.Join(target, source)
		}
		if err := b.copyTree(source, to, out); err != nil {
			return err
		}
	}
	return nil
}

func (b *builder) copyTree(source, target string, out func(string) bool) error {
	copied := 0
	err := filepath.WalkDir(filepath.Join(b.root, source), func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		relative, err := filepath.Rel(b.root, file)
		if err != nil || out(filepath.ToSlash(relative)) {
			return err
		}
		within, err := filepath.Rel(filepath.Join(b.root, source), file)
		if err != nil {
			return err
		}
		copied++
		return copyFile(file, filepath.Join(b.work, b.folder, target, within))
	})
	if err == nil && copied == 0 {
		err = fmt.Errorf("%s: .dockerignore keeps all of it out", source)
	}
	return err
}

func copyFile(from, to string) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.WriteFile(to, content, 0o644)
}

// certificateFiles are where systems keep their CA certificates.
var certificateFiles = []string{"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"}

func (b *builder) readCertificates() ([]byte, error) {
	for _, file := range certificateFiles {
		if b.certificates != "" {
			file = b.certificates
		}
		if text, err := os.ReadFile(file); err == nil && bytes.Contains(text, []byte("BEGIN CERTIFICATE")) {
			return text, nil
		}
	}
	return nil, errors.New("no CA certificates found: name their file by --certificates")
}

// assemble makes the image of the last stage: the base and the programs, or without a base the programs and CA
// certificates.
func (b *builder) assemble(last stage) (v1.Image, error) {
	base, files, err := b.begin()
	if err != nil {
		return nil, err
	}
	file, err := base.ConfigFile()
	if err != nil {
		return nil, err
	}
	config := file.DeepCopy().Config
	if config.ExposedPorts == nil {
		config.ExposedPorts = map[string]struct{}{}
	}
	for _, i := range last {
		if err := b.apply(i, files, &config); err != nil {
			return nil, fmt.Errorf("%s %s: %w", i.name, i.arguments, err)
		}
	}
	layer, err := layerOf(files)
	if err != nil {
		return nil, err
	}
	img, err := mutate.AppendLayers(base, layer)
	if err != nil {
		return nil, err
	}
	if file, err = img.ConfigFile(); err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.OS, file.Architecture, file.Config = b.platform.OS, b.platform.Architecture, config
	return mutate.ConfigFile(img, file)
}

// begin returns the image that the last stage begins from, and the first files of the layer above it.
func (b *builder) begin() (v1.Image, map[string][]byte, error) {
	if b.base == "" {
		certificates, err := b.readCertificates()
		if err != nil {
			return nil, nil, err
		}
		config := v1.Config{Env: []string{"PATH=/", "SSL_CERT_FILE=/" + certificateFile}}
		img, err := mutate.Config(empty.Image, config)
		return img, map[string][]byte{certificateFile: certificates}, err
	}
	img, err := tarball.ImageFromPath(b.base, nil)
	if err != nil {
		return nil, nil, fmt.Errorf("--base: %w", err)
	}
	file, err := img.ConfigFile()
	if err != nil {
		return nil, nil, fmt.Errorf("--base %s: %w", b.base, err)
	}
	if file.OS != b.platform.OS || file.Architecture != b.platform.Architecture {
		return nil, nil, fmt.Errorf("--base %s: the image is for %s/%s, want %s/%s", b.base, file.OS, file.Architecture, b.platform.OS, b.platform.Architecture)
	}
	return img, map[string][]byte{}, nil
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
func layerOf(files map[string][]byte) (v1.Layer, error) {
	var text bytes.Buffer
	archive := tar.NewWriter(&text)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		mode := int64(0o555)
		if strings.HasPrefix(name, "etc/") {
			mode = 0o444
		}
		header := &tar.Header{Name: name, Mode: mode, Size: int64(len(files[name])), ModTime: time.Unix(0, 0), Format: tar.FormatPAX}
		if err := archive.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := archive.Write(files[name]); err != nil {
			return nil, err
		}
	}
	if err := archive.Close(); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text.Bytes())), nil })
}
