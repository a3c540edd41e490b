package config

import (
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// ConsoleTarget is the FUNCTION_TARGET of the console. A process that serves it alone needs no database.
const ConsoleTarget = "console"

// ConsoleMode selects how people sign in to the console.
type ConsoleMode string

// The modes.
const (
	ConsoleOff   ConsoleMode = "off"   // there is no console
	ConsoleIAP   ConsoleMode = "iap"   // Google's Identity-Aware Proxy in front of it
	ConsoleOIDC  ConsoleMode = "oidc"  // the authorization code flow of an OIDC issuer
	ConsoleLocal ConsoleMode = "local" // a one-time code of the local environment
)

// The terms of the assertions of Google's Identity-Aware Proxy.
const (
	iapIssuer  = "https://cloud.google.com/iap"
	iapJWKSURL = "https://www.gstatic.com/iap/verify/public_key-jwk"
)

// Console configures the operators' console.
type Console struct {
	Mode                    ConsoleMode
	Audience                string   // the audience of the assertions of people who have signed in: a backend service with IAP, a client id otherwise
	OIDCIssuer, OIDCJWKSURL string   // the issuer of the assertions and the URL of its public keys, unless Mode is [ConsoleIAP]
	ClientSecret            Secret   // proves to the issuer that the console is the client; it is unset for a public client
	IAPIssuer, IAPJWKSURL   string   // those of IAP
	SessionKeys             []Secret // of the cookies: the first seals, and each opens
	AdminURL                string   // the base URL of the function admin, without a slash at its end
	Hosts                   []string // the values of the header Host that are served
	TraceURL, LogURL        string   // lead from a transaction to its trace and its log, with {traceId} and {txId}; "": no link
}

// On is true if there is a console.
func (c Console) On() bool { return c.Mode != ConsoleOff && c.Mode != "" }

// Issuer returns the issuer of the assertions and the URL of its public keys.
func (c Console) Issuer() (issuer, jwksURL string) {
	if c.Mode == ConsoleIAP {
		return c.IAPIssuer, c.IAPJWKSURL
	}
	return c.OIDCIssuer, c.OIDCJWKSURL
}

// linkTo parses a URL of another program, with a place for an id.
func linkTo(p *string, id string) field {
	return bind(p, "an https URL that has "+id+" once in its path, query or fragment, and no other braces", func(text string) (string, bool) {
		before, _, found := strings.Cut(text, id)
		u, ok := webURL(before)
		filled := strings.Replace(text, id, "1", 1)
		_, err := url.Parse(filled)
		return text, found && ok && err == nil && u.Scheme == "https" && u.User == nil && strings.Contains(strings.TrimPrefix(before, "https://"), "/") && !strings.ContainsAny(filled, "{}\\ \"<>`")
	})
}

// sessionKeys parses the keys of the console's cookies.
func sessionKeys(p *[]Secret) field {
	const want = "1 or 2 keys separated by a comma, each the base64 of 32 to 64 random bytes"
	return secretTexts(p, want, func(one string) bool { return isRandom(one, 32) }).where(func(text string) bool { return strings.Count(text, ",") < 2 })
}

var hostName = regexp.MustCompile(`^([a-z0-9]([a-z0-9.-]*[a-z0-9])?|\[[0-9a-f:]+\])(:[0-9]{1,5})?$`)

// hosts parses values of the header Host.
func hosts(p *[]string) field {
	return bind(p, "host names in lower case, each with its port if that is not the scheme's own, separated by commas", func(text string) ([]string, bool) {
		return texts(text, hostName.MatchString)
	})
}

var iapAudience = regexp.MustCompile(`^/projects/[0-9]+/global/backendServices/[0-9]+$`)

func (c *Config) consoleRules() []rule {
	o := c.Console
	named := o.Mode == ConsoleOIDC || o.Mode == ConsoleLocal
	return []rule{{
		of:     []string{"console.mode", "console.audience"},
		broken: o.On() && o.Audience == "",
		say:    fmt.Sprintf("console.mode is %s: set console.audience, which the tokens of signed-in people name", o.Mode),
	}, {
		of:     []string{"console.mode", "console.audience"},
		broken: o.Mode == ConsoleIAP && o.Audience != "" && !iapAudience.MatchString(o.Audience),
		say:    "console.mode is iap: set console.audience to /projects/NUMBER/global/backendServices/ID, as the page of IAP shows it. Another backend's tokens must not be accepted",
	}, {
		of:     []string{"console.mode", "console.oidc.issuer", "console.oidc.jwksUrl"},
		broken: named && (o.OIDCIssuer == "" || o.OIDCJWKSURL == ""),
		say:    fmt.Sprintf("console.mode is %s: set console.oidc.issuer and console.oidc.jwksUrl, whose tokens are accepted", o.Mode),
	}, {
		of:     []string{"console.mode", "console.oidc.issuer", "console.oidc.jwksUrl", "console.oidc.clientSecret"},
		broken: o.Mode == ConsoleIAP && (o.OIDCIssuer != "" || o.OIDCJWKSURL != "" || o.ClientSecret.Reveal() != ""),
		say:    "console.mode is iap, whose issuer is Google: leave console.oidc.issuer, console.oidc.jwksUrl and console.oidc.clientSecret out, or set console.mode to oidc",
	}, {
		of:     []string{"console.audience", "auth.publicAudience", "auth.internalAudience", "auth.usersAudience"},
		broken: o.Audience != "" && slices.Contains([]string{c.Auth.PublicAudience, c.Auth.InternalAudience, c.Auth.UsersAudience}, o.Audience),
		say:    "a token of the console would be one for other functions: set console.audience to another than auth.publicAudience, auth.internalAudience and auth.usersAudience",
	}, {
		of:     []string{"console.mode", "K_SERVICE"},
		broken: o.Mode == ConsoleLocal && c.Platform.OnCloudRun(),
		say:    "K_SERVICE is set, and console.mode is local, which is for one machine: set console.mode to iap or oidc",
	}, {
		of:     []string{"console.mode", "console.oidc.issuer", "console.adminUrl", "console.hosts"},
		broken: o.Mode == ConsoleLocal && !o.onThisMachine(),
		say:    "console.mode is local: console.oidc.issuer, console.adminUrl and console.hosts must be addresses of this machine (localhost, 127.0.0.1, [::1])",
	}, {
		of:     []string{"auth.viewers", "auth.operators"},
		broken: slices.ContainsFunc(c.Auth.Viewers, func(name string) bool { return slices.Contains(c.Auth.Operators, name) }),
		say:    "a viewer may only read, and an operator may act: name each person in auth.viewers or in auth.operators, not in both",
	}}
}

// onThisMachine is true if each address of the console that is set is one of this machine.
func (c Console) onThisMachine() bool {
	addresses := []string{c.OIDCIssuer, c.AdminURL}
	for _, host := range c.Hosts {
		addresses = append(addresses, "http://"+host)
	}
	return !slices.ContainsFunc(addresses, func(address string) bool {
		u, err := url.Parse(address)
		return address != "" && (err != nil || !loopback(u.Hostname()))
	})
}
