package stack

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"maps"
	"net/url"

	"github.com/fencepost/fencepost/emulator/fake/urlmap"
	"github.com/fencepost/fencepost/emulator/stack/steps"
)

const (
	// ViewerAccount is a person who may read what operators can read.
	ViewerAccount = "viewer@fencepost.example"

	consoleService  = "console"
	consoleAudience = "fencepost-console"
)

var consoleRoutes = []urlmap.Route{{Pattern: "/console/", Service: consoleService}}

// ConsoleURL returns a URL that signs the account in to the console, once, within a minute.
func (s *Stack) ConsoleURL(account string) (string, error) {
	if !s.options.Console {
		return "", errors.New("this stack has no console: start it with one")
	}
	code, err := s.Issuer.Code(account, consoleAudience)
	return s.URLMap.PublicURL() + "/console/enter?code=" + url.QueryEscape(code), err
}

// addConsoleSettings adds the console's settings, which admin and the console need.
func (s *Stack) addConsoleSettings() {
	s.settings["FENCEPOST_AUTH_VIEWERS"] = "email:" + ViewerAccount
	if !s.options.Console {
		return
	}
	public := steps.Value(url.Parse(s.URLMap.PublicURL()))
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails, by its documentation
	maps.Copy(s.settings, map[string]string{
		"FENCEPOST_CONSOLE_MODE": "local", "FENCEPOST_CONSOLE_AUDIENCE": consoleAudience,
		"FENCEPOST_CONSOLE_OIDC_ISSUER": s.Issuer.URL(), "FENCEPOST_CONSOLE_OIDC_JWKS_URL": s.Issuer.JWKSURL(),
		"FENCEPOST_CONSOLE_SESSION_KEYS": base64.StdEncoding.EncodeToString(key),
		"FENCEPOST_CONSOLE_ADMIN_URL":    s.URLMap.PublicURL(),
		"FENCEPOST_CONSOLE_HOSTS":        public.Host + ",localhost:" + public.Port(),
	})
}

// ofConsole are the settings that a process needs that serves the console alone.
var ofConsole = []string{
	"FENCEPOST_AUTH_VIEWERS", "FENCEPOST_AUTH_OPERATORS", "FENCEPOST_CONSOLE_MODE", "FENCEPOST_CONSOLE_AUDIENCE", "FENCEPOST_CONSOLE_OIDC_ISSUER",
	"FENCEPOST_CONSOLE_OIDC_JWKS_URL", "FENCEPOST_CONSOLE_SESSION_KEYS", "FENCEPOST_CONSOLE_ADMIN_URL", "FENCEPOST_CONSOLE_HOSTS", "FENCEPOST_OIDC_ISSUER",
	"FENCEPOST_CONSOLE_TRACE_URL", "FENCEPOST_CONSOLE_LOG_URL",
}
