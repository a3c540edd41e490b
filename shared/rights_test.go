package shared_test

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// secretLine is one secret in terraform/secrets.tf with the condition for those that read it.
var secretLine = regexp.MustCompile(`(?m)^    ([a-z-]+) = \{ variable = \S+, readers = (.*) \}$`)

// readersOf are the flags of functions.json, by secret, of which a function has one that
// reads the secret.
func readersOf(t *testing.T) map[string][]string {
	t.Helper()
	file := text(t, "../terraform", "secrets.tf")
	flags := make(map[string][]string)
	for _, found := range secretLine.FindAllStringSubmatch(file, -1) {
		// main.tf calls the flag events publishes.
		flags[found[1]] = each(t, strings.ReplaceAll(found[2], "f.publishes", "f.events"), `\bf\.([a-z]+)`)
	}
	if want := strings.Count(file, ", readers = "); len(flags) != want {
		t.Fatalf("secrets.tf: got %d secrets of %d: each stands on one line", len(flags), want)
	}
	return flags
}

// rightsOf is a function's row: its callers, and the rights of its service account.
func rightsOf(t *testing.T, name string, f map[string]any, readers map[string][]string) string {
	t.Helper()
	has := func(flag string) bool { _, there := f[flag]; return there }
	or := func(list []string) string {
		if len(list) == 0 {
			return "none"
		}
		slices.Sort(list)
		return strings.Join(list, ", ")
	}
	var callers, secrets, queues []string
	for flag, caller := range map[string]string{"paths": "the load balancer", "queue": "its queue", "scheduled": "the scheduler"} {
		if has(flag) {
			callers = append(callers, caller)
		}
	}
	for secret, flags := range readers {
		if slices.ContainsFunc(flags, has) {
			secrets = append(secrets, secret)
		}
	}
	if made, there := f["enqueues"].([]any); there {
		for _, queue := range made {
			queues = append(queues, queue.(string))
		}
	}
	keys, mark := "none", "reads"
	switch {
	case has("signs"):
		keys = "signs by each"
	case has("registers"):
		keys = "reads the public halves"
	}
	if has("marks") {
		mark = "writes"
	}
	return fmt.Sprintf("| `%s` | %s | %s | %s | %s | %s |", name, or(callers), or(secrets), or(queues), keys, mark)
}

const rightsHead = `| function | called by | secrets it reads | queues it makes tasks on | HSM keys | mark |
| --- | --- | --- | --- | --- | --- |
`

// The table of rights in docs/deploy.md is generated from functions.json and secrets.tf, as the
// grants are.
func TestRightsOfEachFunctionAreOnThePage(t *testing.T) {
	t.Parallel()
	catalogue := decoded[map[string]map[string]any](t, "functions.json")
	readers := readersOf(t)
	var want []string
	for _, name := range slices.Sorted(maps.Keys(catalogue)) {
		want = append(want, rightsOf(t, name, catalogue[name], readers))
	}
	generatePart(t, "../docs/deploy.md", "rights", rightsHead+strings.Join(want, "\n")+"\n")
}
