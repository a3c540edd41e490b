package main

import (
	"bytes"
	goinfo "debug/buildinfo"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/fencepost/fencepost/emulator/stack/steps"
	"github.com/fencepost/fencepost/shared/buildinfo"
)

// writeBill writes the bill of materials of the programs in the folder and of the bases below them, as CycloneDX in JSON.
func (b builder) writeBill(dist, name, folder string, bases ...cdx.Component) {
	text, err := bill(name, folder, b.source.time, bases)
	steps.OK(err, "bill of materials")
	steps.OK(os.WriteFile(filepath.Join(dist, name+".cdx.json"), text, 0o644))
}

// bill lists the bases, and what the programs in the folder were made from, as the programs themselves have it.
func bill(name, folder string, at time.Time, bases []cdx.Component) (json []byte, err error) {
	defer steps.Return(&err)
	var programs, libraries []cdx.Component
	var needs []cdx.Dependency
	for _, f := range steps.Value(os.ReadDir(folder)) {
		if f.IsDir() {
			continue // certificates of the image
		}
		parts := partsOf(filepath.Join(folder, f.Name()))
		programs = append(programs, cdx.Component{BOMRef: f.Name(), Type: cdx.ComponentTypeApplication, Name: f.Name(), Version: buildinfo.Version})
		libraries = append(libraries, parts...)
		needs = append(needs, needsOf(f.Name(), parts))
	}
	slices.SortFunc(libraries, func(a, b cdx.Component) int { return strings.Compare(a.BOMRef, b.BOMRef) })
	libraries = slices.CompactFunc(libraries, func(a, b cdx.Component) bool { return a.BOMRef == b.BOMRef })
	all := slices.Concat(programs, bases, libraries)
	needs = append([]cdx.Dependency{needsOf(name, slices.Concat(programs, bases))}, needs...)
	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{
		Timestamp: at.UTC().Format(time.RFC3339),
		Component: &cdx.Component{BOMRef: name, Type: cdx.ComponentTypeApplication, Name: name, Version: buildinfo.Version},
	}
	bom.Components, bom.Dependencies = &all, &needs
	var text bytes.Buffer
	err = cdx.NewBOMEncoder(&text, cdx.BOMFileFormatJSON).SetPretty(true).Encode(bom)
	return text.Bytes(), err
}

// partsOf returns the libraries that a program has: Go's own, modules, and packages of npm.
func partsOf(program string) []cdx.Component {
	built := steps.Value(goinfo.ReadFile(program))
	parts := []cdx.Component{library("golang", "std", strings.TrimPrefix(built.GoVersion, "go"))}
	for _, m := range built.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		parts = append(parts, library("golang", m.Path, m.Version))
	}
	return append(parts, npmPackages(steps.Value(os.ReadFile(program)))...)
}

// embedded are the packages of npm that programs embed, with a text of the package that programs have too. The versions are its
// group; a package without one does not say its version.
var embedded = []struct {
	name string
	text *regexp.Regexp
}{
	// functions/console/page/static/htmx.min.js
	{"htmx.org", regexp.MustCompile(`// htmx ([0-9.]+), from npm`)},
	// emulator/local/redoc/redoc.standalone.js.LICENSE.txt: Redoc, and what it is bundled with.
	{"redoc", regexp.MustCompile(`ReDoc - OpenAPI/Swagger-generated API Reference Documentation\n \* -+\n \*   Version: "([0-9.]+)"`)},
	{"dompurify", regexp.MustCompile(`@license DOMPurify ([0-9.]+) `)},
	{"mark.js", regexp.MustCompile(`\* mark\.js v([0-9.]+)\n`)},
	{"perfect-scrollbar", regexp.MustCompile(`\* perfect-scrollbar v([0-9.]+)\n`)},
	{"stickyfilljs", regexp.MustCompile("Stickyfill -- `position: sticky` polyfill\n \\* v\\. ([0-9.]+) ")},
	{"react-is", regexp.MustCompile(`React v([0-9.]+)\n \* react-is\.production`)},
	{"classnames", regexp.MustCompile(`http://jedwatson\.github\.io/classnames`)},
	{"prismjs", regexp.MustCompile(`\* Prism: Lightweight, robust, elegant syntax highlighting`)},
	{"react", regexp.MustCompile(`\* react\.production\.min\.js\n`)},
	{"react-dom", regexp.MustCompile(`\* react-dom\.production\.min\.js\n`)},
	{"scheduler", regexp.MustCompile(`\* scheduler\.production\.min\.js\n`)},
	{"use-sync-external-store", regexp.MustCompile(`\* use-sync-external-store-shim\.production\.js\n`)},
}

// npmPackages returns the packages of npm in the text of a program or file.
func npmPackages(text []byte) (all []cdx.Component) {
	for _, e := range embedded {
		for _, found := range e.text.FindAllSubmatch(text, -1) {
			version := string(bytes.Join(found[1:], nil))
			all = append(all, library("npm", e.name, version))
		}
	}
	return all
}

// library is a Go module or a package of npm as a part of a program. Its reference is its package URL. An unknown version is "".
func library(kind, name, version string) cdx.Component {
	url := "pkg:" + kind + "/" + name
	if version != "" {
		url += "@" + strings.ReplaceAll(version, "+", "%2B")
	}
	return cdx.Component{BOMRef: url, Type: cdx.ComponentTypeLibrary, Name: name, Version: version, PackageURL: url}
}

// baseOf returns the image in the archive, by the digest of its configuration, which names its layers: Docker's image ID.
func baseOf(archive string) (base cdx.Component, err error) {
	defer steps.Return(&err)
	open := func() (io.ReadCloser, error) { return os.Open(archive) }
	manifest, err := tarball.LoadManifest(open)
	if err != nil {
		return base, fmt.Errorf("%w: want what --help fetches", err)
	}
	digest := steps.Value(steps.Value(tarball.Image(open, nil)).ConfigName())
	name, version := "postgres", ""
	if tags := manifest[0].RepoTags; len(tags) > 0 {
		at := strings.LastIndexByte(tags[0], ':')
		name, version = tags[0][:max(at, 0)], tags[0][at+1:]
	}
	url := "pkg:docker/postgres@" + digest.String()
	return cdx.Component{BOMRef: url, Type: cdx.ComponentTypeContainer, Name: name, Version: version, PackageURL: url,
		Hashes: &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: digest.Hex}}}, nil
}

func needsOf(name string, parts []cdx.Component) cdx.Dependency {
	var references []string
	for _, p := range parts {
		references = append(references, p.BOMRef)
	}
	return cdx.Dependency{Ref: name, Dependencies: &references}
}
