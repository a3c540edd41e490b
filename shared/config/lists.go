package config

import (
	"encoding/base64"
	"regexp"
	"slices"
	"strings"
)

// list parses elements separated by commas, each by one.
func list[T any](text string, one func(string) (T, bool)) (all []T, ok bool) {
	for part := range strings.SplitSeq(text, ",") {
		element, ok := one(strings.TrimSpace(part))
		if !ok {
			return nil, false
		}
		all = append(all, element)
	}
	return all, true
}

// texts parses texts that ok accepts, separated by commas, each once.
func texts(text string, ok func(string) bool) ([]string, bool) {
	all, right := list(text, func(one string) (string, bool) { return one, ok(one) })
	return all, right && len(slices.Compact(slices.Sorted(slices.Values(all)))) == len(all)
}

// hidden makes f the field of a secret.
func hidden(f field) field {
	f.secret = true
	return f
}

// secretTexts is [texts] for secrets.
func secretTexts(p *[]Secret, want string, ok func(string) bool) field {
	return hidden(bind(p, want, func(text string) (all []Secret, right bool) {
		found, right := texts(text, ok)
		for _, one := range found {
			all = append(all, NewSecret(one))
		}
		return all, right
	}))
}

// emails parses addresses separated by commas.
func emails(p *[]string) field {
	return bind(p, "e-mail addresses separated by commas", func(text string) ([]string, bool) {
		return list(text, func(one string) (string, bool) { return one, email.MatchString(one) })
	})
}

// identities parses names of token holders separated by commas. An address without a kind is a
// verified e-mail.
func identities(p *[]string) field {
	return bind(p, `email:<e-mail address> or sub:<subject>, separated by commas`, func(text string) ([]string, bool) {
		return list(text, func(one string) (string, bool) {
			if email.MatchString(one) && !identity.MatchString(one) {
				one = "email:" + one
			}
			return one, identity.MatchString(one)
		})
	})
}

// kinds parses names of [ApprovalKinds], separated by commas.
func kinds(p *[]string) field {
	return bind(p, "any of "+strings.Join(ApprovalKinds, ", ")+", separated by commas", func(text string) ([]string, bool) {
		all, ok := texts(text, func(one string) bool { return slices.Contains(ApprovalKinds, one) })
		slices.Sort(all)
		return all, ok
	})
}

var kmsVersion = regexp.MustCompile(`^gcpkms:projects/[^/\s]+/locations/[^/\s]+/keyRings/[^/\s]+/cryptoKeys/[^/\s]+/cryptoKeyVersions/[^/\s]+$`)

func macKeys(p *[]Secret) field {
	const want = "keys separated by commas, each the base64 of 32 to 64 random bytes, or gcpkms:projects/P/locations/L/keyRings/R/cryptoKeys/K/cryptoKeyVersions/N, each once"
	return secretTexts(p, want, func(one string) bool { return isRandom(one, 32) || kmsVersion.MatchString(one) })
}

// isRandom is true if text is the base64 of at least least and at most 64 bytes.
func isRandom(text string, least int) bool {
	key, err := base64.StdEncoding.DecodeString(text)
	return err == nil && len(key) >= least && len(key) <= 64
}

// nodeURLs parses the URLs of nodes, separated by commas, each once: a repeated node would
// have two votes in the quorum. The connection must be private. A node's answers decide which
// transactions are signed and when they are final, and its URL often holds a key.
func nodeURLs(p *[]Secret) field {
	const want = "1 to 9 https URLs, each once, separated by commas (http only for this machine: localhost, 127.0.0.1, [::1]; a comma in one is written %2C)"
	return secretTexts(p, want, func(one string) bool {
		u, ok := webURL(one)
		return ok && private(u)
	}).where(func(text string) bool { return strings.Count(text, ",") < maxNodes })
}

// handlerName matches the name of a handler.
var handlerName = regexp.MustCompile(`^[a-z][a-z0-9_.-]{0,63}$`)

// HandlerName reports whether text may name a handler: a lower-case letter, then up to 63 of
// a-z, 0-9, dot, dash and underscore.
func HandlerName(text string) bool { return handlerName.MatchString(text) }

// byName parses name=value, separated by commas. A name may stand several times.
func byName[V any](text string, value func(string) (V, bool)) (map[string][]V, bool) {
	all := make(map[string][]V)
	_, ok := list(text, func(one string) (none struct{}, ok bool) {
		name, written, _ := strings.Cut(one, "=")
		v, ok := value(written)
		all[name] = append(all[name], v)
		return none, ok && HandlerName(name)
	})
	return all, ok
}

// handlerURLs parses name=URL, separated by commas, each name once.
func handlerURLs(p *map[string]string) field {
	var url string
	one := trusted(&url)
	return bind(p, "name=URL, separated by commas, each name once and each "+one.want, func(text string) (map[string]string, bool) {
		all, ok := byName(text, func(value string) (string, bool) { return value, one.set(value) })
		urls := make(map[string]string, len(all))
		for name, of := range all {
			urls[name] = of[0]
			ok = ok && len(of) == 1
		}
		return urls, ok
	})
}

// handlerSecrets parses name=secret, separated by commas.
func handlerSecrets(p *map[string][]Secret) field {
	return hidden(bind(p, "name=whsec_ and the base64 of 24 to 64 random bytes, separated by commas", func(text string) (map[string][]Secret, bool) {
		return byName(text, func(value string) (Secret, bool) {
			encoded, prefixed := strings.CutPrefix(value, "whsec_")
			return NewSecret(value), prefixed && isRandom(encoded, 24)
		})
	}))
}

// endpointCallers parses name=caller, separated by commas.
func endpointCallers(p *map[string][]string) field {
	return bind(p, "name=caller, separated by commas; a name may be repeated", func(text string) (map[string][]string, bool) {
		return byName(text, func(value string) (string, bool) { return value, value != "" && !strings.ContainsAny(value, " \t") })
	})
}
