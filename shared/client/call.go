package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"mime"
	"net/http"
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// Limits of the length of answers.
const (
	maxAnswer  = 16 << 20 // bytes; 500 transactions have less than 1 MiB, a receipt with many logs has some
	maxProblem = 64 << 10
)

// request is the request of one call, the same in each attempt.
type request struct {
	method, path string // the path as it is sent, escaped
	query        url.Values
	body         any  // nil: none
	once         bool // what it asks for happens once, however often it is sent
}

// isRepeatable reports whether the request may be sent again after an attempt whose outcome is unknown. An
// operator's act may not, unless it happens once: another operator may have undone it meanwhile.
func (q request) isRepeatable() bool {
	return q.once || q.method == http.MethodGet || !strings.HasPrefix(q.path, "/admin/v1/")
}

// The paths below which an id follows.
const (
	txs            = "/api/v1/tx"
	transfers      = "/api/v1/internal_transfer"
	payoutAddress  = "/api/v1/payout_address"
	submitters     = "/admin/v1/submitters"
	adminTxs       = "/admin/v1/tx"
	adminTransfers = "/admin/v1/transfers"
	accounts       = "/admin/v1/accounts"
	users          = "/admin/v1/users"
	endpoints      = "/admin/v1/webhook-endpoints"
	proposals      = "/admin/v1/proposals"
)

// pathOf is the path below base that has the parts.
func pathOf(base string, parts ...any) string {
	for _, part := range parts {
		base += "/" + url.PathEscape(fmt.Sprint(part))
	}
	return base
}

// queryOf has the parameters of names and values in turn. A parameter whose value is zero is omitted.
func queryOf(pairs ...any) url.Values {
	query := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		name, value := pairs[i].(string), reflect.ValueOf(pairs[i+1])
		if at, ok := pairs[i+1].(time.Time); ok && !at.IsZero() {
			query.Set(name, at.UTC().Format(time.RFC3339Nano))
		} else if !ok && !value.IsZero() {
			query.Set(name, fmt.Sprint(reflect.Indirect(value)))
		}
	}
	return query
}

// call is [Client.call] with an answer of the type T.
func call[T any](ctx context.Context, c *Client, q request) (out T, err error) {
	err = c.call(ctx, q, &out)
	return out, err
}

// get is a [call] by GET; query nil: without parameters.
func get[T any](ctx context.Context, c *Client, path string, query url.Values) (T, error) {
	return call[T](ctx, c, request{method: http.MethodGet, path: path, query: query})
}

// post is a [call] by POST.
func post[T any](ctx context.Context, c *Client, path string, body any) (T, error) {
	return call[T](ctx, c, request{method: http.MethodPost, path: path, body: body})
}

// postOnce is [post] for what happens once, however often it is sent: a key or an id is of one act alone.
func postOnce[T any](ctx context.Context, c *Client, path string, body any) (T, error) {
	return call[T](ctx, c, request{method: http.MethodPost, path: path, body: body, once: true})
}

// call repeats the request until there is a definite answer, or none and the request is not repeatable. It decodes it into out, a
// pointer; nil: nothing is decoded.
func (c *Client) call(ctx context.Context, q request, out any) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	var body []byte
	if q.body != nil {
		var err error
		if body, err = json.Marshal(q.body); err != nil {
			return fmt.Errorf("%s %s: encode the body: %w", q.method, q.path, err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, c.options.Within)
	defer cancel()
	uncertain := false // what an attempt did is not known
	for limit := c.options.RetryFirst; ; limit = min(2*limit, c.options.RetryMax) {
		err := c.attempt(ctx, q, body, out)
		if err == nil {
			return nil
		}
		if ProposedBy(err) != nil { // an earlier attempt has made the same proposal, or nothing
			return callError(q, err, false)
		}
		unknown, p := errors.Is(err, ErrUnknown), new(Problem)
		later := unknown
		if errors.As(err, &p) {
			later = p.later()
		}
		uncertain = unknown || uncertain && !p.final()
		// A random part is added, so that clients that were refused together do not return
		// together.
		if !later || unknown && !q.isRepeatable() || !sleepBefore(ctx, p.RetryAfter+rand.N(limit)) {
			return callError(q, err, uncertain)
		}
	}
}

// callError is the error of a call whose last attempt ended with err.
func callError(q request, err error, uncertain bool) error {
	if uncertain && !errors.Is(err, ErrUnknown) && q.method != http.MethodGet {
		return fmt.Errorf("%s %s: %w; of an earlier attempt %w", q.method, q.path, err, ErrUnknown)
	}
	return fmt.Errorf("%s %s: %w", q.method, q.path, err)
}

// attempt sends the request once. The error has a [Problem] if the answer is a refusal. It is
// [ErrUnknown] if no answer shows the outcome.
func (c *Client) attempt(ctx context.Context, q request, body []byte, out any) error {
	ctx, cancel := context.WithTimeout(ctx, c.options.AttemptTimeout)
	defer cancel()
	token, err := c.options.Token(ctx)
	if err != nil {
		return fmt.Errorf("fetch a token: %w", err)
	}
	target := c.base + q.path
	if len(q.query) > 0 {
		target += "?" + q.query.Encode()
	}
	r, err := http.NewRequestWithContext(ctx, q.method, target, bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Accept", "application/json, application/problem+json")
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.http.Do(r)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return refusal(resp)
	}
	var proposed ProposedError
	if isProposed(resp) {
		out = &proposed.Proposal
	}
	if err := decode(resp, maxAnswer, "application/json", out); err != nil {
		return fmt.Errorf("%w: answer %d: %w", ErrUnknown, resp.StatusCode, err)
	}
	if isProposed(resp) {
		return &proposed
	}
	return nil
}

// refusal is the problem in the answer. An answer that does not come from Fencepost, such as a
// load balancer's page, becomes a problem without a code.
func refusal(resp *http.Response) error {
	p := new(Problem)
	if err := decode(resp, maxProblem, "application/problem+json", p); err != nil {
		*p = Problem{Title: http.StatusText(resp.StatusCode), Detail: "no problem+json: " + err.Error()}
	}
	p.Status, p.RetryAfter = resp.StatusCode, retryAfter(resp.Header.Get("Retry-After"))
	if p.unknown() {
		return fmt.Errorf("%w: %w", ErrUnknown, p)
	}
	return p
}

// decode reads a body of the media type into out, unless out is nil.
func decode(resp *http.Response, limit int64, media string, out any) error {
	text, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	switch {
	case err != nil:
		return err
	case int64(len(text)) > limit:
		return fmt.Errorf("the body is longer than %d bytes", limit)
	case out == nil:
		return nil
	}
	got, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err != nil || got != media {
		return fmt.Errorf("Content-Type %q: want %s", resp.Header.Get("Content-Type"), media)
	}
	return json.Unmarshal(text, out)
}

// retryAfter reads the header in either of its forms (RFC 9110, section 10.2.3); 0 if it is
// absent, malformed or in the past.
func retryAfter(text string) time.Duration {
	const limit = 1 << 31 // seconds
	if seconds, err := strconv.ParseUint(text, 10, 63); err == nil {
		return time.Duration(min(seconds, limit)) * time.Second
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(time.Until(at), 0)
	}
	return 0
}

// sleepBefore waits for d. It returns false at once if ctx would end before that.
func sleepBefore(ctx context.Context, d time.Duration) bool {
	if end, ok := ctx.Deadline(); ok && time.Until(end) <= d {
		return false
	}
	return sleep(ctx, d) == nil
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// poll repeats look until the state is final or the error is a refusal. It also returns the last that it read.
func poll[T any](ctx context.Context, c *Client, look func(ctx context.Context, id string) (T, error), id string, final func(T) bool) (last T, err error) {
	for wait := c.options.PollFirst; ; wait = min(wait*3/2, c.options.PollMax) {
		seen, err := look(ctx, id)
		if err == nil {
			last = seen
		}
		if err == nil && final(seen) || err != nil && !errors.Is(err, ErrUnknown) {
			return last, err
		}
		if slept := sleep(ctx, wait/2+rand.N(wait)); slept != nil {
			return last, errors.Join(slept, err)
		}
	}
}

// Page selects one page of a list, and has the place of the next one.
type Page struct {
	Token string // where the page begins: Next of the page before; "": the first page
	Next  string // of the next page, once the page was read; "": this was the last
}

type pageKey struct{}

// WithPage returns a context for one list call. With it a method such as [Client.ListActs] yields the rows of
// the page p alone, and sets p.Next before the first row.
func WithPage(ctx context.Context, p *Page) context.Context {
	return context.WithValue(ctx, pageKey{}, p)
}

// pages yields the rows of the list at the path, which are in the member of the answer, and fetches pages as needed. It ends at the
// first error and after the last page. A page can be empty and not be the last.
func pages[T any](ctx context.Context, c *Client, path, member string, values url.Values) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		only, _ := ctx.Value(pageKey{}).(*Page)
		if only != nil && only.Token != "" {
			values.Set("pageToken", only.Token)
		}
		for {
			rows, next, err := page[T](ctx, c, path, member, values)
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			if only != nil {
				only.Next, next = next, ""
			}
			for _, one := range rows {
				if !yield(one, nil) {
					return
				}
			}
			if next == "" {
				return
			}
			values.Set("pageToken", next)
		}
	}
}

// page fetches one page, and the token of the next; "": there is none.
func page[T any](ctx context.Context, c *Client, path, member string, values url.Values) (rows []T, next string, err error) {
	q := request{method: http.MethodGet, path: path, query: values}
	answer, err := call[map[string]json.RawMessage](ctx, c, q)
	if err != nil {
		return nil, "", err
	}
	for name, into := range map[string]any{member: &rows, "nextPageToken": &next} {
		if text := answer[name]; text != nil && err == nil {
			err = json.Unmarshal(text, into)
		}
	}
	if err != nil {
		return nil, "", callError(q, fmt.Errorf("%w: %s: %w", ErrUnknown, member, err), true)
	}
	return rows, next, nil
}
