package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/fencepost/fencepost/shared/buildinfo"
	"github.com/fencepost/fencepost/shared/check"
)

// repository is a small Fencepost with one commit: the Dockerfile and package buildinfo are the real ones, and each program
// has --version alone.
type repository struct {
	t      *testing.T
	folder string
}

func newRepository(t *testing.T) repository {
	t.Helper()
	r := repository{t, t.TempDir()}
	for _, name := range []string{"Dockerfile", ".dockerignore", "emulator/Dockerfile", "emulator/Dockerfile.dockerignore", "shared/buildinfo/buildinfo.go"} {
		r.put(name, string(check.Value(os.ReadFile(filepath.Join("../..", name)))(t)))
	}
	r.put("go.mod", "module github.com/fencepost/fencepost\n\ngo 1.26\n")
	for _, name := range append([]string{"go.sum"}, pages...) {
		r.put(name, "")
	}
	for _, p := range programs {
		r.put(p.folder+"/main.go", fmt.Sprintf(`package main

import (
	"os"

	"github.com/fencepost/fencepost/shared/buildinfo"
)

func main() { buildinfo.PrintVersion(%q, os.Args[1:], os.Stdout) }
`, p.name))
	}
	r.git("init", "--quiet")
	r.commit()
	return r
}

func (r repository) put(name, text string) {
	r.t.Helper()
	file := filepath.Join(r.folder, name)
	check.OK(r.t)(os.MkdirAll(filepath.Dir(file), 0o755))
	check.OK(r.t)(os.WriteFile(file, []byte(text), 0o644))
}

func (r repository) git(args ...string) string {
	r.t.Helper()
	cmd := exec.CommandContext(r.t.Context(), "git", append([]string{"-C", r.folder, "-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "tag.gpgSign=false", "-c", "commit.gpgSign=false"}, args...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		r.t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

func (r repository) commit() {
	r.t.Helper()
	r.git("add", "--all")
	r.git("commit", "--quiet", "--message", "all")
}

// release runs the program quickly, for the platforms.
func (r repository) release(to, platforms string, out io.Writer, more ...string) error {
	return realMain(r.t.Context(), append([]string{"--root", r.folder, "--to", to, "--platforms", platforms, "--one-cache"}, more...), out)
}

// refused checks the error of a call that must fail.
func refused(t *testing.T, what string, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%s: got %v, want an error with %q", what, err, want)
	}
}

// postgresBase writes an archive that stands for Postgres's image: one file, and the image's settings.
func postgresBase(t *testing.T) (file string) {
	t.Helper()
	var text bytes.Buffer
	archive := tar.NewWriter(&text)
	check.OK(t)(archive.WriteHeader(&tar.Header{Name: "bin/postgres", Mode: 0o755}))
	check.OK(t)(archive.Close())
	layer := check.Value(tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text.Bytes())), nil }))(t)
	img := check.Value(mutate.AppendLayers(empty.Image, layer))(t)
	of := check.Value(img.ConfigFile())(t).DeepCopy()
	of.OS, of.Architecture, of.Config = "linux", "amd64", v1.Config{Env: []string{"PGDATA=/data"}, Cmd: []string{"postgres"}, Entrypoint: []string{"docker-entrypoint.sh"}}
	img = check.Value(mutate.ConfigFile(img, of))(t)
	file = filepath.Join(t.TempDir(), "postgres.tar")
	check.OK(t)(tarball.WriteToFile(file, check.Value(name.NewTag("postgres:17-bookworm"))(t), img))
	return file
}

// A release has an archive, both images, a bill of materials of each, and their checksums. Its programs name the commit, and so
// does one that go build has made in the repository.
func TestRelease(t *testing.T) {
	t.Parallel()
	r := newRepository(t)
	r.git("tag", "v"+buildinfo.Version)
	to, platform := filepath.Join(t.TempDir(), "dist"), runtime.GOOS+"/"+runtime.GOARCH
	var out bytes.Buffer
	refused(t, "a tag, and no base of the emulator's image", r.release(to, platform, &out), "--emulator-base")
	refused(t, "a relative path of the base", r.release(to, platform, io.Discard, "--emulator-base", "postgres.tar"), "want an absolute path")
	base := postgresBase(t)
	if err := r.release(to, platform, &out, "--emulator-base", base); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	archive := releaseName(platform)
	names := check.Value(namesIn(to))(t)
	check.Equal(t, "files", fmt.Sprint(names), fmt.Sprint(slices.Sorted(slices.Values([]string{sums, archive + ".cdx.json", archive + ".tar.gz", imageName() + ".cdx.json", imageName() + ".tar",
		emulatorImageName() + ".cdx.json", emulatorImageName() + ".tar"}))))
	for _, want := range []string{"tag v" + buildinfo.Version, "same, byte for byte", "emulator, fencepost, migrate, server, ubscore started", ": migrate, server started", ": emulator, server started"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("output: want %q in\n%s", want, &out)
		}
	}
	sum := exec.CommandContext(t.Context(), "sha256sum", "--check", sums)
	sum.Dir = to
	if text, err := sum.CombinedOutput(); err != nil {
		t.Errorf("sha256sum: %v\n%s", err, text)
	}
	var bom cdx.BOM
	check.OK(t)(json.Unmarshal(check.Value(os.ReadFile(filepath.Join(to, archive+".cdx.json")))(t), &bom))
	if got := len(*bom.Components); bom.BOMFormat != "CycloneDX" || got != len(programs)+1 || (*bom.Components)[got-1].Name != "std" {
		t.Errorf("bill of materials: got %+v, want the programs and Go's library", *bom.Components)
	}
	checkBill(t, filepath.Join(to, emulatorImageName()+".cdx.json"), base, &out)
	ofEmulator(t, filepath.Join(to, emulatorImageName()+".tar"))
	refused(t, "again, to the same folder", r.release(to, platform, io.Discard, "--emulator-base", base), "has files")
	r.built("(commit " + r.git("rev-parse", "HEAD") + ", go")
	r.put("shared/buildinfo/more.go", "package buildinfo\n")
	r.built("(commit " + r.git("rev-parse", "HEAD") + ", modified, go")
}

// checkBill checks that the bill of the emulator's image has the digest of its base, which is printed too.
func checkBill(t *testing.T, file, base string, out fmt.Stringer) {
	t.Helper()
	var bom cdx.BOM
	check.OK(t)(json.Unmarshal(check.Value(os.ReadFile(file))(t), &bom))
	digest := check.Value(check.Value(tarball.ImageFromPath(base, nil))(t).ConfigName())(t).String()
	at := slices.IndexFunc(*bom.Components, func(c cdx.Component) bool { return c.Type == cdx.ComponentTypeContainer })
	if at < 0 || (*bom.Components)[at].PackageURL != "pkg:docker/postgres@"+digest || (*bom.Components)[at].Version != "17-bookworm" || !strings.Contains(out.String(), digest) {
		t.Errorf("bill of materials: got %+v, want the base %s, also in\n%s", *bom.Components, digest, out)
	}
}

// The packages of npm are found in the files that programs embed, with the versions that these have.
func TestEmbeddedPackagesOfNPM(t *testing.T) {
	t.Parallel()
	var got []string
	for _, file := range []string{"../../functions/console/page/static/htmx.min.js", "../local/redoc/redoc.standalone.js.LICENSE.txt"} {
		for _, c := range npmPackages(check.Value(os.ReadFile(file))(t)) {
			got = append(got, c.PackageURL)
		}
	}
	check.Equal(t, "packages", strings.Join(got, " "), "pkg:npm/htmx.org@2.0.11 pkg:npm/redoc@2.5.4 pkg:npm/dompurify@3.4.13 pkg:npm/mark.js@8.11.1 "+
		"pkg:npm/perfect-scrollbar@1.5.3 pkg:npm/stickyfilljs@1.1.1 pkg:npm/react-is@16.13.1 pkg:npm/react-is@17.0.2 pkg:npm/classnames "+
		"pkg:npm/prismjs pkg:npm/react pkg:npm/react-dom pkg:npm/scheduler pkg:npm/use-sync-external-store")
	license := check.Value(os.ReadFile("../local/redoc/redoc.standalone.js.LICENSE.txt"))(t)
	if got, want := len(got)-1, strings.Count(string(license), "/*"); got != want {
		t.Errorf("Redoc's packages: got %d, want the %d that its licence file names", got, want)
	}
}

// ofEmulator checks the emulator's image: the base with its settings, and the programs, of which the emulator starts.
func ofEmulator(t *testing.T, file string) {
	t.Helper()
	img := check.Value(tarball.ImageFromPath(file, nil))(t)
	var names []string
	stream := mutate.Extract(img)
	defer stream.Close()
	for archive := tar.NewReader(stream); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		check.OK(t)(err)
		names = append(names, header.Name)
	}
	slices.Sort(names)
	check.Equal(t, "files of the emulator's image", fmt.Sprint(names), "[bin/postgres emulator server]")
	config := check.Value(img.ConfigFile())(t).Config
	check.Equal(t, "its settings", fmt.Sprint(config.Env, config.Entrypoint, config.Cmd), "[PGDATA=/data] [/emulator] []")
}

// built checks what a program says that go build has made in the repository, as after git clone.
func (r repository) built(want string) {
	r.t.Helper()
	program := filepath.Join(r.t.TempDir(), "server")
	cmd := exec.CommandContext(r.t.Context(), "go", "build", "-buildvcs=true", "-o", program, "./functions/server")
	cmd.Dir = r.folder
	if text, err := cmd.CombinedOutput(); err != nil {
		r.t.Fatalf("go build: %v\n%s", err, text)
	}
	if out := string(check.Value(exec.CommandContext(r.t.Context(), program, "--version").Output())(r.t)); !strings.Contains(out, want) {
		r.t.Errorf("--version of go build: got %q, want %q", out, want)
	}
}

// Two builds that differ are no release.
func TestReleaseWithoutReproducibleBuild(t *testing.T) {
	t.Parallel()
	r := newRepository(t)
	text := strings.Replace(string(check.Value(os.ReadFile(filepath.Join(r.folder, "Dockerfile")))(t)), "=$REVISION\"", "=$(date +%s%N)\"", 1)
	r.put("Dockerfile", text)
	r.commit()
	to := filepath.Join(t.TempDir(), "dist")
	refused(t, "two builds that differ", r.release(to, "", io.Discard), imageName()+".tar: the two builds differ")
	if _, err := os.Stat(to); err == nil {
		t.Error("there is a release, want none")
	}
}

// A release is of a commit whose tag, if it has one, is the version's.
func TestRefusedSources(t *testing.T) {
	t.Parallel()
	r := newRepository(t)
	read := func(name, want string) {
		t.Helper()
		_, err := readSource(t.Context(), r.folder)
		refused(t, name, err, want)
	}
	accepted := func(name string) {
		t.Helper()
		_, err := readSource(t.Context(), r.folder)
		check.Err(t, name, nil)(err)
	}
	accepted("no tag")
	r.put("README.md", "changed")
	read("a changed file", "README.md")
	r.commit()
	r.put("new.go", "")
	read("a new file", "new.go")
	r.commit()
	r.git("tag", "v9.9.9")
	read("another tag", "the tag v9.9.9")
	r.git("tag", "--delete", "v9.9.9")
	r.git("tag", "v"+buildinfo.Version)
	accepted("the version's tag")
	r.put("README.md", "changed again")
	r.commit()
	read("the tag at another commit", "raise Version")
}

// CONTRIBUTING.md has the command of --help. What it fetches is outside of the repository: within, it would be a change.
func TestCommandFetchesOutsideOfTheRepository(t *testing.T) {
	t.Parallel()
	page := string(check.Value(os.ReadFile("../../CONTRIBUTING.md"))(t))
	file := pullCommand[strings.LastIndexByte(pullCommand, ' ')+1:]
	if !filepath.IsAbs(file) || !strings.Contains(page, "`"+pullCommand+"`") || !strings.Contains(page, "`./scripts/release --emulator-base "+file+"`") {
		t.Errorf("CONTRIBUTING.md: want %s, with an absolute path, and the release of that file", pullCommand)
	}
}

// What a machine's git or shell is set to does not change what a release is made of.
func TestReleaseIsOfOneCommitAndOfOneEnvironment(t *testing.T) {
	r := newRepository(t)
	s := check.Value(readSource(t.Context(), r.folder))(t)
	r.put("later.md", "")
	r.git("config", "status.showUntrackedFiles", "no")
	_, err := readSource(t.Context(), r.folder)
	refused(t, "an untracked file", err, "later.md")
	r.commit()
	to := t.TempDir()
	check.OK(t)(s.export(t.Context(), to, s.time))
	if _, err := os.Stat(filepath.Join(to, "later.md")); err == nil {
		t.Error("a file of a later commit is exported, want those of the first")
	}
	environment := func(name string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "go", "env", "GOAMD64", "GOARM64", "GOEXPERIMENT", "GOFIPS140", "GOFLAGS", "GODEBUG", "GO111MODULE", "GOPROXY")
		cmd.Env = check.Value(buildEnvironment(t.Context(), nil))(t)
		check.Equal(t, name, string(check.Value(cmd.Output())(t)), "v1\nv8.0\n\noff\n-buildvcs=false\n\non\nhttps://modules.example\n")
	}
	settings := map[string]string{"GOAMD64": "v3", "GOARM64": "v9.0", "GOEXPERIMENT": "jsonv2", "GOFIPS140": "latest", "GOFLAGS": "-tags=none",
		"GO111MODULE": "auto", "GOPROXY": "https://modules.example"}
	var written strings.Builder
	for name, value := range settings {
		fmt.Fprintf(&written, "%s=%s\n", name, value)
		t.Setenv(name, "")
	}
	file := filepath.Join(t.TempDir(), "env")
	check.OK(t)(os.WriteFile(file, []byte(written.String()), 0o644))
	t.Setenv("GOENV", file)
	environment("go env -w")
	t.Setenv("GOENV", "off")
	for name, value := range settings {
		t.Setenv(name, value)
	}
	environment("environment")
}

// A file that one build lacks is a difference too.
func TestCompare(t *testing.T) {
	t.Parallel()
	a, b := t.TempDir(), t.TempDir()
	check.OK(t)(os.WriteFile(filepath.Join(a, "x"), []byte("1"), 0o644))
	refused(t, "a missing file", compare(a, b), "the first build has the files [x], the second []")
	check.OK(t)(os.WriteFile(filepath.Join(b, "x"), []byte("1"), 0o644))
	check.OK(t)(compare(a, b))
}
