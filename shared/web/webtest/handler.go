package webtest

import (
	"bytes"
	"io"
	"net/http"
)

// Handler serves by next, and calls broken for each answer that the document does not have: a status, a
// content type, a header, a body. It checks a request only if it was accepted, since then the document
// must allow it. A refused request can have any mistake.
//
// Calls of broken can overlap. Internal paths, and answers that next aborts, are not checked.
func (c *Contract) Handler(next http.Handler, broken func(error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		report := &recorder{ResponseWriter: w}
		var asked bytes.Buffer
		served := r
		if r.Body != nil && r.Body != http.NoBody {
			served = r.WithContext(r.Context())
			served.Body = struct {
				io.Reader
				io.Closer
			}{io.TeeReader(r.Body, &asked), r.Body}
		}
		next.ServeHTTP(report, served)
		report.begin(http.StatusOK)
		err := c.check(exchange{request: r, asked: asked.Bytes(), status: report.status, header: report.header, body: report.body.Bytes()})
		if err != nil {
			broken(err)
		}
	})
}

// recorder copies the answer while it is sent.
type recorder struct {
	http.ResponseWriter
	status int // 0: it has not begun
	header http.Header
	body   bytes.Buffer
}

// Unwrap gives [http.ResponseController] the wrapped writer.
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

// Write continues the answer.
func (r *recorder) Write(b []byte) (int, error) {
	r.begin(http.StatusOK)
	r.body.Write(b)
	return r.ResponseWriter.Write(b)
}
