package shared_test

import (
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"github.com/fencepost/fencepost/shared/check"
)

// workflow is a file of .github/workflows.
type workflow struct {
	Permissions map[string]string
	Jobs        map[string]struct {
		Permissions map[string]string
		Timeout     int `yaml:"timeout-minutes"`
		Steps       []struct{ Uses, Run string }
	}
}

var pinned = regexp.MustCompile(`^[\w-]+/[\w./-]+@[0-9a-f]{40}$`)

// The workflow runs .ci/run with the right to read alone. An action is named by its commit, since its owner can move a tag.
func TestWorkflowRunsTheCheck(t *testing.T) {
	t.Parallel()
	files := check.Value(filepath.Glob("../.github/workflows/*"))(t)
	runs := 0
	for _, file := range files {
		var w workflow
		check.OK(t)(yaml.Unmarshal([]byte(readPage(t, file)), &w))
		if len(w.Permissions) != 1 || w.Permissions["contents"] != "read" {
			t.Errorf("%s: got the permissions %v, want contents: read", file, w.Permissions)
		}
		for name, job := range w.Jobs {
			if job.Timeout == 0 || job.Permissions != nil {
				t.Errorf("%s: %s: got the time-out %d and the permissions %v, want a time-out, and those of the workflow", file, name, job.Timeout, job.Permissions)
			}
			for _, step := range job.Steps {
				if step.Uses != "" && !pinned.MatchString(step.Uses) {
					t.Errorf("%s: %s: want the action's commit of 40 digits", file, step.Uses)
				}
				if step.Run == ".ci/run" {
					runs++
				}
			}
		}
	}
	check.Equal(t, "steps that run .ci/run", runs, 1)
}

// form is a file of .github/ISSUE_TEMPLATE.
type form struct {
	Name, Description string
	Body              []struct {
		Type, ID   string
		Attributes struct{ Label, Value string }
	}
	Links []struct{ Name, URL, About string } `yaml:"contact_links"`
}

// GitHub shows no form that lacks a name, a description or a label. The chooser sends reports of attacks to SECURITY.md.
func TestIssueForms(t *testing.T) {
	t.Parallel()
	files := check.Value(filepath.Glob("../.github/ISSUE_TEMPLATE/*.yml"))(t)
	check.Equal(t, "files", len(files), 3)
	for _, file := range files {
		var f form
		check.OK(t)(yaml.Unmarshal([]byte(readPage(t, file)), &f))
		if filepath.Base(file) == "config.yml" {
			if len(f.Links) != 1 || !strings.HasSuffix(f.Links[0].URL, "/security/policy") {
				t.Errorf("%s: got the links %+v, want GitHub's page of SECURITY.md", file, f.Links)
			}
			continue
		}
		if f.Name == "" || f.Description == "" || len(f.Body) == 0 {
			t.Errorf("%s: got %+v, want a name, a description and a body", file, f)
		}
		ids := make(map[string]bool)
		for _, part := range f.Body {
			if part.Type == "markdown" {
				continue
			}
			if part.ID == "" || ids[part.ID] || part.Attributes.Label == "" {
				t.Errorf("%s: got %+v, want an id of its own and a label", file, part)
			}
			ids[part.ID] = true
		}
	}
}

var word = regexp.MustCompile(`\w+`)

// The maps of folders are complete: CONTRIBUTING.md has each folder of the repository, and the packages in docs/architecture.md
// each folder with Go code, or a folder above it.
func TestMapsHaveEveryFolder(t *testing.T) {
	t.Parallel()
	table := section(t, "../CONTRIBUTING.md", "Where things are")
	packages := word.FindAllString(section(t, "../docs/architecture.md", "Packages"), -1)
	files := check.Value(exec.CommandContext(t.Context(), "git", "-C", "..", "ls-files").Output())(t)
	seen := make(map[string]bool)
	for file := range strings.Lines(string(files)) {
		folder, name := path.Split(strings.TrimSpace(file))
		parts := strings.Split(strings.TrimSuffix(folder, "/"), "/")
		if top := parts[0]; top != "" && !seen[top] {
			seen[top] = true
			if !strings.Contains(table, "| `"+top+"/` |") {
				t.Errorf("CONTRIBUTING.md: where things are lacks `%s/`", top)
			}
		}
		if len(parts) < 2 || !slices.Contains([]string{"functions", "shared", "emulator"}, parts[0]) || seen[folder] || path.Ext(name) != ".go" {
			continue
		}
		seen[folder] = true
		if !slices.ContainsFunc(parts[1:], func(part string) bool { return slices.Contains(packages, part) }) {
			t.Errorf("docs/architecture.md: packages lack %s", folder)
		}
	}
	atLeast(t, "folders", len(seen), 50)
}
