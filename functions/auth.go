package functions

import (
	"net/http"
	"slices"

	"github.com/fencepost/fencepost/shared/config"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/web"
)

// handlerCaller is the prefix of the caller name under which Go code stores requests for a handler.
const handlerCaller = store.HandlerCaller

// viewer returns the caller of a public function. A token's names are its verified e-mail, if it has
// one, and its subject. The two forms differ from each other and from the names of handlers, hooks and
// the coordinator.
func (a *App) viewer(r *http.Request) (store.Viewer, error) {
	id, err := a.public.Authenticate(r)
	if err != nil {
		return store.Viewer{}, err
	}
	v := viewerOf(id, a.config.Auth)
	if v.Caller == "" {
		return v, web.NewProblem(web.Forbidden, "the token's subject and e-mail have characters that no caller's name has")
	}
	return v, a.atWork.Enter(r, "caller "+v.Caller)
}

// viewerOf lists the subject before the e-mail. If a callers list names both, the subject identifies
// the caller, since an address can later belong to another person. Without a list the e-mail is
// recorded, as it is readable.
func viewerOf(id web.Identity, c config.Auth) store.Viewer {
	var v store.Viewer
	for _, name := range []string{store.SubjectCaller + id.Subject, store.EmailCaller + verified(id)} {
		if !callerName.MatchString(name) {
			continue
		}
		v.Names = append(v.Names, store.Spellings(name)...)
		if !v.Operator {
			v.Caller, v.Operator = name, slices.Contains(c.Operators, name)
		}
	}
	if !c.OpenIssuer {
		v.Names = append(v.Names, store.AnyCaller)
	}
	return v
}

// verified returns the e-mail address that the token's issuer has verified; "": none.
func verified(id web.Identity) string {
	if !id.EmailVerified {
		return ""
	}
	return id.Email
}

// operatorCalls is the log message before each operator act. An alert matches it.
const operatorCalls = "an operator calls"

// operator returns the operator who calls an admin function. It logs each call that can change
// something before the call does so.
func (a *App) operator(r *http.Request) (string, error) {
	c := callOf(r)
	if c.approved != nil {
		return c.by, nil
	}
	v, err := a.viewer(r)
	if err != nil {
		return "", err
	}
	if !v.Operator {
		return "", web.NewProblem(web.Forbidden, "only operators may call admin functions")
	}
	if r.Method != http.MethodGet {
		a.log.InfoContext(r.Context(), operatorCalls, "operator", v.Caller, "method", r.Method, "path", r.URL.Path, "requestUid", web.RequestID(r.Context()))
	}
	c.by, c.names = v.Caller, operatorNames(v)
	return v.Caller, nil
}

// internalOnly admits only the service accounts of Cloud Tasks and the scheduler. It trusts their
// tokens, never a plain header.
func (a *App) internalOnly(h http.Handler) http.Handler {
	return web.RequireAccounts(a.internal, a.config.Auth.InternalAccounts...)(h)
}
