package webtest

import (
	"bytes"
	"io"
	"net/http"
)

// Handler serves by next, and calls broken with every answer that the document does
// not have: a status, a content type, a header, a body. A request is looked at only
// if it was accepted, since then the document must allow it: what is refused may be
// as wrong as a test likes.
//
// Calls of broken overlap. Internal paths are not looked at, nor answers that next
// breaks off.
func (c *Contract) Handler(next http.Handler, broken func(error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		told := &recorder{ResponseWriter: w}
		var asked bytes.Buffer
		served := r
		if r.Body != nil && r.Body != http.NoBody {
			served = r.WithContext(r.Context())
			served.Body = both{io.TeeReader(r.Body, &asked), r.Body}
		}
		next.ServeHTTP(told, served)
		told.begin(http.StatusOK)
		err := c.check(exchange{request: r, asked: asked.Bytes(), status: told.status, header: told.header, body: told.body.Bytes()})
		if err != nil {
			broken(err)
		}
	})
}

type both struct {
	io.Reader
	io.Closer
}

// recorder keeps a copy of the answer on its way.
type recorder struct {
	http.ResponseWriter
	status int // 0: it has not begun
	header http.Header
	body   bytes.Buffer
}

// Unwrap gives [http.ResponseController] the writer beneath.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

func (r *recorder) begin(status int) {
	if r.status == 0 && status >= http.StatusOK {
		r.status, r.header = status, r.Header().Clone()
	}
}

// WriteHeader begins the answer.
func (r *recorder) WriteHeader(status int) {
	r.begin(status)
	r.ResponseWriter.WriteHeader(status)
}

// Write goes on with it.
func (r *recorder) Write(b []byte) (int, error) {
	r.begin(http.StatusOK)
	r.body.Write(b)
	return r.ResponseWriter.Write(b)
}
