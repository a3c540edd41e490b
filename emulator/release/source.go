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
func readSource(ctx context.Context, root string) (source, error) {
	s := source{root: root}
	changes, err := s.git(ctx, "status", "--porcelain", "--untracked-files=all")
	if err != nil {
		return s, err
	}
	if changes != "" {
		return s, fmt.Errorf("the working tree has changes: commit them, or take them back\n%s", changes)
	}
	if s.commit, err = s.git(ctx, "rev-parse", "HEAD"); err != nil {
		return s, err
	}
	seconds, err := s.git(ctx, "show", "--no-patch", "--format=%ct", s.commit)
	if err != nil {
		return s, err
	}
	at, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return s, fmt.Errorf("the time of the commit: %w", err)
	}
	s.time = time.Unix(at, 0).UTC()
	s.tag, err = s.versionTag(ctx)
	return s, err
}

// versionTag returns the version's tag if the commit has it.
func (s source) versionTag(ctx context.Context) (string, error) {
	want := "v" + buildinfo.Version
	tags, err := s.git(ctx, "tag", "--list", "v*", "--points-at", s.commit)
	if err != nil {
		return "", err
	}
	for _, tag := range strings.Fields(tags) {
		if tag != want {
			return "", fmt.Errorf("the commit has the tag %s, but its version is %s: change Version of shared/buildinfo, or the tag", tag, buildinfo.Version)
		}
	}
	if tags != "" {
		return want, nil
	}
	if elsewhere, err := s.git(ctx, "tag", "--list", want); err != nil || elsewhere != "" {
		return "", errors.Join(err, fmt.Errorf("another commit has the tag %s: raise Version of shared/buildinfo", want))
	}
	return "", nil
}

// git runs git in the repository, and returns its output without the white space at its end.
func (s source) git(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", append([]string{"-C", s.root}, args...)...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	text, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w\n%s", args[0], err, errs.String())
	}
	return strings.TrimRight(string(text), " \n"), nil
}

// export writes the files of the commit into the folder, with that time.
func (s source) export(ctx context.Context, folder string, at time.Time) error {
	archive, err := s.git(ctx, "archive", "--format=tar", s.commit)
	if err != nil {
		return err
	}
	return extract(strings.NewReader(archive), folder, at)
}

// extract writes the files of a tar archive into the folder, with that time, or with the present one if it is zero.
func extract(stream io.Reader, folder string, at time.Time) error {
	archive := tar.NewReader(stream)
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		file := filepath.Join(folder, filepath.FromSlash(header.Name))
		switch {
		case header.Typeflag == tar.TypeXGlobalHeader, header.Typeflag == tar.TypeDir:
		case header.Typeflag != tar.TypeReg || !filepath.IsLocal(header.Name):
			return fmt.Errorf("%s: want files and folders alone", header.Name)
		default:
			if err := extractFile(archive, file, header.FileInfo().Mode(), at); err != nil {
				return err
			}
		}
	}
}

func extractFile(content io.Reader, file string, mode os.FileMode, at time.Time) error {
	text, err := io.ReadAll(content)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(file, text, mode); err != nil {
		return err
	}
	return os.Chtimes(file, at, at)
}
