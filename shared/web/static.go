package web

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// Static is a text that only another build changes. Any caller may read it, and caches may keep it for five
// minutes. Create it with [NewStatic].
type Static struct {
	contentType string
	etag        string
	text        []byte
}

// NewStatic returns a handler that answers with the text.
func NewStatic(contentType string, text []byte) Static {
	sum := sha256.Sum256(text)
	return Static{contentType: contentType, etag: fmt.Sprintf(`"%x"`, sum[:8]), text: text}
}

// ServeHTTP answers 200 with the text, or 304 if If-None-Match has its ETag.
func (s Static) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Cache-Control", "public, max-age=300")
	h.Set("ETag", s.etag)
	if strings.Contains(r.Header.Get("If-None-Match"), s.etag) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	h.Set("Content-Type", s.contentType)
	h.Set("Content-Length", strconv.Itoa(len(s.text)))
	w.WriteHeader(http.StatusOK)
	_, _ = w.Write(s.text) // the only possible failure is a caller that has left
}
