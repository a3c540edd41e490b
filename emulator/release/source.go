package main

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/fencepost/fencepost/emulator/stack/steps"
	"github.com/fencepost/fencepost/shared/buildinfo"
)

type source struct {
	root   string
	commit string
	tag    string    // of the version; "": the commit has none
	time   time.Time // of the commit, which all files of a release have
}

// readSource returns the last commit of the repository. It refuses a working tree with changes, and tags that contradict the
// version.
func readSource(ctx context.Context, root string) (s source, err error) {
	defer steps.Return(&err)
	s.root = root
	if changes := s.git(ctx, "status", "--porcelain", "--untracked-files=all"); changes != "" {
		return s, fmt.Errorf("the working tree has changes: commit them, or take them back\n%s", changes)
	}
	s.commit = s.git(ctx, "rev-parse", "HEAD")
	seconds, err := strconv.ParseInt(s.git(ctx, "show", "--no-patch", "--format=%ct", s.commit), 10, 64)
	steps.OK(err, "the time of the commit")
	s.time = time.Unix(seconds, 0).UTC()
	s.tag = s.versionTag(ctx)
	return s, nil
}

// versionTag returns the version's tag if the commit has it.
func (s source) versionTag(ctx context.Context) string {
	want := "v" + buildinfo.Version
	tags := s.git(ctx, "tag", "--list", "v*", "--points-at", s.commit)
	for _, tag := range strings.Fields(tags) {
		if tag != want {
			steps.Stopf("the commit has the tag %s, but its version is %s: change Version of shared/buildinfo, or the tag", tag, buildinfo.Version)
		}
	}
	if tags != "" {
		return want
	}
	if s.git(ctx, "tag", "--list", want) != "" {
		steps.Stopf("another commit has the tag %s: raise Version of shared/buildinfo", want)
	}
	return ""
}

// git runs git in the repository, and returns its output without the white space at its end.
func (s source) git(ctx context.Context, args ...string) string {
	cmd := exec.CommandContext(ctx, "git", append([]string{"-C", s.root}, args...)...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	text, err := cmd.Output()
	if err != nil {
		steps.Stopf("git %s: %w\n%s", args[0], err, errs.String())
	}
	return strings.TrimRight(string(text), " \n")
}

// export writes the files of the commit into the folder, with that time.
func (s source) export(ctx context.Context, folder string, at time.Time) (err error) {
	defer steps.Return(&err)
	extract(strings.NewReader(s.git(ctx, "archive", "--format=tar", s.commit)), folder, at)
	return nil
}

// extract writes the files of a tar archive into the folder, with that time, or with the present one if it is zero.
func extract(stream io.Reader, folder string, at time.Time) {
	archive := tar.NewReader(stream)
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		steps.OK(err)
		file := filepath.Join(folder, filepath.FromSlash(header.Name))
		switch {
		case header.Typeflag == tar.TypeXGlobalHeader, header.Typeflag == tar.TypeDir:
		case header.Typeflag != tar.TypeReg || !filepath.IsLocal(header.Name):
			steps.Stopf("%s: want files and folders alone", header.Name)
		default:
			text := steps.Value(io.ReadAll(archive))
			steps.OK(os.MkdirAll(filepath.Dir(file), 0o755))
			steps.OK(os.WriteFile(file, text, header.FileInfo().Mode()))
			steps.OK(os.Chtimes(file, at, at))
		}
	}
}
