// Package page defines what a page of the operators' console is, and draws it. It has the layout, the
// styles, the scripts and the drawings that all pages share. A page reads and acts by the API of the
// function admin alone, with the signed assertion of the person who asks.
package page

import (
	"context"
	"io/fs"
	"net/http"
	"time"

	"github.com/fencepost/fencepost/shared/client"
)

// Call is one request of a person who is signed in.
type Call struct {
	*http.Request
	Admin  *client.Client // calls the function admin as this person
	Person string         // the person's verified e-mail
	MayAct bool           // false: a viewer, who may only read
	CSRF   string         // the value of the hidden field "csrf" of each form
	Local  bool           // the local environment, which has the page Drill
}

// Handler answers a call. An error is drawn as a page: a *[client.Problem] with its own status, detail and
// code, any other as 502 without its text.
type Handler func(context.Context, Call) (View, error)

// View is a page's answer.
type View struct {
	Title    string        // of the page, before the console's own
	Body     string        // the name of the template that draws Data, defined by the page's section
	Data     any           // what the template draws
	Poll     time.Duration // how often the browser reads the page's live parts again; 0: never
	SeeOther string        // if not "", the answer is 303 with this path as Location, such as after an act
	Problem  error         // why the form's act was refused, which the template page/act shows; nil: it was not
	WayOn    string        // how to go on after the refusal, which the template page/way-on shows; "": Problem says enough

	// Write writes the whole answer in place of a page, such as a file to download; nil: a page is drawn.
	Write func(http.ResponseWriter)
}

// Route is a page's pattern, such as "GET /console/submitters/{submitter}", and its handler.
type Route struct {
	Pattern string
	Handle  Handler
	Acts    bool          // a viewer gets 403; a POST needs the form field "csrf"
	Within  time.Duration // the answer's deadline; 0: 15 s to read, 45 s to act
}

// Form returns the routes of an act: GET draws its form, and POST carries it out.
func Form(path string, handle Handler) []Route {
	return []Route{{Pattern: "GET " + path, Handle: handle, Acts: true}, {Pattern: "POST " + path, Handle: handle, Acts: true}}
}

// Link is an entry of the menu.
type Link struct {
	Path string // such as /console/submitters
	Name string // such as Submitters
}

// Section is a group of pages with their templates.
type Section struct {
	Templates fs.FS // required: files *.html, each with its templates defined by name
	Routes    []Route
	Menu      []Link
}
