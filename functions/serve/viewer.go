package serve

import (
	"net/http"
	"regexp"
	"slices"

	"github.com/fencepost/fencepost/shared/config"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/web"
)

// Viewer returns the caller of a public function. A token's names are its verified e-mail, if it has
// one, and its subject. The two forms differ from each other and from the names of handlers, hooks and
// the coordinator.
func (b *Base) Viewer(r *http.Request) (store.Viewer, error) {
	id, err := b.Public.Authenticate(r)
	if err != nil {
		return store.Viewer{}, err
	}
	return b.enter(r, viewerOf(id, b.Auth))
}

func (b *Base) enter(r *http.Request, v store.Viewer) (store.Viewer, error) {
	if v.Caller == "" {
		return v, web.NewProblem(web.Forbidden, "the token's subject and e-mail have characters that no caller's name has")
	}
	return v, b.AtWork.Enter(r, "caller "+v.Caller)
}

// AdminViewer is [Base.Viewer] for admin functions. They also accept the assertion of a person who has signed
// in to the console, if that person is an operator or a viewer.
func (b *Base) AdminViewer(r *http.Request) (store.Viewer, error) {
	if b.People == nil || !b.People.Concerns(r) {
		return b.Viewer(r)
	}
	id, err := b.People.Authenticate(r)
	if err != nil {
		return store.Viewer{}, err
	}
	v := viewerOf(id, b.Auth)
	v.Deposits = false // a service, which has tokens of its own
	if !v.Operator && !v.ReadOnly {
		return v, web.NewProblem(web.Forbidden, "this person is neither an operator nor a viewer: ask for an entry in auth.viewers or auth.operators")
	}
	return b.enter(r, v)
}

// OperatorCalls is the log message before each act of an operator. An alert matches it.
const OperatorCalls = "an operator calls"

// LogOperator logs that an operator makes a request that can change something.
func (b *Base) LogOperator(r *http.Request, v store.Viewer) {
	b.Log.InfoContext(r.Context(), OperatorCalls, "operator", v.Caller, "method", r.Method, "path", r.URL.Path, "requestUid", web.RequestID(r.Context()))
}

// viewerOf lists the subject before the e-mail. If a callers list names both, the subject identifies
// the caller, since an address can later belong to another person. Without a list the e-mail is
// recorded, as it is readable.
func viewerOf(id web.Identity, c config.Auth) store.Viewer {
	v := store.Viewer{Email: id.Email}
	names := []string{store.SubjectCaller + id.Subject}
	if id.EmailVerified {
		names = append(names, store.EmailCaller+id.Email)
	}
	for _, name := range names {
		if !CallerName.MatchString(name) {
			continue
		}
		v.Names = append(v.Names, store.Spellings(name)...)
		if !v.Operator && !v.Deposits {
			v.Caller, v.Operator, v.Deposits = name, slices.Contains(c.Operators, name), slices.Contains(c.DepositService, name)
		}
		v.ReadOnly = v.ReadOnly || slices.Contains(c.Viewers, name)
	}
	if !c.OpenIssuer {
		v.Names = append(v.Names, store.AnyCaller)
	}
	return v
}

// CallerName matches a name that a token can have: a verified e-mail or a subject.
var CallerName = regexp.MustCompile(`^(email:[^\s@\pC]+@[^\s@\pC]+|sub:[^\s\pC]{1,255})$`)
