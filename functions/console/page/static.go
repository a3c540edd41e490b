package page

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"strings"
)

//go:embed static
var staticFiles embed.FS

const staticPath = "/console/static/"

// staticFile is a file that pages use.
type staticFile struct {
	text []byte
	kind string // its media type
}

// statics are the files by their paths. A path has a hash of the file's text, so a browser may keep the file for
// ever. staticPaths are the paths by the files' names.
var statics, staticPaths = readStatic()

func readStatic() (map[string]staticFile, map[string]string) {
	files, paths := make(map[string]staticFile), make(map[string]string)
	kinds := map[string]string{".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml", ".txt": "text/plain; charset=utf-8"}
	entries, err := fs.ReadDir(staticFiles, "static")
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
		paths[name] = staticPath + strings.TrimSuffix(name, ext) + "." + hex.EncodeToString(hash[:6]) + ext
		files[paths[name]] = staticFile{text, kinds[ext]}
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
func Static() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		file, ok := statics[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		h := w.Header()
		h.Set("Content-Type", file.kind)
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
		h.Set("X-Content-Type-Options", "nosniff")
		_, _ = w.Write(file.text)
	})
}
