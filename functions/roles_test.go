package functions_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/functions"
	"github.com/fencepost/fencepost/migrations"
	"github.com/fencepost/fencepost/shared/check"
)

// deployed maps the patterns of paths to a deployment's functions.
var deployed = sync.OnceValues(func() (map[string]string, error) {
	text, err := os.ReadFile("../terraform/functions.json")
	if err != nil {
		return nil, err
	}
	var all map[string]struct {
		Paths     []string
		Queue     string
		Scheduled bool
	}
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, err
	}
	patterns := make(map[string]string)
	for name, f := range all {
		for _, path := range f.Paths {
			patterns[path] = name
		}
		switch {
		case f.Queue != "":
			patterns["/internal/"+f.Queue] = name
		case f.Scheduled && name != "conservation-full": // the same path as conservation
			patterns["/internal/"+name] = name
		}
	}
	return patterns, nil
})

// logins are roles of the cluster, one for each function, with their password. They are made once;
// each database grants their rights.
var logins = struct {
	sync.Mutex
	made map[string]string // by function
	word string
}{word: rand.Text()}

// roles grants each function's role its rights in the database, and returns each function's URL for
// it.
func roles(t testing.TB, database string) map[string]string {
	t.Helper()
	logins.Lock()
	defer logins.Unlock()
	if logins.made == nil {
		db := check.Value(pgx.Connect(t.Context(), database))(t)
		defer db.Close(context.WithoutCancel(t.Context()))
		names := check.Value(migrations.Functions())(t)
		made := make(map[string]string)
		for _, name := range names {
			made[name] = "functions_" + strings.ReplaceAll(name, "-", "_") + "_" + strings.ToLower(rand.Text()[:8])
			check.OK(t)(db.Exec(t.Context(), fmt.Sprintf(`create role %s login password '%s'`, made[name], logins.word)))
		}
		logins.made = made
	}
	granted, urls := make(map[string][]string), make(map[string]string)
	for name, role := range logins.made {
		granted[role] = []string{name}
		u := check.Value(url.Parse(database))(t)
		u.User = url.UserPassword(role, logins.word)
		urls[name] = u.String()
	}
	check.OK(t)(migrations.Grant(t.Context(), database, migrations.Grants{Functions: granted}))
	return urls
}

// rolePerPath serves each path by its deployed function, with that function's own database role.
type rolePerPath struct {
	h        deployment
	settings []string
	urls     map[string]string
	paths    *http.ServeMux
	mu       sync.Mutex
	apps     map[string]http.Handler // by function, made at the first request
	closers  []*functions.App
}

func (h deployment) rolePerPath(settings ...string) *rolePerPath {
	h.t.Helper()
	a := &rolePerPath{h: h, settings: settings, urls: roles(h.t, h.URL), paths: http.NewServeMux(), apps: make(map[string]http.Handler)}
	patterns := check.Value(deployed())(h.t)
	for pattern, name := range patterns {
		a.paths.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) { a.app(name).ServeHTTP(w, r) })
	}
	a.paths.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { a.app("query").ServeHTTP(w, r) })
	return a
}

// app returns the function, whose connections and memory no other function shares.
func (a *rolePerPath) app(name string) http.Handler {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.apps[name] == nil {
		app, err := a.h.appWith(functions.Extensions{}, append(slices.Clone(a.settings), "FENCEPOST_DATABASE_URL="+a.urls[name])...)
		if err != nil {
			a.h.t.Errorf("start %s: %v", name, err)
			return http.NotFoundHandler()
		}
		a.closers = append(a.closers, app)
		a.apps[name] = app.Handlers()[functions.All]
	}
	return a.apps[name]
}

func (a *rolePerPath) close(ctx context.Context) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, app := range a.closers {
		_ = app.Close(ctx)
	}
}

// The tests of this package reach each path through its deployed function, under that function's role.
// So each statement that they reach runs with this function's rights only. A request fails if its
// function lacks a right that it needs.
func TestEachFunctionRunsUnderItsOwnRole(t *testing.T) {
	t.Parallel()
	h := buildWithShop(t)
	h.run(`update submitter set callers = '{email:shop@fencepost.example}' where submitter = $1`, shopAccount)
	token := h.callerToken("shop")
	created := call(t, t.Context(), token, http.MethodPost, h.url+"/api/v1/tx", intentOf("r"))
	created.wants(t, 202, "create")
	role := func(function string) string {
		logins.Lock()
		defer logins.Unlock()
		return logins.made[function]
	}
	rights := func(verb, role string) {
		t.Helper()
		check.OK(t)(h.DB.Exec(t.Context(), fmt.Sprintf(verb, role)))
	}
	cancel := func() int {
		return call(t, t.Context(), token, http.MethodPost, fmt.Sprint(h.url, "/api/v1/tx/", created.body["txId"], "/cancel"), nil).status
	}
	rights(`revoke insert (action, by, reason, tx_id) on tx_decision from %s`, role("cancel"))
	check.Equal(t, "a cancel without its right, which others have", cancel(), http.StatusServiceUnavailable)
	rights(`grant insert (action, by, reason, tx_id) on tx_decision to %s`, role("cancel"))
	rights(`revoke insert on managed_tx from %s`, role("create"))
	check.Equal(t, "a cancel, with its rights", cancel(), http.StatusOK)
}
