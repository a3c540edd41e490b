package shared_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/config"
)

// text is all of what the files under a folder that end so say.
func text(t *testing.T, folder, ending string) string {
	t.Helper()
	var all strings.Builder
	for _, path := range files(t, folder, ending) {
		all.WriteString(readPage(t, path))
	}
	if all.Len() == 0 {
		t.Fatalf("%s: got no text of %s, want some", folder, ending)
	}
	return all.String()
}

// each gives the first group of what the pattern finds, which must be something.
func each(t *testing.T, in, pattern string) (found []string) {
	t.Helper()
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(in, -1) {
		found = append(found, m[1])
	}
	if len(found) == 0 {
		t.Fatalf("%s: got none, want some to check", pattern)
	}
	return found
}

// defaultSettings are those of a deployment that sets only what it must.
func defaultSettings(t *testing.T) config.Config {
	t.Helper()
	return check.Value(config.Load([]string{"FENCEPOST_CHAIN_ID=1", "FENCEPOST_DATABASE_URL=postgres://fencepost@127.0.0.1/fencepost"}))(t)
}

// A process refuses a variable that it does not know, and would not start.
func TestVariablesDeployedAreSettings(t *testing.T) {
	t.Parallel()
	known := config.Help()
	for _, name := range each(t, text(t, "../terraform", ".tf"), `\b(FENCEPOST_[A-Z_]*[A-Z]|CLOUD_RUN_[A-Z_]+|FUNCTION_TARGET)\b`) {
		if !regexp.MustCompile(`(?m)^\s*` + name + `\b`).MatchString(known) {
			t.Errorf("terraform sets %s, which is no setting", name)
		}
	}
}

// No deployed function may end the frozen session of another function. The server does so when
// the lease of its holder has ended.
func TestTransactionsDeployedEndWithTheLease(t *testing.T) {
	t.Parallel()
	want := strconv.FormatInt(defaultSettings(t).Lease.Duration.Milliseconds(), 10)
	for _, got := range each(t, text(t, "../terraform", "main.tf"), `transaction_timeout = .* : (\d+)`) {
		check.Equal(t, "transaction_timeout in ms, which is as long as a lease", got, want)
	}
}

// Each alert filters for a message that the code logs.
func TestLogLinesAlertedUponAreLogged(t *testing.T) {
	t.Parallel()
	policies := text(t, "../terraform/modules/alerts", "policies.tf")
	logged := text(t, ".", ".go") + text(t, "../functions", ".go")
	for _, pattern := range []string{`jsonPayload\.message=~?\\"\^?(.*?)\\"`, `jsonPayload\.alert=\\"(.*?)\\"`} {
		for _, literal := range each(t, policies, pattern) {
			if !strings.Contains(logged, `"`+literal) {
				t.Errorf("an alert looks for %q, which nothing logs", literal)
			}
		}
	}
}

// Of each variable's validations a run of terraform/tests shows that it refuses.
func TestValidationsDeployedRefuseSomething(t *testing.T) {
	t.Parallel()
	variables := regexp.MustCompile(`(?ms)^variable "(\w+)" \{$(.*?)^\}$`).FindAllStringSubmatch(text(t, "../terraform", ".tf"), -1)
	refused := text(t, "../terraform", ".hcl")
	checked := 0
	for _, v := range variables {
		validations := strings.Count(v[2], "\n  validation {")
		checked += validations
		if runs := len(regexp.MustCompile(`expect_failures\s*= \[var\.`+v[1]+`\]`).FindAllString(refused, -1)); runs < validations {
			t.Errorf("variable %s: got %d runs that it refuses, want one for each of its %d validations", v[1], runs, validations)
		}
	}
	atLeast(t, "validations", checked, 20)
}

// What the provider is needed to plan is not checked everywhere: these defaults and ways
// are read here as they are written.
func TestDefaultsDeployedAreTheSafeOnes(t *testing.T) {
	t.Parallel()
	all := text(t, "../terraform", ".tf")
	defaults := map[string]string{}
	for _, v := range regexp.MustCompile(`(?ms)^variable "(\w+)" \{$(.*?)^\}$`).FindAllStringSubmatch(all, -1) {
		if set := regexp.MustCompile(`(?m)^  default     = (.*)$`).FindStringSubmatch(v[2]); set != nil {
			defaults[v[1]] = set[1]
		}
		if strings.HasSuffix(v[1], "image") && strings.Contains(v[2], "description") && !strings.Contains(v[2], "@sha256:[0-9a-f]{64}$") && strings.Contains(v[2], "default") {
			t.Errorf("variable %s: takes an image without a digest", v[1])
		}
	}
	for name, want := range map[string]string{"signers": `["kms"]`, "admin_ranges": "[]", "armor_preview": "false", "deletion_protection": "true", "collector_image": "null"} {
		check.Equal(t, fmt.Sprintf("default of %s", name), defaults[name], want)
	}
	if strings.Contains(all, "PRIVATE_RANGES_ONLY") || strings.Count(all, `egress = "ALL_TRAFFIC"`) != strings.Count(all, "vpc_access {") {
		t.Error("a service or a job has another way out than the network's")
	}
	if runs, attested := strings.Count(all, `resource "google_cloud_run_v2_`)-strings.Count(all, `resource "google_cloud_run_v2_service_iam`), strings.Count(all, `dynamic "binary_authorization"`); runs != attested {
		t.Errorf("got %d services and jobs, %d of them under the policy of attestations", runs, attested)
	}
}

// atLeast reports that a test found too few to be all: it would prove too little.
func atLeast(t *testing.T, what string, got, want int) {
	t.Helper()
	if got < want {
		t.Errorf("%s: got %d, want at least %d", what, got, want)
	}
}

// numberIn is the number that the pattern's group finds in the text, or the fallback.
func numberIn(t *testing.T, text, pattern string, fallback int) int {
	t.Helper()
	m := regexp.MustCompile(pattern).FindStringSubmatch(text)
	if m == nil {
		return fallback
	}
	return check.Value(strconv.Atoi(m[1]))(t)
}

// decoded is a JSON file of terraform.
func decoded[T any](t *testing.T, name string) (v T) {
	t.Helper()
	check.OK(t)(json.Unmarshal([]byte(readPage(t, "../terraform/"+name)), &v))
	return v
}

// The functions at their largest numbers of instances open no more connections than each
// environment's database takes, and the page about costs has the sums.
func TestConnectionsDeployedFitTheDatabase(t *testing.T) {
	t.Parallel()
	variables, page := text(t, "../terraform", "variables.tf"), text(t, "../docs", "costs.md")
	pool := numberIn(t, variables, `\n    pool += optional\(number, (\d+)\)`, 0)
	functions := decoded[map[string]struct {
		MaxInstances int `json:"max_instances"`
	}](t, "functions.json")
	for _, name := range []string{"dev", "staging", "prod"} {
		set := text(t, "../terraform/environments", name+".tfvars")
		usual := numberIn(t, set, `(?m)^default_max_instances = (\d+)`, numberIn(t, variables, `variable "default_max_instances" \{[^}]*default += (\d+)`, 0))
		room := numberIn(t, set, `max_connections += (\d+)`, 0) - numberIn(t, variables, `connections_reserved = optional\(number, (\d+)\)`, 0)
		most := 0
		for function, f := range functions {
			if f.MaxInstances == 0 {
				f.MaxInstances = usual
			}
			most += pool * numberIn(t, set, `(?m)^  `+function+` += (\d+)$`, f.MaxInstances)
		}
		if most == 0 || most > room {
			t.Errorf("%s: got %d connections of all functions, want 1 to %d", name, most, room)
		}
		if want := fmt.Sprintf("%d of %d connections with `%s.tfvars`", most, room, name); !strings.Contains(page, want) && !strings.Contains(page, strings.Replace(want, " connections", "", 1)) {
			t.Errorf("docs/costs.md: want %q", want)
		}
	}
	if conns := int(defaultSettings(t).Database.MaxConns); conns < 2*pool {
		t.Errorf("database.maxConns: got %d, want at least %d: lease sessions take up to %d, and creates go on beside them", conns, 2*pool, pool)
	}
}

// The queues carry more transactions a second than the database, and the page about costs has the figures.
func TestQueuesDeployedCarryMoreThanTheDatabase(t *testing.T) {
	t.Parallel()
	page := text(t, "../docs", "costs.md")
	queues := decoded[struct {
		PerSecond float64            `json:"max_dispatches_per_second"`
		AtOnce    map[string]float64 `json:"max_concurrent_dispatches"`
	}](t, "queues.json")
	cpu := float64(numberIn(t, page, `we count\s+(\d)\.\d,`, 0)) + float64(numberIn(t, page, `we count\s+\d\.(\d),`, 0))/10
	if cpu == 0 {
		t.Fatal("docs/costs.md: got no CPU-milliseconds of Postgres a transaction")
	}
	for name, vCPUs := range map[string]int{"prod": 8, "staging": 2} {
		set := text(t, "../terraform/environments", name+".tfvars")
		check.Equal(t, name+": vCPUs", numberIn(t, set, `tier += "db-custom-(\d+)-`, 0), vCPUs)
		shards := float64(numberIn(t, set, `(?m)^queue_shards = (\d+)`, 1))
		database := float64(vCPUs) * 0.6 / cpu * 1000
		for queue, tasks := range map[string]float64{"advance": 1, "receipt": 1, "confirm": 4} {
			carried := shards * min(queues.PerSecond, queues.AtOnce[queue]/0.150) / tasks
			if carried <= database {
				t.Errorf("%s: queue %s carries %.0f transactions a second, the database %.0f: raise queue_shards to more than %.0f", name, queue, carried, database, shards*database/carried)
			}
			if figure := grouped(int64(carried)); (name == "prod" || queue == "confirm") && !strings.Contains(page, figure) {
				t.Errorf("docs/costs.md: want %s, which queue %s of %s carries", figure, queue, name)
			}
		}
		if figure := grouped(int64(database)); !strings.Contains(page, figure) {
			t.Errorf("docs/costs.md: want %s, which the database of %s carries", figure, name)
		}
	}
}

// An instance serves most of what a queue of lease sessions sends at once. Otherwise the sessions
// are spread over instances, and do not share round trips.
func TestConcurrencyDeployedLetsBatchesForm(t *testing.T) {
	t.Parallel()
	concurrency := numberIn(t, text(t, "../terraform", "variables.tf"), `variable "concurrency" \{[^}]*default += (\d+)`, 0)
	if !strings.Contains(text(t, "../terraform/modules/function", "main.tf"), "max_instance_request_concurrency = var.concurrency") {
		t.Error("the function's module does not set max_instance_request_concurrency")
	}
	queues := decoded[struct {
		AtOnce map[string]int `json:"max_concurrent_dispatches"`
	}](t, "queues.json")
	for _, queue := range []string{"advance", "receipt", "confirm"} {
		if n := queues.AtOnce[queue]; n < concurrency || concurrency < n*3/4 {
			t.Errorf("queue %s: got %d tasks at once, %d requests of an instance; want at least as many tasks, and the instance to take three quarters", queue, n, concurrency)
		}
	}
	check.Equal(t, "confirmations.receiptWorkers", defaultSettings(t).Finality.ReceiptWorkers, queues.AtOnce["receipt"])
}
