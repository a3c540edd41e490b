package main

import (
	"bytes"
	goinfo "debug/buildinfo"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"

	"github.com/fencepost/fencepost/shared/buildinfo"
)

// writeBill writes the bill of materials of the programs in the folder, as CycloneDX in JSON.
func (b builder) writeBill(dist, name, folder string) error {
	text, err := bill(name, folder, b.source.time)
	if err != nil {
		return fmt.Errorf("bill of materials: %w", err)
	}
	return os.WriteFile(filepath.Join(dist, name+".cdx.json"), text, 0o644)
}

// bill lists the modules that the programs in the folder were compiled from, as the programs themselves have them.
func bill(name, folder string, at time.Time) ([]byte, error) {
	var programs, modules []cdx.Component
	var needs []cdx.Dependency
	files, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		if f.IsDir() {
			continue // certificates of the image
		}
		built, err := goinfo.ReadFile(filepath.Join(folder, f.Name()))
		if err != nil {
			return nil, err
		}
		parts := []cdx.Component{library("std", strings.TrimPrefix(built.GoVersion, "go"))}
		for _, m := range built.Deps {
			if m.Replace != nil {
				m = m.Replace
			}
			parts = append(parts, library(m.Path, m.Version))
		}
		programs = append(programs, cdx.Component{BOMRef: f.Name(), Type: cdx.ComponentTypeApplication, Name: f.Name(), Version: buildinfo.Version})
		modules = append(modules, parts...)
		needs = append(needs, needsOf(f.Name(), parts))
	}
	slices.SortFunc(modules, func(a, b cdx.Component) int { return strings.Compare(a.BOMRef, b.BOMRef) })
	modules = slices.CompactFunc(modules, func(a, b cdx.Component) bool { return a.BOMRef == b.BOMRef })
	all := append(programs, modules...)
	needs = append([]cdx.Dependency{needsOf(name, programs)}, needs...)
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

// library is a Go module as a part of a program. Its reference is its package URL.
func library(module, version string) cdx.Component {
	url := "pkg:golang/" + module + "@" + strings.ReplaceAll(version, "+", "%2B")
	return cdx.Component{BOMRef: url, Type: cdx.ComponentTypeLibrary, Name: module, Version: version, PackageURL: url}
}

func needsOf(name string, parts []cdx.Component) cdx.Dependency {
	var references []string
	for _, p := range parts {
		references = append(references, p.BOMRef)
	}
	return cdx.Dependency{Ref: name, Dependencies: &references}
}
