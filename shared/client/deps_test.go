package client_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/shared/check"
)

// A program that imports the client compiles the standard library and this module's own packages, and at most
// two modules beside. It compiles no code of a chain.
func TestUsersCompileNoChainCode(t *testing.T) {
	t.Parallel()
	root := check.Value(filepath.Abs("../.."))(t)
	user := t.TempDir()
	sums := check.Value(os.ReadFile(filepath.Join(root, "go.sum")))(t)
	for name, text := range map[string]string{
		"go.mod":  "module example.com/user\n\ngo 1.26.0\n\nrequire github.com/fencepost/fencepost v0.0.0\n\nreplace github.com/fencepost/fencepost => " + root + "\n",
		"go.sum":  string(sums),
		"main.go": "package main\n\nimport \"github.com/fencepost/fencepost/shared/client\"\n\nfunc main() { _, _ = client.New(client.Options{}) }\n",
	} {
		check.OK(t)(os.WriteFile(filepath.Join(user, name), []byte(text), 0o644))
	}
	list := exec.CommandContext(t.Context(), "go", "list", "-mod=mod", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}} {{with .Module}}{{.Path}}{{end}}{{end}}", ".")
	list.Dir = user
	list.Env = append(os.Environ(), "GOPROXY=off", "GOFLAGS=", "GOWORK=off")
	out, err := list.CombinedOutput()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, out)
	}
	others := map[string]bool{}
	compiled := strings.Fields(string(out))
	for i := 0; i+1 < len(compiled); i += 2 {
		if module := compiled[i+1]; module != "example.com/user" && module != "github.com/fencepost/fencepost" {
			others[module] = true
		}
	}
	if len(compiled) < 4 || len(others) > 2 || strings.Contains(string(out), "go-ethereum") {
		t.Errorf("got packages %s, want the client, and at most two other modules, none of a chain", fmt.Sprint(compiled))
	}
}
