package functions

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"time"

	"cloud.google.com/go/compute/metadata"

	"github.com/fencepost/fencepost/functions/console"
	"github.com/fencepost/fencepost/functions/console/incidents"
	"github.com/fencepost/fencepost/functions/console/money"
	"github.com/fencepost/fencepost/functions/console/operation"
	"github.com/fencepost/fencepost/functions/console/page"
	"github.com/fencepost/fencepost/functions/console/queues"
	"github.com/fencepost/fencepost/functions/console/signin"
	"github.com/fencepost/fencepost/functions/serve"
	"github.com/fencepost/fencepost/shared/config"
	"github.com/fencepost/fencepost/shared/telemetry"
	"github.com/fencepost/fencepost/shared/web"
)

// requiredForConsole lists the settings that a process needs that serves the console.
var requiredForConsole = []string{"console.sessionKeys", "console.adminUrl", "console.hosts"}

// newConsole makes a process that serves the console alone. It has no connection to a database, a chain or a
// signer.
func newConsole(ctx context.Context, c config.Config, log *slog.Logger, node string) (*App, error) {
	if !c.Console.On() {
		return nil, errors.New("FUNCTION_TARGET is console, and FENCEPOST_CONSOLE_MODE (console.mode) is off: set it to iap, oidc or local")
	}
	a := &App{config: c, gate: web.NewGate()}
	a.base = &serve.Base{Log: log, Node: node, Auth: c.Auth}
	if err := a.openExport(ctx); err != nil {
		return nil, err
	}
	if err := a.openPeople(ctx); err != nil {
		return nil, err
	}
	a.ready = func(context.Context) error { return nil }
	a.started = a.ready
	return a, a.openConsole()
}

// openPeople makes the verifier of the tokens of people who have signed in to the console.
func (a *App) openPeople(context.Context) (err error) {
	c := a.config.Console
	if !c.On() {
		return nil
	}
	issuer, jwksURL := c.Issuer()
	o := web.VerifierOptions{Issuer: issuer, JWKSURL: jwksURL, Audience: c.Audience, WithoutSubject: issuer != a.config.Auth.Issuer}
	if c.Mode == config.ConsoleIAP {
		const google = "https://accounts.google.com" // whose subjects the proxy gives, with a prefix
		o.Algorithms, o.EmailsVerified = []string{"ES256"}, true
		o.SubjectPrefix, o.WithoutSubject = signin.SubjectPrefixOfIAP, a.config.Auth.Issuer != google
	}
	a.base.People, err = web.NewVerifier(o)
	return err
}

// openConsole makes the console's server.
func (a *App) openConsole() error {
	c := a.config.Console
	if err := a.config.Require(requiredForConsole...); err != nil {
		return err
	}
	sealer, err := signin.NewSealer(serve.ViewsOf(c.SessionKeys, config.Secret.Reveal))
	if err != nil {
		return fmt.Errorf("console.sessionKeys: %w", err)
	}
	sections := consoleSections(c)
	pages, err := page.New(sections...)
	if err != nil {
		return err
	}
	a.console, err = console.New(console.Options{
		Sections: sections, Pages: pages, Static: page.Static(), Way: wayOf(a.config, a.base, sealer, pages.RenderPlain), Sealer: sealer,
		Hosts: c.Hosts, AdminURL: c.AdminURL, Transport: a.adminTransport(), Operators: a.config.Auth.Operators, Viewers: a.config.Auth.Viewers,
		Local: c.Mode == config.ConsoleLocal, Log: a.base.Log,
	})
	return err
}

// consoleSections returns the sections of the console, in the order of its menu. Only the local environment has drills: its
// issuer leads to the emulator's control address.
func consoleSections(c config.Console) []page.Section {
	var drills *operation.Drills
	if c.Mode == config.ConsoleLocal {
		drills = operation.RemoteDrills(c.OIDCIssuer + "/control")
	}
	return []page.Section{queues.Section(queues.Links{Trace: c.TraceURL, Log: c.LogURL}), incidents.Section(), money.Section(), operation.Section(drills)}
}

// wayOf returns the way in which people sign in.
func wayOf(c config.Config, base *serve.Base, sealer *signin.Sealer, plain signin.Page) signin.Way {
	if c.Console.Mode == config.ConsoleIAP {
		return signin.NewIAP(base.People, plain)
	}
	o := signin.Options{
		Issuer: c.Console.OIDCIssuer, ClientID: c.Console.Audience, ClientSecret: c.Console.ClientSecret.Reveal(),
		Verifier: base.People, Sealer: sealer, Page: plain, Log: base.Log,
	}
	if c.Console.Mode == config.ConsoleLocal {
		return signin.NewLocal(o)
	}
	return signin.NewOIDC(o)
}

// servesConsole reports whether this process serves the console.
func (a *App) servesConsole() bool { return a.config.Console.On() && a.serves(config.ConsoleTarget) }

// routeConsole serves the function console. It is none of the API's paths.
func (a *App) routeConsole(mux *web.Mux) {
	mux.Handle("/console/", telemetry.Untrusted(telemetry.Invocation(a.base.Log, config.ConsoleTarget, a.console)))
}

// adminTransport returns the connections from the console to admin. On Cloud Run each request also has the service
// account's token, in the header that the platform checks and removes. The header Authorization has the
// person's token, which admin checks.
func (a *App) adminTransport() http.RoundTripper {
	a.toAdmin = http.DefaultTransport.(*http.Transport).Clone()
	a.toAdmin.MaxConnsPerHost, a.toAdmin.MaxIdleConnsPerHost = 64, 64
	if !a.config.Platform.OnCloudRun() {
		return a.toAdmin
	}
	account := &accountToken{audience: a.config.Console.AdminURL}
	return platformTransport{a.toAdmin, account.get}
}

// platformTransport adds the token of the platform to each request.
type platformTransport struct {
	next  http.RoundTripper
	token func(context.Context) (string, error)
}

// RoundTrip implements [http.RoundTripper].
func (p platformTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	token, err := p.token(r.Context())
	if err != nil {
		return nil, fmt.Errorf("the service account's token: %w", err)
	}
	r = r.Clone(r.Context())
	r.Header.Set("X-Serverless-Authorization", "Bearer "+token)
	return p.next.RoundTrip(r)
}

// accountTokenLasts is how long a token of the metadata server is used. It is valid for an hour.
const accountTokenLasts = 45 * time.Minute

// accountToken is the ID token of the process' service account, by the metadata server.
type accountToken struct {
	audience string

	mu   sync.Mutex
	text string
	at   time.Time // when it was fetched
}

func (a *accountToken) get(ctx context.Context) (string, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.text != "" && time.Since(a.at) < accountTokenLasts {
		return a.text, nil
	}
	text, err := metadata.GetWithContext(ctx, "instance/service-accounts/default/identity?audience="+url.QueryEscape(a.audience))
	if err == nil {
		a.text, a.at = text, time.Now()
	}
	return text, err
}
