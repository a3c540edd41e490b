package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/fencepost/fencepost/shared/client"
)

// role is who calls: it decides which variables have the token.
type role string

const (
	caller   role = ""
	operator role = "OPERATOR_"
	user     role = "USER_"
)

// tokenSource returns the token of one attempt.
type tokenSource func(ctx context.Context) (string, error)

// client returns the client for the role.
func (a *app) client(as role) (*client.Client, error) {
	base, err := a.base()
	if err != nil {
		return nil, err
	}
	token, err := a.token(as)
	if err != nil {
		return nil, err
	}
	if a.within <= 0 {
		return nil, usagef("--within %s: want a time above 0", a.within)
	}
	return client.New(client.Options{URL: base, Token: token, Within: a.within, AttemptTimeout: a.attempt, Transport: a.answers})
}

// base returns the URL of the deployment. Without TLS the token could be read on its way, so plain HTTP is for
// this machine alone.
func (a *app) base() (string, error) {
	text := cmp.Or(a.api, a.env("FENCEPOST_API"))
	if text == "" {
		return "", usagef("no deployment: set FENCEPOST_API, or give --api, such as https://api.fencepost.example")
	}
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return "", usagef("the deployment's URL: want one such as https://api.fencepost.example")
	case u.Scheme == "https", u.Scheme == "http" && isLoopback(u.Hostname()):
		return strings.TrimSuffix(text, "/"), nil
	}
	return "", usagef("%s: want https, since a token is sent there; http is for this machine alone", u.Redacted())
}

func isLoopback(host string) bool { return host == "localhost" || net.ParseIP(host).IsLoopback() }

// token returns the source of the role's tokens: a flag, the environment or gcloud.
func (a *app) token(as role) (tokenSource, error) {
	switch {
	case a.tokenFile != "":
		return fileToken(a.tokenFile), nil
	case a.audience != "":
		return gcloudToken(a.audience, cmp.Or(a.impersonate, a.env("FENCEPOST_IMPERSONATE"))), nil
	}
	for _, prefix := range []role{as, caller} {
		name := "FENCEPOST_" + string(prefix) + "TOKEN"
		if text := strings.TrimSpace(a.env(name)); text != "" {
			return func(context.Context) (string, error) { return oneToken(name, text) }, nil
		}
		if path := a.env(name + "_FILE"); path != "" {
			return fileToken(path), nil
		}
	}
	if audience := a.env("FENCEPOST_AUDIENCE"); audience != "" {
		return gcloudToken(audience, cmp.Or(a.impersonate, a.env("FENCEPOST_IMPERSONATE"))), nil
	}
	return nil, usagef("no sign-in: set FENCEPOST_%[1]sTOKEN or FENCEPOST_%[1]sTOKEN_FILE, or FENCEPOST_AUDIENCE to sign in by gcloud", as)
}

// oneToken checks the form of a token. The error never contains the text.
func oneToken(from, text string) (string, error) {
	text = strings.TrimSpace(text)
	if text == "" || strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", fmt.Errorf("%s has no token: want one line of letters, digits and punctuation", from)
	}
	return text, nil
}

func fileToken(path string) tokenSource {
	return func(context.Context) (string, error) {
		text, err := os.ReadFile(path)
		if at := new(fs.PathError); errors.As(err, &at) {
			err = at.Err // without the path, which may be the token itself
		}
		if err != nil {
			return "", fmt.Errorf("read the token's file: %w: want a path in FENCEPOST_TOKEN_FILE or --token-file", err)
		}
		return oneToken("the token's file", string(text))
	}
}

// gcloudToken returns identity tokens that gcloud makes. One token serves until a minute before its end.
func gcloudToken(audience, account string) tokenSource {
	var kept string
	var until time.Time
	return func(ctx context.Context) (string, error) {
		if time.Now().Before(until) {
			return kept, nil
		}
		text, err := askGcloud(ctx, audience, account)
		if err == nil {
			kept, until = text, expiry(text).Add(-time.Minute)
		}
		return text, err
	}
}

func askGcloud(ctx context.Context, audience, account string) (string, error) {
	args := []string{"auth", "print-identity-token", "--audiences=" + audience}
	if account != "" {
		args = append(args, "--impersonate-service-account="+account, "--include-email")
	}
	var out, problems bytes.Buffer
	c := exec.CommandContext(ctx, "gcloud", args...)
	c.Stdout, c.Stderr = &out, &problems
	switch err := c.Run(); {
	case errors.Is(err, exec.ErrNotFound):
		return "", errors.New("gcloud is not installed: set FENCEPOST_TOKEN, or install the Google Cloud CLI")
	case err != nil:
		return "", fmt.Errorf("gcloud auth print-identity-token: %w: %s", err, strings.TrimSpace(problems.String()))
	}
	return oneToken("gcloud's answer", out.String())
}

// expiry returns the time at which a JWT ends, by its own statement; zero: it has none. The deployment verifies it.
func expiry(token string) time.Time {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return time.Time{}
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	var claims struct {
		Exp int64 `json:"exp"`
	}
	if err != nil || json.Unmarshal(text, &claims) != nil {
		return time.Time{}
	}
	return time.Unix(claims.Exp, 0)
}
