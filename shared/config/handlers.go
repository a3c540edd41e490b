package config

import (
	"encoding/base64"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Handlers configures the business services that make transactions, by name.
type Handlers struct {
	// URLs are the addresses of the handlers. Only these addresses are called.
	URLs map[string]string
	// Secrets sign the calls of each handler, in the order given. While a secret is rotated, a
	// handler has two.
	Secrets map[string][]Secret
	// Timeout is the longest time of one handler call.
	Timeout time.Duration
	// Patience is how long a handler that answers "not now" is called again.
	Patience time.Duration
}

func (h *Handlers) settings() []setting {
	return []setting{
		{name: "handlers.urls",
			meaning: "the business services that may be asked for transactions, and at no other address; redirects are not followed",
			field:   handlerURLs(&h.URLs)},
		{name: "handlers.secrets",
			meaning: "the keys that sign the calls to each of `handlers.urls`, needed by a process that calls them; a secret; while a key is changed, the old and the new one of that name",
			field:   handlerSecrets(&h.Secrets)},
		{name: "handlers.timeout", def: "5s",
			meaning: "how long a handler's service may take to answer; later, its nonce is filled by a placeholder; more than a second below `lease.duration`",
			field:   duration(&h.Timeout, 100*time.Millisecond, time.Minute)},
		{name: "handlers.patience", def: "2m",
			meaning: "how long a handler that is unavailable or answers not now is called again; then its nonce is filled by a placeholder; below `stuck.after`",
			field:   duration(&h.Patience, 0, 24*time.Hour)},
	}
}

// handlerName matches the name of a handler.
var handlerName = regexp.MustCompile(`^[a-z][a-z0-9_.-]{0,63}$`)

// HandlerName reports whether text may name a handler: a lower-case letter, then up to 63 of
// a-z, 0-9, dot, dash and underscore.
func HandlerName(text string) bool { return handlerName.MatchString(text) }

// pairs parses name=value, separated by commas.
func pairs(text string, ok func(value string) bool) (all [][2]string, right bool) {
	for one := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(one), "=")
		if !HandlerName(name) || !ok(value) {
			return nil, false
		}
		all = append(all, [2]string{name, value})
	}
	return all, true
}

func handlerURLs(p *map[string]string) field {
	var url string
	one := trusted(&url)
	return field{
		want: "name=URL, separated by commas, each name once and each " + one.want,
		set: func(text string) bool {
			all, ok := pairs(text, one.set)
			urls := make(map[string]string, len(all))
			for _, pair := range all {
				urls[pair[0]] = pair[1]
			}
			if !ok || len(urls) < len(all) {
				return false
			}
			*p = urls
			return true
		},
		unset: func() bool { return len(*p) == 0 },
	}
}

func handlerSecrets(p *map[string][]Secret) field {
	return field{
		want:   "name=whsec_ and the base64 of 24 to 64 random bytes, separated by commas",
		secret: true,
		set: func(text string) bool {
			all, ok := pairs(text, func(value string) bool {
				encoded, prefixed := strings.CutPrefix(value, "whsec_")
				secret, err := base64.StdEncoding.DecodeString(encoded)
				return prefixed && err == nil && len(secret) >= 24 && len(secret) <= 64
			})
			if !ok {
				return false
			}
			*p = make(map[string][]Secret, len(all))
			for _, pair := range all {
				(*p)[pair[0]] = append((*p)[pair[0]], NewSecret(pair[1]))
			}
			return true
		},
		unset: func() bool { return len(*p) == 0 },
	}
}

func (c *Config) handlerRules() []rule {
	h := c.Handlers
	stray := slices.DeleteFunc(slices.Sorted(maps.Keys(h.Secrets)), func(name string) bool { return h.URLs[name] != "" })
	return []rule{{
		of:     []string{"handlers.urls", "handlers.secrets"},
		broken: len(stray) > 0,
		say:    fmt.Sprintf("handlers.secrets has secrets of %q, which handlers.urls does not have: name their URLs, or take the secrets away", stray),
	}, {
		of:     []string{"handlers.patience", "stuck.after"},
		broken: h.Patience >= c.Stuck.After && len(h.URLs) > 0,
		say:    "set handlers.patience below stuck.after: what waits for so long is STUCK",
	}, {
		of:     []string{"handlers.timeout", "lease.duration"},
		broken: h.Timeout+time.Second >= c.Lease.Duration && len(h.URLs) > 0,
		say:    "set handlers.timeout more than a second below lease.duration: a service is called within one lease, and its answer must be stored in it",
	}}
}
