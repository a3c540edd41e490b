package main

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/fencepost/fencepost/shared/buildinfo"
	"github.com/fencepost/fencepost/shared/check"
)

// realVariable lets the tests compile the real programs without cgo, as the Dockerfiles do. That takes
// minutes without a warm cache, so only .ci/run sets it.
const realVariable = "FENCEPOST_TEST_IMAGES"

const root = "../.."

// layerFiles extracts the image, and returns the names and modes of its files.
func layerFiles(t *testing.T, img v1.Image, folder string) map[string]int64 {
	t.Helper()
	modes := make(map[string]int64)
	stream := mutate.Extract(img)
	defer stream.Close()
	archive := tar.NewReader(stream)
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return modes
		}
		check.OK(t)(err)
		modes[header.Name] = header.Mode
		file := filepath.Join(folder, header.Name)
		check.OK(t)(os.MkdirAll(filepath.Dir(file), 0o755))
		check.OK(t)(os.WriteFile(file, check.Value(io.ReadAll(archive))(t), os.FileMode(header.Mode)))
	}
}

// write makes the file in the folder.
func put(t *testing.T, folder, name, text string) {
	t.Helper()
	check.OK(t)(os.MkdirAll(filepath.Dir(filepath.Join(folder, name)), 0o755))
	check.OK(t)(os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644))
}

// The image has the programs, CA certificates and the Dockerfile's configuration, and nothing that
// .dockerignore keeps out is compiled. The same files make the same image.
func TestImageFollowsItsDockerfile(t *testing.T) {
	t.Parallel()
	context := t.TempDir()
	put(t, context, "go.mod", "module example.com/m\n\ngo 1.26\n")
	put(t, context, "a/server/main.go", "package main\n\nvar version string\n\nfunc main() { println(version) }\n")
	put(t, context, "a/server/broken_test.go", "is not Go")
	put(t, context, "secret/main.go", "is not Go either")
	put(t, context, ".dockerignore", "*\n!go.mod\n!a\n**/*_test.go\n")
	put(t, context, "Dockerfile", `ARG BASE=x
FROM y AS build
ENV CGO_ENABLED=0 GOFLAGS=-trimpath
WORKDIR /src
COPY /go.mod ./
COPY a a
ARG VERSION=none
# A comment
RUN test ! -e a/server/broken_test.go && test ! -e secret && \
  go build -ldflags="-X main.version=$VERSION -buildid=" -o /out/ ./a/server
FROM x
COPY --from=build /out/server /
USER 65532:65532
EXPOSE 8080
ENTRYPOINT ["/server"]
`)
	var digests []v1.Hash
	for range 2 {
		img := check.Value(build(t.Context(), buildOptions{root: context, dockerfile: "Dockerfile", arguments: map[string]string{"VERSION": "v9"}, output: t.Output()}, t.TempDir()))(t)
		folder := t.TempDir()
		check.Equal(t, "files", fmt.Sprint(layerFiles(t, img, folder)), fmt.Sprint(map[string]int64{"etc/ssl/certs/ca-certificates.crt": 0o444, "server": 0o555}))
		out := check.Value(exec.CommandContext(t.Context(), filepath.Join(folder, "server")).CombinedOutput())(t)
		check.Equal(t, "version", string(out), "v9\n")
		config := check.Value(img.ConfigFile())(t).Config
		if config.User != "65532:65532" || !slices.Equal(config.Entrypoint, []string{"/server"}) || len(config.ExposedPorts) != 1 {
			t.Errorf("got the configuration %+v, want the Dockerfile's", config)
		}
		digests = append(digests, check.Value(img.Digest())(t))
		file := filepath.Join(folder, "image.tar")
		check.OK(t)(write(img, "fencepost:test", file, io.Discard))
		again := check.Value(tarball.ImageFromPath(file, nil))(t)
		check.Equal(t, "layers of the archive", len(check.Value(again.Layers())(t)), 1)
	}
	check.Equal(t, "digest of the second build", digests[1], digests[0])
}

// The image is for Cloud Run's platform on any machine. The "program" here is what the build's Go would compile for.
func TestImageIsOfTheDeployedPlatform(t *testing.T) {
	t.Setenv("GOOS", "darwin")
	t.Setenv("GOARCH", "arm64")
	t.Setenv("CGO_ENABLED", "1")
	context := t.TempDir()
	put(t, context, ".dockerignore", "")
	put(t, context, ".hidden/file", "")
	put(t, context, "Dockerfile", "FROM a\nENV CGO_ENABLED=0\nCOPY . .\nRUN test -e .hidden/file && echo $GOOS $GOARCH $CGO_ENABLED > /out/server\nFROM b\nCOPY --from=build /out/server /\n")
	for platform, want := range map[string]string{"": "linux amd64 0\n", "linux/arm64": "linux arm64 0\n"} {
		file := filepath.Join(t.TempDir(), "image.tar")
		args := []string{"--root", context, "--to", file}
		if platform != "" {
			args = append(args, "--platform", platform)
		}
		var out bytes.Buffer
		check.OK(t)(realMain(t.Context(), args, &out))
		img := check.Value(tarball.ImageFromPath(file, nil))(t)
		folder := t.TempDir()
		layerFiles(t, img, folder)
		check.Equal(t, "compiled for", string(check.Value(os.ReadFile(filepath.Join(folder, "server")))(t)), want)
		config := check.Value(img.ConfigFile())(t)
		check.Equal(t, "the image's platform", config.OS+" "+config.Architecture+" 0\n", want)
		if digest := check.Value(img.Digest())(t).String(); !strings.Contains(out.String(), digest) {
			t.Errorf("got %q, want the digest %s of what is pushed", out.String(), digest)
		}
	}
	if err := realMain(t.Context(), []string{"--root", context, "--platform", "arm64"}, io.Discard); err == nil || !strings.Contains(err.Error(), "--platform") {
		t.Errorf("an architecture alone: got %v, want it refused", err)
	}
}

// An image on a base has the base's files and settings, the programs, and not the base's arguments. A base for another
// platform is refused.
func TestImageOnABase(t *testing.T) {
	t.Parallel()
	context, base := t.TempDir(), filepath.Join(t.TempDir(), "base.tar")
	put(t, context, ".dockerignore", "")
	put(t, context, "Dockerfile", "FROM a\nRUN echo of-the-base > /out/postgres\nFROM b\nCOPY --from=build /out/postgres /bin/\nENTRYPOINT [\"/bin/postgres\"]\n")
	put(t, context, "above/Dockerfile", "FROM a\nRUN echo above > /out/emulator\nFROM postgres\nCOPY --from=build /out/emulator /\nENTRYPOINT [\"/emulator\"]\n")
	args := []string{"--root", context, "--to", base}
	check.OK(t)(realMain(t.Context(), args, io.Discard))
	file := filepath.Join(t.TempDir(), "image.tar")
	args = []string{"--root", context, "--file", "above/Dockerfile", "--base", base, "--to", file}
	check.OK(t)(realMain(t.Context(), args, io.Discard))
	img, folder := check.Value(tarball.ImageFromPath(file, nil))(t), t.TempDir()
	check.Equal(t, "files", fmt.Sprint(layerFiles(t, img, folder)), fmt.Sprint(map[string]int64{"bin/postgres": 0o555, "emulator": 0o555, certificateFile: 0o444}))
	config := check.Value(img.ConfigFile())(t).Config
	if !slices.Equal(config.Entrypoint, []string{"/emulator"}) || !slices.Contains(config.Env, "PATH=/") {
		t.Errorf("got the configuration %+v, want the base's, and /emulator", config)
	}
	for want, more := range map[string][]string{"for linux/amd64, want linux/arm64": {"--platform", "linux/arm64"}, "none.tar": {"--base", "none.tar"}} {
		if err := realMain(t.Context(), slices.Concat(args, more), io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: got %v, want %q", more, err, want)
		}
	}
}

// A Dockerfile that does more than this program can do is refused.
func TestRefusedDockerfiles(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"FROM a\nRUN true\n":                             "1 stages",
		"FROM a\nHEALTHCHECK x\nFROM b\n":                "HEALTHCHECK",
		"FROM a\nUSER me\nFROM b\n":                      "only builds",
		"FROM a\nRUN false\nFROM b\n":                    "RUN false",
		"FROM a\nENV X\nFROM b\n":                        "NAME=VALUE",
		"FROM a\nCOPY gone ./\nFROM b\n":                 "gone",
		"FROM a\nCOPY hidden ./\nFROM b\n":               "keeps all of it out",
		"FROM a\nRUN true\nFROM b\nRUN true\n":           "last stage",
		"FROM a\nRUN true\nFROM b\nCOPY /out/gone /\n":   "gone",
		"FROM a\nRUN true\nFROM b\nENTRYPOINT /server\n": "ENTRYPOINT",
	} {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			context := t.TempDir()
			put(t, context, "Dockerfile", text)
			put(t, context, ".dockerignore", "hidden\n")
			put(t, context, "hidden/file", "")
			_, err := build(t.Context(), buildOptions{root: context, dockerfile: "Dockerfile", output: io.Discard}, t.TempDir())
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want an error with %q", err, want)
			}
		})
	}
}

// real skips the test unless it may compile the real programs.
func real(t *testing.T) {
	t.Helper()
	if os.Getenv(realVariable) == "" {
		t.Skipf("Left out: %s=true go test ./emulator/image compiles the programs as the Dockerfiles do", realVariable)
	}
}

// The Dockerfile's commands run on its context, and the layer's program starts with nothing but the
// image's files.
func TestImageOfTheFunctionsStarts(t *testing.T) {
	real(t)
	img := check.Value(build(t.Context(), buildOptions{root: root, dockerfile: "Dockerfile", arguments: map[string]string{"REVISION": "r9"}, output: t.Output()}, t.TempDir()))(t)
	folder := t.TempDir()
	layerFiles(t, img, folder)
	help := check.Value(exec.CommandContext(t.Context(), filepath.Join(folder, "migrate"), "--help").CombinedOutput())(t)
	if !strings.Contains(string(help), "migrate up") {
		t.Errorf("migrate --help: got %q", help)
	}
	address := freeAddress(t)
	_, port, _ := net.SplitHostPort(address)
	server := exec.CommandContext(t.Context(), filepath.Join(folder, "server"))
	server.Env = append(slices.Clone(minimal), "PORT="+port)
	stop := start(t, server)
	got := await(t, "http://"+address+"/healthz")
	if version := got.Header.Get("Fencepost-Version"); got.StatusCode != http.StatusOK || version != buildinfo.Version {
		t.Errorf("/healthz: got %d of version %q, want 200 of %s", got.StatusCode, version, buildinfo.Version)
	}
	for _, program := range []string{"server", "migrate"} {
		out := check.Value(exec.CommandContext(t.Context(), filepath.Join(folder, program), "--version").CombinedOutput())(t)
		if want := program + " " + buildinfo.Version + " (commit r9"; !strings.HasPrefix(string(out), want) {
			t.Errorf("%s --version: got %q, want %s", program, out, want)
		}
	}
	stop(syscall.SIGTERM)
}

// minimal is an environment with which a function starts. Nothing answers at these addresses.
var minimal = []string{
	"FUNCTION_TARGET=query", "FENCEPOST_CHAIN_ID=1337", "FENCEPOST_DATABASE_URL=postgres://nobody@127.0.0.1:1/none",
	"FENCEPOST_TASKS_PROJECT=p", "FENCEPOST_TASKS_LOCATION=l", "FENCEPOST_TASKS_TARGET_URL=http://127.0.0.1:1", "FENCEPOST_TASKS_ENDPOINT=127.0.0.1:1", "FENCEPOST_TASKS_SERVICE_ACCOUNT=tasks@p",
	"FENCEPOST_OIDC_ISSUER=http://127.0.0.1:1", "FENCEPOST_OIDC_JWKS_URL=http://127.0.0.1:1/jwks",
	"FENCEPOST_AUTH_PUBLIC_AUDIENCE=public", "FENCEPOST_AUTH_INTERNAL_AUDIENCE=internal", "FENCEPOST_AUTH_INTERNAL_ACCOUNTS=tasks@p",
}

// composed is the service of emulator/compose.yaml.
func composed(t *testing.T) types.ServiceConfig {
	t.Helper()
	options := check.Value(cli.NewProjectOptions([]string{filepath.Join(root, "emulator", "compose.yaml")}))(t)
	project := check.Value(options.LoadProject(t.Context()))(t)
	return check.Value(project.GetService("emulator"))(t)
}

// The file is one that Docker Compose reads. What it starts listens on this machine alone, and is what
// the Dockerfile builds.
func TestComposeFile(t *testing.T) {
	t.Parallel()
	s := composed(t)
	here := check.Value(filepath.Abs(root))(t)
	if s.Build == nil || s.Build.Context != here || s.Build.Dockerfile != "emulator/Dockerfile" || s.NetworkMode != "host" || len(s.Ports) > 0 {
		t.Errorf("got the build %+v, the network %q and the ports %v; want emulator/Dockerfile in the repository, on the host's loopback", s.Build, s.NetworkMode, s.Ports)
	}
	stages := check.Value(parse(string(check.Value(os.ReadFile(filepath.Join(here, s.Build.Dockerfile)))(t))))(t)
	last := stages[len(stages)-1]
	if want := (instruction{"ENTRYPOINT", `["/emulator"]`}); !slices.Contains(last, want) || !slices.Equal(s.Entrypoint, types.ShellCommand{"/emulator"}) {
		t.Errorf("got the entry points %v and %v, want /emulator", last, s.Entrypoint)
	}
	for _, flag := range []string{"--api", "--control"} {
		i := slices.Index(s.Command, flag)
		if i < 0 || !strings.HasPrefix(s.Command[i+1], "127.0.0.1:") {
			t.Errorf("%s: got %v, want an address of this machine alone", flag, s.Command)
		}
	}
}

// The compose file's command, as a plain process of what its Dockerfile's commands build, serves the API.
func TestComposedEmulatorServes(t *testing.T) {
	real(t)
	s := composed(t)
	work := t.TempDir()
	_, _, err := compile(t.Context(), buildOptions{root: root, dockerfile: s.Build.Dockerfile, output: t.Output()}, work)
	check.OK(t)(err)
	api, control := freeAddress(t), freeAddress(t)
	within := strings.NewReplacer("/emulator", work+"/out/emulator", "/server", work+"/out/server", "127.0.0.1:8080", api, "127.0.0.1:7070", control)
	words := slices.Concat([]string(s.Entrypoint), []string(s.Command))
	for i := range words {
		words[i] = within.Replace(words[i])
	}
	emulator := exec.CommandContext(t.Context(), words[0], words[1:]...)
	emulator.Env = []string{"PATH=" + os.Getenv("PATH")}
	stop := start(t, emulator)
	if got := await(t, "http://"+control+"/info"); got.StatusCode != http.StatusOK {
		t.Errorf("/info: got %d, want 200", got.StatusCode)
	}
	if got := await(t, "http://"+api+"/api/v1/tx/none"); got.StatusCode != http.StatusUnauthorized {
		t.Errorf("the API without a token: got %d, want 401", got.StatusCode)
	}
	stop(syscall.SIGTERM)
}

func freeAddress(t *testing.T) string {
	t.Helper()
	listener := check.Value(net.Listen("tcp", "127.0.0.1:0"))(t)
	check.OK(t)(listener.Close())
	return listener.Addr().String()
}

// start starts the command. Its result ends it by a signal, and waits for its end.
func start(t *testing.T, cmd *exec.Cmd) (stop func(os.Signal)) {
	t.Helper()
	var text bytes.Buffer
	cmd.Stdout, cmd.Stderr = &text, &text
	check.OK(t)(cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		if t.Failed() {
			_ = cmd.Process.Kill()
			t.Logf("%s wrote:\n%s", cmd.Path, text.String())
		}
	})
	return func(by os.Signal) {
		check.OK(t)(cmd.Process.Signal(by))
		select {
		case <-ended:
		case <-time.After(time.Minute):
			t.Errorf("%s: got no end a minute after %s", cmd.Path, by)
		}
	}
}

// await asks until there is an answer, for two minutes.
func await(t *testing.T, url string) *http.Response {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for {
		request := check.Value(http.NewRequestWithContext(ctx, http.MethodGet, url, nil))(t)
		response, err := http.DefaultClient.Do(request)
		if err == nil {
			_ = response.Body.Close()
			return response
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s: %v", url, err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}
