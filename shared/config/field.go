package config

import (
	"fmt"
	"log/slog"
	"maps"
	"math"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// field is the target of a value, with its parser and the description of valid values.
type field struct {
	want   string                 // what is right, to follow "want": with unit and range
	set    func(text string) bool // stores the text's value; false: it is not right, nothing stored
	value  func() any             // what is stored; the type's zero: nothing
	show   func() string          // the same as a text like those that set takes, without the parts of a URL that may be secret
	secret bool                   // the text is never shown

	// why describes the fault of a text that set refused, and shows no part that may be
	// secret. nil: want is enough.
	why func(text string) error
}

// bind makes a field that parses into p.
func bind[T any](p *T, want string, parse func(string) (T, bool)) field {
	return field{
		want: want,
		set: func(text string) bool {
			v, ok := parse(text)
			if ok {
				*p = v
			}
			return ok
		},
		value: func() any { return *p },
		show:  func() string { return shown(*p) },
	}
}

// where is f for the texts that ok accepts too.
func (f field) where(ok func(text string) bool) field {
	set := f.set
	f.set = func(text string) bool { return ok(text) && set(text) }
	return f
}

// shown is a value as a person would write it.
func shown(v any) string {
	switch v := v.(type) {
	case time.Duration:
		return short(v)
	case slog.Level:
		return strings.ToLower(v.String())
	case []string:
		return strings.Join(v, ",")
	case map[string]string: // URLs by name, whose paths may have keys
		return strings.Join(slices.Sorted(maps.Keys(v)), ",")
	case map[string][]string:
		var all []string
		for _, name := range slices.Sorted(maps.Keys(v)) {
			all = append(all, name+"="+strings.Join(v[name], ","+name+"="))
		}
		return strings.Join(all, ",")
	}
	return fmt.Sprint(v)
}

func duration(p *time.Duration, low, high time.Duration) field {
	want := fmt.Sprintf("a duration from %s to %s", short(low), short(high))
	return bind(p, want, func(text string) (time.Duration, bool) {
		d, err := time.ParseDuration(text)
		return d, err == nil && low <= d && d <= high
	})
}

// short formats d as a person would: 2m, not 2m0s.
func short(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

func seconds(p *time.Duration, low, high int64) field {
	want := fmt.Sprintf("a number of seconds from %d to %d", low, high)
	return bind(p, want, func(text string) (time.Duration, bool) {
		n, ok := whole(text, low, high)
		return time.Duration(n) * time.Second, ok
	})
}

// number parses whole numbers; what names their unit ("a number of bytes").
func number[N int | int32 | int64 | uint64](p *N, what string, low, high int64) field {
	want := fmt.Sprintf("%s from %d to %d", what, low, high)
	return bind(p, want, func(text string) (N, bool) {
		n, ok := whole(text, low, high)
		return N(n), ok
	})
}

func whole(text string, low, high int64) (int64, bool) {
	n, err := strconv.ParseInt(text, 10, 64)
	return n, err == nil && low <= n && n <= high
}

func boolean(p *bool) field {
	return bind(p, "true or false", func(text string) (bool, bool) {
		return text == "true", text == "true" || text == "false"
	})
}

func choice[T ~string](p *T, options ...T) field {
	return bind(p, "one of "+join(options), func(text string) (T, bool) {
		return T(text), slices.Contains(options, T(text))
	})
}

func join[T ~string](options []T) string {
	texts := make([]string, len(options))
	for i, o := range options {
		texts[i] = string(o)
	}
	return strings.Join(texts, ", ")
}

// logLevel parses the names of slog's four levels in small letters.
func logLevel(p *slog.Level) field {
	names := []string{"debug", "info", "warn", "error"}
	return bind(p, "one of "+join(names), func(text string) (level slog.Level, ok bool) {
		err := level.UnmarshalText([]byte(text))
		return level, err == nil && slices.Contains(names, text)
	})
}

// text accepts a text that matches pattern completely; what describes the pattern.
func text(p *string, what string, pattern *regexp.Regexp) field {
	return bind(p, what, func(text string) (string, bool) { return text, pattern.MatchString(text) })
}

var (
	word     = regexp.MustCompile(`^\S+$`)
	path     = regexp.MustCompile(`^[^\x00]+$`)
	resource = regexp.MustCompile(`^[a-z0-9][a-z0-9.:-]*$`)
	queue    = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9-]{0,49}$`)
	email    = regexp.MustCompile(`^[^\s@,]+@[^\s@,]+$`)
	identity = regexp.MustCompile(`^(email:[^\s@,]+@[^\s@,]+|sub:[^\s,]+)$`)
)

func hostPort(p *string) field {
	return bind(p, "host:port", func(text string) (string, bool) {
		_, port, err := net.SplitHostPort(text)
		_, ok := whole(port, 1, 65535)
		return text, err == nil && ok
	})
}

// ownPort parses the host:port of a service on this machine, which is called in plain text.
func ownPort(p *string) field {
	f := hostPort(p).where(func(text string) bool {
		host, _, err := net.SplitHostPort(text)
		return err == nil && loopback(host)
	})
	f.want += " on this machine (localhost, 127.0.0.1, [::1])"
	return f
}

// trusted parses the URL of a service that is believed or that gets a token. The connection
// must be private, so that no other server can read or answer.
func trusted(p *string) field {
	const want = "an https URL without query (http only for this machine: localhost, 127.0.0.1, [::1])"
	return bind(p, want, func(text string) (string, bool) {
		u, ok := webURL(text)
		ok = ok && u.User == nil && u.RawQuery == "" && u.Fragment == ""
		return text, ok && private(u)
	})
}

// baseURL is trusted, and stored so that a path can follow it.
func baseURL(p *string) field {
	f := trusted(p)
	set := f.set
	f.set = func(text string) bool { return set(strings.TrimSuffix(text, "/")) }
	return f
}

func webURL(text string) (*url.URL, bool) {
	u, err := url.Parse(text)
	return u, err == nil && (u.Scheme == "https" || u.Scheme == "http") && u.Hostname() != ""
}

// private is true if the connection cannot be read or changed on the way.
func private(u *url.URL) bool { return u.Scheme == "https" || loopback(u.Hostname()) }

func loopback(host string) bool {
	return host == "localhost" || net.ParseIP(host).IsLoopback()
}

// secretText parses a secret that ok accepts.
func secretText(p *Secret, want string, ok func(string) bool) field {
	return hidden(bind(p, want, func(text string) (Secret, bool) { return NewSecret(text), ok(text) }))
}

var decimal = regexp.MustCompile(`^(0|[1-9][0-9]{0,5})([.][0-9]{1,3})?$`)

// thousandths parses a factor with at most three decimals and stores it times 1,000.
func thousandths(p *int64, low, high string) field {
	parse := func(text string) (int64, bool) {
		factor, err := strconv.ParseFloat(text, 64)
		return int64(math.Round(1000 * factor)), err == nil && decimal.MatchString(text)
	}
	from, _ := parse(low)
	to, _ := parse(high)
	f := bind(p, "a factor from "+low+" to "+high+", with at most three decimals", func(text string) (int64, bool) {
		n, ok := parse(text)
		return n, ok && from <= n && n <= to
	})
	f.show = func() string { return strconv.FormatFloat(float64(*p)/1000, 'f', -1, 64) }
	return f
}

// origin parses a trusted URL without a path: callers append one.
func origin(p *string) field {
	f := baseURL(p).where(func(text string) bool {
		u, err := url.Parse(text)
		return err == nil && strings.Trim(u.Path, "/") == ""
	})
	f.want = "an https URL without path and query (http only for this machine: localhost, 127.0.0.1, [::1])"
	return f
}

// instanceName is a Cloud SQL connection name; a project's id may have a domain in
// front.
var instanceName = regexp.MustCompile(`^([a-z0-9.-]+:)?[a-z][a-z0-9-]+:[a-z0-9-]+:[a-z][a-z0-9-]+$`)

// postgresAddress accepts both forms of a connection string
// (https://www.postgresql.org/docs/current/libpq-connect.html); the driver
// looks closer.
func postgresAddress(text string) bool {
	return strings.HasPrefix(text, "postgres://") || strings.HasPrefix(text, "postgresql://") ||
		!strings.Contains(text, "://") && strings.Contains(text, "=")
}

// topicName is a topic's full name; its project's id may have a domain in front.
var topicName = regexp.MustCompile(`^projects/([a-z0-9.-]+:)?[a-z][a-z0-9-]+/topics/[A-Za-z][A-Za-z0-9._~+%-]{2,254}$`)

var bucketName = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]$`)
