package serve

import (
	"net/http"
	"slices"

	"github.com/fencepost/fencepost/shared/web"
)

// By serves a call of the caller that who returns.
func By[Who any](who func(*http.Request) (Who, error), h func(w http.ResponseWriter, r *http.Request, by Who) error) Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		by, err := who(r)
		if err != nil {
			return err
		}
		return h(w, r, by)
	}
}

// WithBody reads the body of a call for [By].
func WithBody[Who, Body any](
	b *Base, h func(w http.ResponseWriter, r *http.Request, by Who, body Body) error,
) func(http.ResponseWriter, *http.Request, Who) error {
	return func(w http.ResponseWriter, r *http.Request, by Who) error {
		body, err := web.Decode[Body](w, r, b.MaxBodyBytes)
		if err != nil {
			return err
		}
		return h(w, r, by, body)
	}
}

// Reply answers 200 with a value that was read, or returns the error of reading it: Reply(w, r)(read()).
func Reply(w http.ResponseWriter, r *http.Request) func(value any, err error) error {
	return func(value any, err error) error {
		if err != nil {
			return err
		}
		return web.Reply(w, r, http.StatusOK, value)
	}
}

// Show serves a call that answers what read returns for the subject, which the path or the token names.
func Show[On, T any](subject func(*http.Request) (On, error), read func(r *http.Request, on On) (T, error)) Handler {
	return By(subject, func(w http.ResponseWriter, r *http.Request, on On) error { return Reply(w, r)(read(r, on)) })
}

// ShowList is [Show] for a page of a list. The query may have the parameters of pages, and those of the given names.
func ShowList[On, T any](
	subject func(*http.Request) (On, error), read func(r *http.Request, on On, q map[string]string) (T, error), names ...string,
) Handler {
	return Show(subject, func(r *http.Request, on On) (out T, err error) {
		q, err := Parameters(r, slices.Concat(names, []string{"pageSize", "pageToken"})...)
		if err != nil {
			return out, err
		}
		return read(r, on, q)
	})
}
