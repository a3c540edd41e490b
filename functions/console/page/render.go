package page

import (
	"bytes"
	"cmp"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"path"
	"regexp"
	"strings"
	"time"

	"github.com/fencepost/fencepost/shared/client"
)

//go:embed templates/*.html
var templates embed.FS

// Renderer draws pages. Create it with [New] and share it.
type Renderer struct {
	Now func() time.Time // the clock for texts such as "3 min ago"

	templates *template.Template
	menu      []Link
}

// New creates a renderer with the templates and the menus of the sections, in their order. A template
// that does not parse is an error, and so is one with inline styles or scripts.
func New(sections ...Section) (*Renderer, error) {
	r := &Renderer{Now: time.Now}
	r.templates = template.New("console").Funcs(r.functions()).Option("missingkey=error")
	if err := r.parse(templates); err != nil {
		return nil, err
	}
	for _, s := range sections {
		r.menu = append(r.menu, s.Menu...)
		if err := r.parse(s.Templates); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// inlineCode matches styles and scripts within a page.
var inlineCode = regexp.MustCompile(`(?i)\sstyle\s*=|<style|\son[a-z]+\s*=|javascript:|<script(?:>| [^>]*>[^<])|hx-on`)

// parse parses each file *.html of the tree.
func (r *Renderer) parse(files fs.FS) error {
	return fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || path.Ext(name) != ".html" {
			return err
		}
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return err
		}
		if inline := inlineCode.Find(text); inline != nil {
			return fmt.Errorf("page: template %s has %q, which the Content-Security-Policy blocks: use a class, or a static file", name, inline)
		}
		if _, err := r.templates.New("file " + name).Parse(string(text)); err != nil {
			return fmt.Errorf("page: template %s: %w", name, err)
		}
		return nil
	})
}

// root is what a body's template and the layout get.
type root struct {
	Call    Call
	Title   string
	Data    any
	Problem *Problem // why the act of the form was refused; nil: it was not tried
	WayOn   string   // as in [View]

	Name    string        // of the page, such as overview
	Menu    []entry       // none for a person who is not signed in
	Content template.HTML // the drawn body
	Poll    string        // how often live parts are read again, such as 5s; "": never
	At      time.Time
}

// entry is an entry of the menu.
type entry struct {
	Link
	Current bool
}

// Render draws the page. A view with SeeOther becomes a redirection, and one with Write writes the answer itself.
func (r *Renderer) Render(w http.ResponseWriter, call Call, v View) {
	if v.SeeOther != "" {
		http.Redirect(w, call.Request, v.SeeOther, http.StatusSeeOther)
		return
	}
	if v.Write != nil {
		v.Write(w)
		return
	}
	d := root{Call: call, Title: v.Title, Data: v.Data, Problem: problemOf(v.Problem), WayOn: v.WayOn, Menu: r.entries(call.URL.Path)}
	if v.Poll > 0 {
		d.Poll = fmt.Sprintf("%ds", max(1, int(v.Poll.Seconds())))
	}
	r.write(w, cmp.Or(StatusOf(v.Problem), http.StatusOK), v.Body, d)
}

// RenderError draws an error of a handler: a [client.Problem] with its status and texts, any other as 502.
func (r *Renderer) RenderError(w http.ResponseWriter, call Call, err error) {
	p := problemOf(err)
	r.write(w, p.Status, "page/error", root{Call: call, Title: p.Title, Problem: p, Menu: r.entries(call.URL.Path)})
}

// RenderPlain draws a page without a menu, for a person who is not signed in. After status 401 a poll of a
// page reloads it, so that the person sees the way to sign in.
func (r *Renderer) RenderPlain(w http.ResponseWriter, status int, title, text string) {
	if status == http.StatusUnauthorized {
		w.Header().Set("HX-Refresh", "true")
	}
	r.write(w, status, "page/plain", root{Title: title, Data: text})
}

// entries are the menu's entries for a page.
func (r *Renderer) entries(current string) []entry {
	all := make([]entry, len(r.menu))
	for i, l := range r.menu {
		under := strings.TrimSuffix(l.Path, "/") + "/"
		all[i] = entry{l, current == l.Path || l.Path != "/console/" && strings.HasPrefix(current, under)}
	}
	return all
}

// write draws the body and the layout around it before it sends anything.
func (r *Renderer) write(w http.ResponseWriter, status int, body string, d root) {
	d.Name, d.At = path.Base(body), r.Now()
	var content, all bytes.Buffer
	err := r.templates.ExecuteTemplate(&content, body, d)
	if err == nil {
		d.Content = template.HTML(content.String()) // html/template made it
		err = r.templates.ExecuteTemplate(&all, "page/layout", d)
	}
	if err != nil {
		http.Error(w, "The page "+body+" cannot be drawn: its template has a defect. Report it with the address of the page.", http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(all.Bytes())
}

// Problem is an error as a person reads it.
type Problem struct {
	client.Problem
	Unknown bool // the act may have been carried out
}

// problemOf is err for a person; nil for nil. The text of an error that is no [client.Problem] stays secret.
func problemOf(err error) *Problem {
	if err == nil {
		return nil
	}
	out := &Problem{client.Problem{Status: http.StatusBadGateway, Title: "The API gave no answer",
		Detail: "The function admin did not answer in time, or its answer could not be read. Reload the page; if it stays, look at the log of the function admin."}, errors.Is(err, client.ErrUnknown)}
	if p, ok := errors.AsType[*client.Problem](err); ok {
		out.Problem = *p
	}
	if out.Status < 400 || out.Status > 599 {
		out.Status = http.StatusBadGateway
	}
	out.Title = cmp.Or(out.Title, http.StatusText(out.Status))
	return out
}
