// Package local is the local environment for people: what the emulator prints, its control address, and drills.
package local

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/emulator/stack/loopback"
)

// DefaultControl is where the control address is, unless it is taken.
const DefaultControl = "127.0.0.1:7070"

// Control serves the description of a running stack and of its API, tokens and drills. It is for the people at this machine:
// everybody who can reach it is given tokens.
type Control struct {
	*loopback.Server
	stack *stack.Stack
	keys  bool

	drilling sync.Mutex // held by the one drill that runs
	behind   background // the last drill without a waiting caller
}

// Serve serves the control address until Close. Without an address that is [DefaultControl], or a free port if
// that is taken. With keys the accounts' private keys are shown.
func Serve(s *stack.Stack, addr string, keys bool) (*Control, error) {
	c := &Control{stack: s, keys: keys}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /info", c.info)
	c.routeExplorer(mux)
	mux.Handle("GET /token/caller", c.token(stack.CallerAccount))
	mux.Handle("GET /token/operator", c.token(stack.OperatorAccount))
	mux.Handle("GET /token/second-operator", c.token(stack.SecondAccount))
	mux.Handle("GET /token/user/{id}", line(c.userToken))
	mux.Handle("POST /console", line(c.console))
	mux.HandleFunc("POST /drill/{name}", c.drill)
	c.routeDrills(mux)
	served := refuseForeignRequests(mux)
	var err error
	switch {
	case addr != "" && !isLoopback(addr):
		return nil, fmt.Errorf("control address %s: it gives tokens to everybody who can reach it; give an address of this machine alone, such as %s", addr, DefaultControl)
	case addr != "":
		c.Server, err = loopback.Serve(addr, served)
	default:
		if c.Server, err = loopback.Serve(DefaultControl, served); err != nil {
			c.Server, err = loopback.Serve("", served)
		}
	}
	if err == nil {
		s.Issuer.SetControl(c.URL())
	}
	return c, err
}

// refuseForeignRequests answers 403 to a request for another host, and to one that a web page makes. A page
// could otherwise read tokens, or start drills, by a name that leads to this machine.
func refuseForeignRequests(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Origin") != "" || !isLoopback(r.Host) {
			http.Error(w, "only for programs at this machine: call it by 127.0.0.1 or localhost, and not from a web page", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// isLoopback reports whether host, perhaps with a port, is localhost or a loopback address.
func isLoopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return host == "localhost" || net.ParseIP(host).IsLoopback()
}

func (c *Control) info(w http.ResponseWriter, r *http.Request) {
	info, err := c.stack.Info(r.Context())
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	for i := range info.Submitters {
		if !c.keys {
			info.Submitters[i].PrivateKey = ""
		}
	}
	w.Header().Set("Content-Type", "application/json")
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	_ = e.Encode(info) // the client may have left
}

// line answers with one line of text, or with 400 and the error.
type line func(r *http.Request) (string, error)

func (l line) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	text, err := l(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	fmt.Fprintln(w, text)
}

func (c *Control) token(account string) line {
	return func(r *http.Request) (string, error) {
		return c.stack.Issuer.Token(r.Context(), account, stack.PublicAudience)
	}
}

// people are the accounts that can sign in to the console, by the parameter "as".
var people = map[string]string{"": stack.OperatorAccount, "operator": stack.OperatorAccount, "second-operator": stack.SecondAccount, "viewer": stack.ViewerAccount}

// console answers with a new URL that signs in to the console.
func (c *Control) console(r *http.Request) (string, error) {
	as := r.URL.Query().Get("as")
	account, ok := people[as]
	if !ok {
		return "", fmt.Errorf("as=%.40s: want operator, second-operator or viewer", as)
	}
	return c.stack.ConsoleURL(account)
}

func (c *Control) userToken(r *http.Request) (string, error) {
	id, err := strconv.ParseInt(r.PathValue("id"), 10, 64)
	switch {
	case err != nil:
		return "", err
	case c.stack.Users == nil:
		return "", errors.New("users have tokens only where the emulator was started with --transfers")
	}
	return c.stack.Users.UserToken(id, stack.UsersAudience)
}
