package functions

import (
	"net/http"
	"slices"

	"github.com/fencepost/fencepost/shared/config"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/web"
)

// handlerCaller begins the name under which requests for a handler are made by code.
const handlerCaller = store.HandlerCaller

// viewer is who calls a public function. A token has the name of its verified e-mail, if
// it has one, and that of its subject; neither can be spelled like the other, nor like a
// handler's, the hooks' or the coordinator's.
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

// viewerOf has the subject before the e-mail: where a list has both, the subject is who
// calls, since an address may be given to somebody else one day. What goes on record of
// who has no such list is the e-mail, as people read it.
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

// verified is the e-mail that the token vouches for; "": none.
func verified(id web.Identity) string {
	if !id.EmailVerified {
		return ""
	}
	return id.Email
}

// operatorCalls is the message of the log line before each act of an operator. An alert waits for it.
const operatorCalls = "an operator calls"

// operator is the person who calls an admin function. Each call that may change something
// is logged before it does.
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

// internalOnly lets in the accounts of tasks and of the scheduler, and nobody
// by a header's word.
func (a *App) internalOnly(h http.Handler) http.Handler {
	return web.RequireAccounts(a.internal, a.config.Auth.InternalAccounts...)(h)
}
