package shared_test

import (
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	coreruleset "github.com/corazawaf/coraza-coreruleset/v4"
	"github.com/corazawaf/coraza/v3"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/web/webtest"
)

// armor is the rule against SQL injection of Cloud Armor, as Terraform deploys it.
type armor struct {
	set         string   // such as sqli-v422-stable
	sensitivity int      // the highest paranoia level of the signatures in use
	optedOut    []string // ids of signatures that are not used, such as 942151
}

// deployedArmor reads the rule from the module of the load balancer.
func deployedArmor(t *testing.T) armor {
	t.Helper()
	text := text(t, "../terraform/modules/balancer", "armor.tf")
	m := regexp.MustCompile(`evaluatePreconfiguredWaf\('([a-z0-9-]+)', \{'sensitivity': (\d), 'opt_out_rule_ids': `).FindAllStringSubmatch(text, -1)
	left := regexp.MustCompile(`(?m)^  waf_left_out = \[(.*)\]$`).FindStringSubmatch(text)
	if len(m) != 1 || left == nil {
		t.Fatalf("armor.tf: got %d rules against injection and %d lists of signatures, want 1 of each", len(m), len(left))
	}
	level := check.Value(strconv.Atoi(m[0][2]))(t)
	return armor{set: m[0][1], sensitivity: level, optedOut: regexp.MustCompile(`\d+`).FindAllString(left[1], -1)}
}

// engine returns the signatures of the same version of the Core Rule Set up to the level. JSON bodies are
// read as Cloud Armor does with json_parsing = "STANDARD": each value is an argument.
func (a armor) engine(t *testing.T) coraza.WAF {
	t.Helper()
	return check.Value(coraza.NewWAF(coraza.NewWAFConfig().WithRootFS(coreruleset.FS).WithDirectives(fmt.Sprintf(`
		SecRuleEngine DetectionOnly
		SecRequestBodyAccess On
		SecRule REQUEST_HEADERS:Content-Type "@beginsWith application/json" "id:1,phase:1,pass,nolog,ctl:requestBodyProcessor=JSON"
		SecAction "id:2,phase:1,pass,nolog,setvar:tx.detection_paranoia_level=%d"
		Include @owasp_crs/REQUEST-942-APPLICATION-ATTACK-SQLI.conf`, a.sensitivity))))(t)
}

// refusals returns the ids of the signatures that match the request. One is enough for a 403.
func (a armor) refusals(t *testing.T, waf coraza.WAF, r *http.Request) (ids []string) {
	t.Helper()
	tx := waf.NewTransaction()
	defer func() { check.OK(t)(tx.Close()) }()
	tx.ProcessURI(r.URL.RequestURI(), r.Method, "HTTP/1.1")
	for name, values := range r.Header {
		for _, v := range values {
			tx.AddRequestHeader(name, v)
		}
	}
	tx.ProcessRequestHeaders()
	if r.Body != nil {
		check.OK(t)(tx.ReadRequestBodyFrom(r.Body))
	}
	check.OK(t)(tx.ProcessRequestBody())
	for _, m := range tx.MatchedRules() {
		id := strconv.Itoa(m.Rule().ID())
		if slices.Contains(m.Rule().Tags(), "attack-sqli") && !slices.Contains(a.optedOut, id) {
			ids = append(ids, id+" "+m.Data())
		}
	}
	return ids
}

// post is a request with the JSON body.
func post(path string, body any) *http.Request {
	text, _ := json.Marshal(body)
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(string(text)))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", "Go-http-client/2.0")
	return r
}

// apiRequests are the requests of openapi.yaml. Each operation has one with its parameters, and one with
// each example of its body. Each example of the document is also sent as a body and as an argument.
func apiRequests(t *testing.T) map[string]*http.Request {
	t.Helper()
	api := loadAPI(t)
	all := map[string]*http.Request{}
	for path, item := range api.Paths.Map() {
		for method, operation := range item.Operations() {
			query := url.Values{}
			at := path
			for _, p := range slices.Concat(item.Parameters, operation.Parameters) {
				value := "7"
				if examples := p.Value.Schema.Value.Examples; len(examples) > 0 {
					value = fmt.Sprint(examples[0])
				}
				at = strings.ReplaceAll(at, "{"+p.Value.Name+"}", url.PathEscape(value))
				if p.Value.In == "query" {
					query.Set(p.Value.Name, value)
				}
			}
			at += "?" + query.Encode()
			all[method+" "+path] = httptest.NewRequest(method, at, nil)
			if operation.RequestBody == nil {
				continue
			}
			for name, e := range operation.RequestBody.Value.Content["application/json"].Examples {
				all[method+" "+path+" "+name] = post(at, e.Value.Value)
			}
		}
	}
	contract := check.Value(webtest.Load([]byte(readPage(t, "../functions/openapi.yaml"))))(t)
	contract.EachExample(func(value any, schema string) {
		name := fmt.Sprintf("example %v of %s", value, schema)
		all[name] = post("/api/v1/tx", map[string]any{"value": value})
		if s, ok := value.(string); ok {
			all[name+" in a query"] = httptest.NewRequest(http.MethodGet, "/api/v1/tx/by-request?value="+url.QueryEscape(s), nil)
		}
	})
	return all
}

// usualRequests are the requests that callers and operators make: the intents of the demo, request ids as
// services form them, calls of contracts, and reasons.
func usualRequests(t *testing.T) map[string]*http.Request {
	t.Helper()
	const submitter = "eip155:11155111:0x02e40fe26b255d5c8dfb71cbfeb1bf9ff7ab917d"
	intent := func(id string, payload map[string]any) map[string]any {
		return map[string]any{"submitter": submitter, "requestId": id, "payload": payload}
	}
	all := map[string]*http.Request{}
	for line := range strings.Lines(readPage(t, "../emulator/demo/intents.jsonl")) {
		all["demo: "+line] = post("/api/v1/tx", json.RawMessage(line))
	}
	for _, id := range []string{
		"order-4711", "2026-11-22T10:00:00Z-order-4711", "payout:2026-11-22:user-17:batch-3", "INV-2026-11-0042/EU-1-retry-2",
		"01ARZ3NDEKTSV4RRFFQ69G5FAV", "01a1fda0-b1f9-7b07-a2c1-57c667e395bc", "0x8f1b2c3d4e5f60718293a4b5c6d7e8f901234567", "a=1&b=2",
		"shop/eu-west-1/cart#17", "user@example.com|2026", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", "batch_7.item_3.try_1",
		"SELECT-2026-11", "drop-17", "union-pay-4711", "order--4711", "1-1", "1=1", "x'41'", "9e9",
	} {
		all["requestId "+id] = post("/api/v1/tx", intent(id, map[string]any{"to": "0x000000000000000000000000000000000000dead", "value": "1"}))
		all["by-request "+id] = httptest.NewRequest(http.MethodGet, "/api/v1/tx/by-request?"+url.Values{"submitter": {submitter}, "requestId": {id}}.Encode(), nil)
	}
	for _, function := range []string{
		"transfer(address,uint256)", "settle((address,uint256)[],(bytes32,bytes,uint64)[])", "execute(bytes)", "multicall(bytes[])", "pause()",
		"approve(address,uint256)", "insert(uint256)", "quote(uint256)", "count()", "exp(uint256)", "encode(bytes)", "extract(address)", "pow(uint256,uint256)",
		"release(uint256)", "sleep(uint256)", "left(uint256)", "replace(bytes32,bytes32)", "char(uint8)", "set(bytes32,uint256)", "select(uint256)", "update(bytes32)",
		"drop(address)", "union(address,address)", "exec(address,bytes)", "log10(uint256)", "if(bool)", "substring(string,uint256,uint256)", "ascii(string)",
		"benchmark(uint256,uint256)", "unhex(string)", "schema()", "database(string)", "concat(string,string)", "truncate(uint256)", "now()",
	} {
		all["function "+function] = post("/api/v1/tx", intent("order-4711", map[string]any{"to": "0x000000000000000000000000000000000000dead", "function": function, "args": []any{submitter[16:], "1000"}}))
	}
	data := "0xa9059cbb" + strings.Repeat("00", 12) + strings.Repeat("27", 20) + strings.Repeat("00", 31) + "0a"
	all["data"] = post("/api/v1/tx:batch", map[string]any{"intents": []any{intent("a", map[string]any{"to": "0x000000000000000000000000000000000000dead", "data": data})}})
	for _, reason := range []string{
		"looked at the journals with the auditor", "the shop's order was paid twice; ticket OPS-1234 (see #17)", "deposit and withdrawal don't match -- ask ann",
		"select the newest block and release the union of both", "user 17 or user 18: 1 of them", "having looked at all nodes, update of the policy",
	} {
		all["reason "+reason] = post("/admin/v1/halts/1/resume", map[string]any{"reason": reason})
	}
	return all
}

// Cloud Armor refuses no request of the API at the deployed sensitivity. At the default one it would
// refuse nearly all: its signatures take addresses, hashes and call data for injections.
func TestArmorDeployedRefusesNoRequestOfOurs(t *testing.T) {
	t.Parallel()
	deployed := deployedArmor(t)
	check.Equal(t, "the version of the rule set", deployed.set, "sqli-v"+strings.ReplaceAll(strings.TrimSuffix(crsVersion(t), ".0"), ".", "")+"-stable")
	requests := apiRequests(t)
	maps.Copy(requests, usualRequests(t))

	strictest := armor{set: deployed.set, sensitivity: 4}
	waf, strict := deployed.engine(t), strictest.engine(t)
	refused := 0
	for _, name := range slices.Sorted(maps.Keys(requests)) {
		r := requests[name]
		body := ""
		if r.Body != nil {
			body = string(check.Value(io.ReadAll(r.Body))(t))
		}
		r.Body = io.NopCloser(strings.NewReader(body))
		if ids := deployed.refusals(t, waf, r); len(ids) > 0 {
			t.Errorf("%s: got 403 by %s, want it let through", name, strings.Join(ids, "; "))
		}
		r.Body = io.NopCloser(strings.NewReader(body))
		if len(strictest.refusals(t, strict, r)) > 0 {
			refused++
		}
	}
	atLeast(t, "requests refused at sensitivity 4, by an engine that reads bodies", refused, len(requests)/2)

	attack := post("/api/v1/tx", map[string]any{"requestId": "1' OR '1'='1' UNION SELECT password FROM users--"})
	if len(deployed.refusals(t, waf, attack)) == 0 {
		t.Error("an injection: got it let through, want 403")
	}
}

// crsVersion is the version of the rule set that the test runs.
func crsVersion(t *testing.T) string {
	t.Helper()
	text := check.Value(fs.ReadFile(coreruleset.FS, "@owasp_crs/REQUEST-942-APPLICATION-ATTACK-SQLI.conf"))(t)
	return regexp.MustCompile(`OWASP_CRS/([0-9.]+)`).FindStringSubmatch(string(text))[1]
}
