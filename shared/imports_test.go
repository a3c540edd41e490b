// Package shared_test holds rules about the whole project: imports run one way, and each test
// that the pages name exists.
package shared_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/parser"
	"go/token"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/fencepost/fencepost/shared/check"
)

const module = "github.com/fencepost/fencepost/"

// goPackage is what go list says of a package.
type goPackage struct {
	ImportPath   string
	Name         string
	Doc          string // the first sentence of the package comment
	GoFiles      []string
	Imports      []string
	TestImports  []string
	XTestImports []string
}

// listPackages lists the packages of the module, once for all tests.
var listPackages = sync.OnceValues(func() (all []goPackage, err error) {
	out, err := exec.Command("go", "list", "-json=ImportPath,Name,Doc,GoFiles,Imports,TestImports,XTestImports", module+"...").Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	for d := json.NewDecoder(bytes.NewReader(out)); d.More(); {
		var p goPackage
		if err := d.Decode(&p); err != nil {
			return nil, err
		}
		p.ImportPath = strings.TrimPrefix(p.ImportPath, module)
		all = append(all, p)
	}
	return all, nil
})

func packages(t *testing.T) []goPackage {
	t.Helper()
	return check.Value(listPackages())(t)
}

// Each package has a comment that describes it.
func TestPackagesAreDescribed(t *testing.T) {
	t.Parallel()
	for _, p := range packages(t) {
		if p.Doc == "" && len(p.GoFiles) > 0 {
			t.Errorf("%s has no package comment: say in its first paragraph, of at most three sentences, what it is", p.ImportPath)
		}
	}
}

// Each program that people run prints its version: by buildinfo itself, or by the main function of a package that asks it.
func TestEveryProgramHasItsVersion(t *testing.T) {
	t.Parallel()
	programs := 0
	for _, p := range packages(t) {
		if p.Name != "main" || strings.HasPrefix(p.ImportPath, "docs/examples/") || strings.HasPrefix(p.ImportPath, "emulator/acceptance/") {
			continue
		}
		programs++
		if !slices.ContainsFunc([]string{"shared/buildinfo", "emulator/stack/command", "functions"}, func(main string) bool { return slices.Contains(p.Imports, module+main) }) {
			t.Errorf("%s: want --version, by buildinfo.PrintVersion", p.ImportPath)
		}
	}
	atLeast(t, "programs", programs, 9)
}

// managerOrder lists the packages of the transaction manager. Each may import those before it.
var managerOrder = []string{
	"shared/txmanager", "shared/txmanager/gas", "shared/txmanager/rules", "shared/txmanager/session", "shared/txmanager/quorum",
	"shared/txmanager/protect", "shared/txmanager/reservation", "shared/txmanager/worker",
}

// managerTests builds the states of their tests, from the nouns alone.
const managerTests = "shared/txmanager/txtest"

// The packages of the transaction manager import downward only, in their tests too. A program
// contains no package for tests.
func TestTransactionManagerImportsDownward(t *testing.T) {
	t.Parallel()
	found := 0
	for _, p := range packages(t) {
		at := slices.Index(managerOrder, p.ImportPath)
		if p.ImportPath == managerTests {
			at = 1
		}
		if at >= 0 {
			found++
		}
		for _, path := range slices.Concat(p.Imports, p.TestImports, p.XTestImports) {
			own := strings.TrimPrefix(path, module)
			if to := slices.Index(managerOrder, own); at >= 0 && to >= at && own != p.ImportPath {
				t.Errorf("%s imports %s, which comes after it in %v", p.ImportPath, own, managerOrder)
			}
		}
		if slices.Contains(p.Imports, module+managerTests) {
			t.Errorf("%s imports %s: only tests may", p.ImportPath, managerTests)
		}
	}
	check.Equal(t, "packages of the transaction manager, beside those that are listed", found, len(managerOrder)+1)
}

// The domain knows the standard library and its own nouns; adapters know the
// domain; functions wire; nothing knows functions or the emulator.
func TestImportsRunOneWay(t *testing.T) {
	t.Parallel()
	domain := slices.Concat(managerOrder, []string{"shared/lease", "shared/mark", "shared/chain", "shared/transfer", "shared/conservation", "shared/events"})
	businesses := []string{"docs/examples/payroll", "emulator/acceptance", "emulator/acceptance/payroll/server", "emulator/acceptance/owner", "emulator/verify/torture", "emulator/verify/torture/load"} // the tests are one
	all := packages(t)
	atLeast(t, "packages of the module", len(all), 10)
	for _, p := range all {
		top, _, _ := strings.Cut(p.ImportPath, "/")
		for _, path := range slices.Concat(p.Imports, p.TestImports, p.XTestImports) {
			own, ours := strings.CutPrefix(path, module)
			ownTop, _, _ := strings.Cut(own, "/")
			switch {
			case ours && ownTop == "emulator" && top != "emulator":
				t.Errorf("%s imports %s: nothing outside the emulator may", p.ImportPath, own)
			case ours && ownTop == "functions" && top != "functions" && !slices.Contains(businesses, p.ImportPath):
				t.Errorf("%s imports %s: nothing outside functions may, but a business that compiles them in", p.ImportPath, own)
			}
		}
		if slices.Contains(domain, p.ImportPath) {
			for _, path := range p.Imports {
				own, ours := strings.CutPrefix(path, module)
				if ours && !slices.Contains(domain, own) || !ours && strings.Contains(path, ".") {
					t.Errorf("%s imports %s: the domain knows the standard library and its own nouns only", p.ImportPath, path)
				}
			}
		}
	}
}

// Outside tests, Ethereum's library and the EVM connector are used by the connector itself, the
// signers, the kits that tests use, and one file of the functions' wiring. So does the example of a business
// on an EVM chain. Everything else knows package chain. The second family does not know Ethereum in its tests either.
func TestOnlyTheEVMConnectorKnowsEthereum(t *testing.T) {
	t.Parallel()
	may := []string{"shared/chain/evm", "shared/chain/anvil", "shared/chain/devchain", "shared/chain/chaintest", "shared/signer", "shared/store/storetest", "shared/txmanager/txtest", "emulator", "docs/examples/payroll"}
	const wiring, list, secondFamily = "functions", "chains.go", "shared/chain/memchain"
	for _, p := range packages(t) {
		imports := p.Imports
		switch {
		case p.ImportPath == secondFamily:
			imports = slices.Concat(imports, p.TestImports, p.XTestImports)
		case p.ImportPath == wiring, slices.ContainsFunc(may, func(prefix string) bool { return strings.HasPrefix(p.ImportPath, prefix) }):
			continue
		}
		for _, path := range imports {
			if knowsEthereum(path) {
				t.Errorf("%s imports %s: use package chain", p.ImportPath, path)
			}
		}
	}
	files := check.Value(filepath.Glob("../" + wiring + "/*.go"))(t)
	atLeast(t, "files of the wiring", len(files), 10)
	for _, name := range files {
		if base := filepath.Base(name); base == list || strings.HasSuffix(base, "_test.go") {
			continue
		}
		f := check.Value(parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly))(t)
		for _, i := range f.Imports {
			if knowsEthereum(strings.Trim(i.Path.Value, `"`)) {
				t.Errorf("%s imports %s: only %s may", name, i.Path.Value, list)
			}
		}
	}
}

func knowsEthereum(path string) bool {
	return strings.HasPrefix(path, "github.com/ethereum/go-ethereum") || strings.HasPrefix(path, module+"shared/chain/evm")
}

// One place each: the settings' reader, and the users of a foreign client.
func TestOneUserOfEachClient(t *testing.T) {
	t.Parallel()
	only := map[string][]string{
		"cloud.google.com/go/cloudsqlconn":     {"shared/store/cloudsql"},
		"cloud.google.com/go/storage":          {"shared/mark/gcs"},
		"cloud.google.com/go/pubsub/v2":        {"shared/events/pubsub"},
		"cloud.google.com/go/cloudtasks/apiv2": {"shared/tasks", "emulator/fake/cloudtasks", "emulator/stack"},
		"github.com/jackc/pgx/v5/pgxpool":      {"emulator/acceptance/acceptancetest", "shared/store", "shared/store/storetest", "shared/store/transfers", "shared/store/conservation", "shared/store/events", "shared/ledger/funding", "emulator/verify/torture", "emulator/verify/torture/load", "emulator/verify/torture/transferload", "emulator/verify/bench"},
	}
	only["github.com/spf13/cobra"] = []string{"shared/client/cmd/fencepost"}
	only["github.com/ethereum/go-ethereum/accounts/abi"] = []string{managerTests} // tests alone: it makes Go types at run time, which are never freed
	for _, p := range packages(t) {
		for _, path := range p.Imports {
			if users, ok := only[path]; ok && !slices.Contains(users, p.ImportPath) {
				t.Errorf("%s imports %s: only %v may", p.ImportPath, path, users)
			}
		}
	}
}
