package page

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"net/http"
	"path"
	"strings"
)

//go:embed static
var staticFiles embed.FS

// mediaTypes are those of the static files.
var mediaTypes = map[string]string{".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml", ".txt": "text/plain; charset=utf-8"}

// statics serves the files that pages use. staticPaths are their paths by name. A path has a hash of the file's text, so a
// browser may keep the file for ever.
var statics, staticPaths = readStatic()

func readStatic() (*http.ServeMux, map[string]string) {
	files, paths := http.NewServeMux(), make(map[string]string)
	entries, err := staticFiles.ReadDir("static")
	if err != nil {
		panic(err) // embedded
	}
	for _, entry := range entries {
		name := entry.Name()
		text, err := staticFiles.ReadFile("static/" + name)
		if err != nil {
			panic(err) // embedded
		}
		hash, ext := sha256.Sum256(text), path.Ext(name)
		paths[name] = "/console/static/" + strings.TrimSuffix(name, ext) + "." + hex.EncodeToString(hash[:6]) + ext
		files.HandleFunc(paths[name], func(w http.ResponseWriter, _ *http.Request) {
			h := w.Header()
			h.Set("Content-Type", mediaTypes[ext])
			h.Set("Cache-Control", "public, max-age=31536000, immutable")
			h.Set("X-Content-Type-Options", "nosniff")
			_, _ = w.Write(text)
		})
	}
	return files, paths
}

// staticName is the path of a static file. An unknown name is an error.
func staticName(name string) (string, error) {
	if p, ok := staticPaths[name]; ok {
		return p, nil
	}
	return "", fmt.Errorf("page: no static file %q", name)
}

// Static serves the styles and scripts below /console/static/, which need no sign-in.
func Static() http.Handler { return statics }
