package local

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
)

//go:embed explorer.html
var explorerText string

//go:embed explorer.css
var explorerStyle string

// explorerPage draws the OpenAPI document. It has no script, and no style but its own.
var explorerPage = template.Must(template.New("").Funcs(template.FuncMap{"prose": prose}).Parse(strings.Replace(explorerText, "STYLE", explorerStyle, 1)))

// explorerPolicy allows a browser the page's own style, and nothing else.
var explorerPolicy = func() string {
	sum := sha256.Sum256([]byte(explorerStyle))
	return "default-src 'none'; frame-ancestors 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}()

// maxDocument bounds the document that the explorer reads, in bytes.
const maxDocument = 4 << 20

// explorer shows the calls of the running deployment: their parameters, bodies and answers, each with a curl
// command for the variables that the emulator prints.
func (c *Control) explorer(w http.ResponseWriter, r *http.Request) {
	drawn, err := drawExplorer(r.Context(), c.stack.URLMap.PublicURL())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", explorerPolicy)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write(drawn) // the browser may have left
}

// drawExplorer reads the document that the deployment at the URL serves, and draws it.
func drawExplorer(ctx context.Context, api string) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, api+"/openapi.yaml", nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, fmt.Errorf("read the API's document: %w", err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxDocument))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("got %s", resp.Status)
	}
	if err != nil {
		return nil, fmt.Errorf("read the API's document: %w", err)
	}
	document, err := openapi3.NewLoader().LoadFromData(text)
	if err != nil {
		return nil, fmt.Errorf("read the API's document: %w", err)
	}
	var drawn bytes.Buffer
	err = explorerPage.Execute(&drawn, viewOf(document))
	return drawn.Bytes(), err
}

// documentView is a document as the page draws it.
type documentView struct {
	Title, Version, Description string
	Tags                        []tagView
	Schemas                     []schemaView
}

type tagView struct {
	Name, Description string
	Operations        []operationView
}

type operationView struct {
	ID, Method, Path, Summary, Description string
	Who                                    string // the security scheme; "": no token is needed
	Curl                                   string
	Parameters                             []memberView
	Body                                   []memberView
	Answers                                []answerView
}

type answerView struct {
	Status, Description string
	Members             []memberView
}

// memberView is a parameter, a member of an object at any depth, or a whole value without a name.
type memberView struct {
	Name, Type, Link, Description string
	Required                      bool
}

type schemaView struct {
	Name, Description string
	Members           []memberView
}

func viewOf(d *openapi3.T) documentView {
	view := documentView{Title: d.Info.Title, Version: d.Info.Version, Description: d.Info.Description}
	for _, tag := range d.Tags {
		view.Tags = append(view.Tags, tagView{Name: tag.Name, Description: tag.Description, Operations: operationsOf(d, tag.Name)})
	}
	for _, name := range slices.Sorted(maps.Keys(d.Components.Schemas)) {
		schema := d.Components.Schemas[name]
		view.Schemas = append(view.Schemas, schemaView{Name: name, Description: schema.Value.Description, Members: membersOf("", &openapi3.SchemaRef{Value: schema.Value}, true)})
	}
	return view
}

// operationsOf returns the operations with the tag, by path and method.
func operationsOf(d *openapi3.T, tag string) (all []operationView) {
	paths := d.Paths.Map()
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		operations := paths[path].Operations()
		for _, method := range slices.Sorted(maps.Keys(operations)) {
			if o := operations[method]; slices.Contains(o.Tags, tag) {
				all = append(all, operationOf(d, method, path, o))
			}
		}
	}
	return all
}

func operationOf(d *openapi3.T, method, path string, o *openapi3.Operation) operationView {
	view := operationView{ID: o.OperationID, Method: method, Path: path, Summary: o.Summary, Description: o.Description, Who: whoMay(d, o)}
	for _, p := range o.Parameters {
		one := membersOf("", p.Value.Schema, true)[0]
		one.Name, one.Required = p.Value.Name+" ("+p.Value.In+")", p.Value.Required
		one.Description = cmp.Or(p.Value.Description, one.Description)
		view.Parameters = append(view.Parameters, one)
	}
	if o.RequestBody != nil {
		view.Body = membersOf("", o.RequestBody.Value.Content["application/json"].Schema, true)
	}
	answers := o.Responses.Map()
	for _, status := range slices.Sorted(maps.Keys(answers)) {
		answer := answerView{Status: status, Description: *answers[status].Value.Description}
		for _, media := range answers[status].Value.Content {
			answer.Members = membersOf("", media.Schema, true)
		}
		view.Answers = append(view.Answers, answer)
	}
	view.Curl = curlOf(view, o)
	return view
}

// whoMay returns the security scheme of the operation.
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
func curlOf(view operationView, o *openapi3.Operation) string {
	path, query := view.Path, []string{}
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
	command := fmt.Sprintf(`curl -sS -X %s "$API%s"`, view.Method, path)
	if view.Who != "" {
		command += fmt.Sprintf(` -H "Authorization: Bearer %s"`, tokens[view.Who])
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
	return command + " -H 'Content-Type: application/json' \\\n  -d '" + strings.ReplaceAll(string(body), "'", `'\''`) + "'"
}

// membersOf returns the members of a schema, those of objects in it with their paths. A schema with a name is one
// line with a link, unless it is the whole.
func membersOf(at string, ref *openapi3.SchemaRef, required bool) (all []memberView) {
	s := ref.Value
	self := memberView{Name: at, Type: typeOf(s), Description: s.Description, Required: required}
	if ref.Ref != "" {
		self.Link = ref.Ref[strings.LastIndex(ref.Ref, "/")+1:]
		return []memberView{self}
	}
	inner := innerOf(at, s)
	if len(inner) > 0 && at == "" {
		return inner
	}
	return append([]memberView{self}, inner...)
}

// innerOf returns the members within a schema.
func innerOf(at string, s *openapi3.Schema) (all []memberView) {
	for _, forms := range []openapi3.SchemaRefs{s.AllOf, s.AnyOf, s.OneOf} {
		for _, form := range forms {
			if form.Value.Type == nil || !form.Value.Type.Is("null") {
				all = append(all, membersOf(at, form, true)...)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		all = append(all, membersOf(strings.TrimPrefix(at+"."+name, "."), s.Properties[name], slices.Contains(s.Required, name))...)
	}
	if s.Items != nil {
		all = append(all, membersOf(at+"[]", s.Items, true)...)
	}
	if named := s.AdditionalProperties.Schema; named != nil {
		all = append(all, membersOf(strings.TrimPrefix(at+".*", "."), named, true)...)
	}
	return all
}

// typeOf returns the type of a value, with its bounds, for a person.
func typeOf(s *openapi3.Schema) string {
	parts := []string{strings.Join(s.Type.Slice(), " or ")}
	if s.Format != "" {
		parts = append(parts, s.Format)
	}
	for _, value := range s.Enum {
		parts = append(parts, fmt.Sprint(value))
	}
	if s.Min != nil {
		parts = append(parts, fmt.Sprintf("from %.0f", *s.Min))
	}
	if s.Max != nil {
		parts = append(parts, fmt.Sprintf("to %.0f", *s.Max))
	}
	if s.Pattern != "" {
		parts = append(parts, s.Pattern)
	}
	return strings.TrimSpace(strings.Join(parts, " "))
}

// prose returns a description as HTML: text between backticks is code, and an empty line begins a paragraph.
func prose(text string) template.HTML {
	var b strings.Builder
	for _, paragraph := range strings.Split(strings.TrimSpace(text), "\n\n") {
		b.WriteString("<p>")
		for i, part := range strings.Split(paragraph, "`") {
			part = template.HTMLEscapeString(part)
			if i%2 == 1 {
				part = "<code>" + part + "</code>"
			}
			b.WriteString(part)
		}
		b.WriteString("</p>")
	}
	return template.HTML(b.String()) // each part is escaped
}
