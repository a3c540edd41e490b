package local

import (
	"context"
	"crypto/rand"
	"embed"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/emulator/stack/steps"
)

//go:embed explorer.html
var explorerText string

//go:embed explorer.js
var explorerScript []byte

// explorerPage has Redoc draw the OpenAPI document.
var explorerPage = template.Must(template.New("").Parse(explorerText))

// redocFiles are Redoc, which is npm's redoc 2.5.4, and its licences. They are the package's own files: npm pack redoc@2.5.4.
//
//go:embed redoc
var redocFiles embed.FS

// redocLogo is the picture that Redoc fetches from another host.
const redocLogo = "https://cdn.redoc.ly/redoc/logo-mini.svg"

// redocScript is Redoc without that picture.
var redocScript = func() []byte {
	text, err := redocFiles.ReadFile("redoc/redoc.standalone.js")
	if err != nil {
		panic(err) // it is embedded
	}
	return []byte(strings.Replace(string(text), redocLogo, "data:,", 1))
}()

// explorerPolicy allows a browser the page's own scripts and styles, and requests to this address alone. The two hashes are of
// the style that Redoc adds before it has the nonce, empty and whole. Redoc searches in a worker that it makes itself.
const explorerPolicy = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; " +
	"connect-src 'self'; img-src data:; script-src 'nonce-%[1]s'; style-src 'nonce-%[1]s' " +
	"'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=' 'sha256-QMIg+bpjm3JdElJ388KYke01izlUW0UoNOeKjpMxdgc='; worker-src blob:"

// routeExplorer adds the explorer's page, its document and its script.
func (c *Control) routeExplorer(mux *http.ServeMux) {
	mux.HandleFunc("GET /explorer", showExplorer)
	mux.HandleFunc("GET /explorer/openapi.yaml", func(w http.ResponseWriter, r *http.Request) {
		text, err := readDocument(r.Context(), c.stack.URLMap.PublicURL())
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		w.Header().Set("Content-Type", "application/yaml")
		_, _ = io.WriteString(w, text) // the browser may have left
	})
	mux.HandleFunc("GET /explorer/explorer.js", script(explorerScript))
	mux.HandleFunc("GET /explorer/redoc/redoc.standalone.js", script(redocScript))
	mux.Handle("GET /explorer/redoc/", http.StripPrefix("/explorer/", http.FileServerFS(redocFiles)))
}

func script(text []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/javascript; charset=utf-8")
		_, _ = w.Write(text) // the browser may have left
	}
}

// showExplorer answers with the page that shows the calls of the running deployment.
func showExplorer(w http.ResponseWriter, _ *http.Request) {
	nonce := rand.Text()
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", fmt.Sprintf(explorerPolicy, nonce))
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_ = explorerPage.Execute(w, map[string]string{"Nonce": nonce}) // the browser may have left
}

// readDocument reads the document that the deployment at the URL serves, and adds the commands.
func readDocument(ctx context.Context, api string) (_ string, err error) {
	defer steps.Return(&err)
	status, text, err := stack.CallWith(ctx, "", http.MethodGet, api+"/openapi.yaml", nil)
	if steps.OK(err, "read the API's document"); status != http.StatusOK {
		steps.Stopf("read the API's document: got status %d", status)
	}
	return addCommands(string(text), api)
}

// pasteFirst is what the commands need.
const pasteFirst = "Paste the lines that the emulator prints: they set $API, $SUBMITTER and the tokens that the commands here use."

// anyOperation is the line of the document that names an operation.
var anyOperation = regexp.MustCompile(`(?m)^      operationId: (\w+)$`)

// addCommands adds to each operation of the document a curl command for the variables that the emulator prints, and names
// the API's URL.
func addCommands(text, api string) (_ string, err error) {
	defer steps.Return(&err)
	document, err := openapi3.NewLoader().LoadFromData([]byte(text))
	steps.OK(err, "read the API's document")
	commands := make(map[string]string)
	for path, item := range document.Paths.Map() {
		for method, o := range item.Operations() {
			// A text of JSON is one of YAML too.
			source := steps.Value(json.Marshal(curlOf(document, method, path, o)))
			commands[o.OperationID] = "\n      x-codeSamples: [{lang: Shell, label: curl, source: " + string(source) + "}]"
		}
	}
	added := 0
	text = anyOperation.ReplaceAllStringFunc(text, func(line string) string {
		added++
		return line + commands[anyOperation.FindStringSubmatch(line)[1]]
	})
	if added != len(commands) {
		return "", fmt.Errorf("the API's document: got %d lines that name an operation, want %d", added, len(commands))
	}
	text = strings.Replace(text, "\n  description: |\n", "\n  description: |\n    "+pasteFirst+"\n\n", 1)
	return strings.Replace(text, "{url: /,", "{url: "+api+",", 1), nil
}

// whoMay returns the security scheme of the operation; "": no token is needed.
func whoMay(d *openapi3.T, o *openapi3.Operation) string {
	security := d.Security
	if o.Security != nil {
		security = *o.Security
	}
	for _, one := range security {
		for name := range one {
			return name
		}
	}
	return ""
}

// tokens are the variables that the emulator prints.
var tokens = map[string]string{"caller": "$TOKEN", "operator": "$OPERATOR_TOKEN", "user": "$USER_TOKEN"}

// curlOf returns a command that makes the call, with the first example of its body by name. Values to fill in
// are in capitals.
func curlOf(d *openapi3.T, method, path string, o *openapi3.Operation) string {
	var query []string
	for _, p := range o.Parameters {
		value := strings.ToUpper(p.Value.Name)
		if p.Value.Name == "submitter" {
			value = "$SUBMITTER"
		}
		path = strings.ReplaceAll(path, "{"+p.Value.Name+"}", value)
		if p.Value.In == "query" && p.Value.Required {
			query = append(query, p.Value.Name+"="+value)
		}
	}
	if len(query) > 0 {
		path += "?" + strings.Join(query, "&")
	}
	command := fmt.Sprintf(`curl -sS -X %s "$API%s"`, method, path)
	if who := whoMay(d, o); who != "" {
		command += fmt.Sprintf(" \\\n  "+`-H "Authorization: Bearer %s"`, tokens[who])
	}
	if o.RequestBody == nil {
		return command
	}
	body := []byte("{…}")
	examples := o.RequestBody.Value.Content["application/json"].Examples
	for _, name := range slices.Sorted(maps.Keys(examples)) {
		if text, err := json.Marshal(examples[name].Value.Value); err == nil {
			body = text
		}
		break
	}
	return command + " \\\n  -H 'Content-Type: application/json' \\\n  -d '" + strings.ReplaceAll(string(body), "'", `'\''`) + "'"
}
