package functions

import (
	"cmp"
	"net/http"
	"slices"
	"strings"

	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/web"
)

// handlerCaller begins the name under which requests for a handler are made by code.
const handlerCaller = "handler:"

// viewer is who calls a public function: the verified e-mail of the token, or
// its subject where it has none.
func (a *App) viewer(r *http.Request) (store.Viewer, error) {
	id, err := a.public.Authenticate(r)
	if err != nil {
		return store.Viewer{}, err
	}
	email := id.Email
	if !id.EmailVerified {
		email = ""
	}
	caller := cmp.Or(email, id.Subject)
	if caller == store.PayoutCaller {
		return store.Viewer{}, web.NewProblem(web.Forbidden, "this name is the transfer coordinator's, which has no token")
	}
	if caller == hookCaller {
		return store.Viewer{}, web.NewProblem(web.Forbidden, "this name is the low-level hooks', which have no token")
	}
	if strings.HasPrefix(caller, handlerCaller) {
		return store.Viewer{}, web.NewProblem(web.Forbidden, "names that begin with %q are handlers', which have no token", handlerCaller)
	}
	return store.Viewer{Caller: caller, Operator: email != "" && slices.Contains(a.config.Auth.Operators, email)}, nil
}

// operator is the person who calls an admin function.
func (a *App) operator(r *http.Request) (string, error) {
	v, err := a.viewer(r)
	if err != nil {
		return "", err
	}
	if !v.Operator {
		return "", web.NewProblem(web.Forbidden, "only operators may call admin functions")
	}
	return v.Caller, nil
}

// internalOnly lets in the accounts of tasks and of the scheduler, and nobody
// by a header's word.
func (a *App) internalOnly(h http.Handler) http.Handler {
	return web.RequireAccounts(a.internal, a.config.Auth.InternalAccounts...)(h)
}
