package page

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"html/template"
	"math/big"
	"net/url"
	"regexp"
	"strings"
	"time"
)

// functions are the functions of all templates.
func (r *Renderer) functions() template.FuncMap {
	return template.FuncMap{
		"ago":     func(t any) template.HTML { return ago(r.Now(), t) },
		"howlong": func(t any) template.HTML { return howLong(r.Now(), t) },
		"at":      at,
		"due":     func(t any) template.HTML { return due(r.Now(), t) },
		"lasts":   lasts,
		"times":   times,
		"wei":     ether, "roughly": roughly, "gwei": gwei, "digits": digits,
		"short": short, "full": full, "link": link, "state": state, "indent": indent, "path": Path, "static": staticName, "runbook": runbook,
		"join": strings.Join, "meter": meter, "confirmation": Confirmation,
		"add":     func(a, b int) int { return a + b },
		"millis":  func(n int64) string { return span(time.Duration(n) * time.Millisecond) },
		"seconds": func(n int64) string { return fmt.Sprintf("%d.%03d s", n/1000, n%1000) }, // of milliseconds
	}
}

// none stands where there is no value.
const none template.HTML = `<span class="muted">–</span>`

// timeOf is t, a [time.Time] or a pointer to one; false: it is none. Nothing here is as old as 1970: a time until then
// was never set.
func timeOf(t any) (time.Time, bool) {
	switch t := t.(type) {
	case time.Time:
		return t, t.Unix() > 0
	case *time.Time:
		if t != nil {
			return *t, t.Unix() > 0
		}
	}
	return time.Time{}, false
}

const exact = "2006-01-02 15:04:05"

// ago is a time as a distance from now, such as "3 min ago" or "in 2 h".
func ago(now time.Time, of any) template.HTML {
	t, ok := timeOf(of)
	if !ok {
		return `<span class="muted">never</span>`
	}
	text := "in " + span(t.Sub(now))
	switch d := now.Sub(t); {
	case d > -time.Second && d < time.Second:
		text = "now"
	case d > 0:
		text = span(d) + " ago"
	}
	return timeElement(t, text)
}

// howLong is how long ago a time was, such as "for 6 s", for a state that lasts since then.
func howLong(now time.Time, of any) template.HTML {
	t, ok := timeOf(of)
	if !ok {
		return `<span class="muted">since an unknown time</span>`
	}
	if d := now.Sub(t); d >= time.Second {
		return timeElement(t, "for "+span(d))
	}
	return timeElement(t, "just now")
}

// due is when something comes next, such as "in 2 s". A time that has passed is "now".
func due(now time.Time, of any) template.HTML {
	if t, ok := timeOf(of); ok && !t.After(now) {
		return timeElement(t, "now")
	}
	return ago(now, of)
}

// year is a year of 365 days.
const year = 365 * 24 * time.Hour

// lasts is how long a balance lasts. Above a year a person needs no number.
func lasts(seconds int64) string {
	if seconds > int64(year/time.Second) {
		return "over a year"
	}
	return span(time.Duration(seconds) * time.Second)
}

// instant matches a time as the API writes it within its texts.
var instant = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)

// times is a text of the API with its times as those of the pages.
func times(text string) template.HTML {
	return template.HTML(instant.ReplaceAllStringFunc(template.HTMLEscapeString(text), func(found string) string { // escaping changes no time
		t, err := time.Parse(time.RFC3339, found)
		if err != nil {
			return found
		}
		return string(at(t))
	}))
}

// at is a time in full, in UTC.
func at(of any) template.HTML {
	t, ok := timeOf(of)
	if !ok {
		return none
	}
	return timeElement(t, t.UTC().Format(exact)+" UTC")
}

func timeElement(t time.Time, text string) template.HTML {
	t = t.UTC()
	return markup(`<time datetime="%s" title="%s">%s</time>`, t.Format(time.RFC3339Nano), t.Format(exact+".000")+" UTC", text)
}

// span is a duration in its two largest units, such as "2 h 5 min".
func span(d time.Duration) string {
	units := []struct {
		of   time.Duration
		name string
	}{{year, "y"}, {24 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "min"}, {time.Second, "s"}}
	d = d.Abs()
	for i, u := range units {
		if d < u.of {
			continue
		}
		text := fmt.Sprintf("%d %s", d/u.of, u.name)
		if i+1 < len(units) && d < 10*u.of {
			if rest := d % u.of / units[i+1].of; rest > 0 {
				text += fmt.Sprintf(" %d %s", rest, units[i+1].name)
			}
		}
		return text
	}
	return fmt.Sprintf("%d ms", d.Milliseconds())
}

// markup formats with escaped arguments.
func markup(format string, args ...string) template.HTML {
	escaped := make([]any, len(args))
	for i, a := range args {
		escaped[i] = template.HTMLEscapeString(a)
	}
	return template.HTML(fmt.Sprintf(format, escaped...)) // each argument is escaped
}

// isDigits reports whether s is a whole number without a sign.
func isDigits(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}

// digits groups the digits of a whole number by a thin space. Other texts stay.
func digits(of any) string {
	s := fmt.Sprint(of)
	if !isDigits(s) {
		return s
	}
	const thin = "\u202f"
	var out strings.Builder
	for i, c := range s {
		if i > 0 && (len(s)-i)%3 == 0 {
			out.WriteString(thin)
		}
		out.WriteRune(c)
	}
	return out.String()
}

// decimal is a whole number of 10^-places, without trailing zeros.
func decimal(s string, places int) string {
	if len(s) <= places {
		s = strings.Repeat("0", places+1-len(s)) + s
	}
	whole, rest := s[:len(s)-places], strings.TrimRight(s[len(s)-places:], "0")
	if rest != "" {
		rest = "." + rest
	}
	return digits(whole) + rest
}

// ether is an amount in wei as ether.
func ether(wei string) template.HTML { return amount(wei, "ether", 18, 18) }

// roughly is an amount in wei as ether, cut to four decimals where it has more.
func roughly(wei string) template.HTML { return amount(wei, "ether", 18, 4) }

// gwei is a price in wei per gas as gwei.
func gwei(wei string) template.HTML { return amount(wei, "gwei", 9, 9) }

// amount is an amount in wei in a unit of 10^places wei, cut to the number of decimals, with the wei as its title. Other
// texts stay.
func amount(wei, unit string, places, decimals int) template.HTML {
	switch {
	case wei == "":
		return none
	case !isDigits(wei):
		return markup("%s", wei)
	}
	text := decimal(wei, places)
	if point := strings.IndexByte(text, '.'); point >= 0 && len(text) > point+1+decimals {
		text = "≈ " + text[:point+1+decimals]
	}
	return markup(`<span class="amount" title="%s wei">%s %s</span>`, digits(wei), text, unit)
}

// short is a hash, an account or an id as its beginning and end, with the whole text as its title.
func short(s string) template.HTML {
	if s == "" {
		return none
	}
	return markup(`<span class="id" title="%s">%s</span>`, s, shorten(s))
}

// full is a hash or an account as a whole, which a narrow screen wraps: for evidence that a person compares. An
// attacker can make an account that begins and ends as another one does.
func full(s string) template.HTML {
	if s == "" {
		return none
	}
	return markup(`<code class="wrap">%s</code>`, s)
}

// shorten keeps what tells ids apart: of accounts the chain too, and of UUIDs, which begin with their time, more of
// the end.
func shorten(s string) string {
	prefix, id := "", s
	if i := strings.LastIndex(s, ":"); i >= 0 && strings.HasPrefix(s, "eip155:") {
		prefix, id = s[:i+1], s[i+1:]
	}
	runes, head, tail := []rune(id), 6, 4
	if strings.Count(id, "-") == 4 && len(id) == 36 {
		head, tail = 8, 6
	}
	if len(runes) <= 24 {
		return s
	}
	return prefix + string(runes[:head]) + "…" + string(runes[len(runes)-tail:])
}

// Path is the path of the page about something: a submitter, a tx, a transfer, a proposal or a search. An unknown
// kind is a defect of the caller and panics; in a template it is an error.
func Path(kind, id string) string {
	switch kind {
	case "submitter", "transfer", "proposal":
		return "/console/" + kind + "s/" + url.PathEscape(id)
	case "tx":
		return "/console/tx/" + url.PathEscape(id)
	case "search":
		return "/console/search?q=" + url.QueryEscape(id)
	}
	panic(fmt.Sprintf("page: no page about a %q", kind))
}

// link is a link to the page about something, with the shortened id as its text.
func link(kind, id string) template.HTML {
	if id == "" {
		return none
	}
	return markup(`<a class="id" href="%s" title="%s">%s</a>`, Path(kind, id), id, shorten(id))
}

// tones are the classes of states, of transactions, submitters, transfers, proposals and the overview.
var tones = map[string]string{
	"CONFIRMED": "ok", "ACTIVE": "ok", "COMMITTED": "ok", "CARRIED_OUT": "ok", "OK": "ok", "CLEAR": "ok",
	"IN_FLIGHT": "open", "SUBMITTED": "open", "TRACKING": "open", "SOURCE_PENDING": "open", "SOURCE_DONE": "open", "TARGET_PENDING": "open", "PROPOSED": "open", "APPROVED": "open",
	"QUEUED": "idle", "IDLE": "idle", "INIT": "idle", "RETIRED": "idle", "EXPIRED": "idle",
	"STUCK": "warn", "SUSPENDED": "warn", "HELD": "warn", "COMPENSATING": "warn", "STALE": "warn", "LOOK": "warn", "PAUSED": "warn",
	"PROTECT": "bad", "LOST": "bad", "GAP": "bad", "VIOLATED": "bad", "STANDING": "bad", "ACT": "bad",
	"FAILED": "ended", "ROLLED_BACK": "ended", "REJECTED": "ended",
}

// ToneOf is the class of a state, in any letter case.
func ToneOf(state string) string { return cmp.Or(tones[strings.ToUpper(state)], "idle") }

// state is a state as a badge. The colour repeats what the text says.
func state(of any) template.HTML {
	s := fmt.Sprint(of)
	return markup(`<span class="badge %s">%s</span>`, ToneOf(s), s)
}

// indent is JSON with line breaks, or the text itself if it is none.
func indent(raw json.RawMessage) string {
	var out bytes.Buffer
	if json.Indent(&out, raw, "", "  ") != nil {
		return string(raw)
	}
	return out.String()
}

// runbook is the name of a page of the repository, such as docs/runbooks/stuck.md, as a link.
func runbook(page string) template.HTML {
	if page == "" {
		return ""
	}
	name := strings.TrimSuffix(page[strings.LastIndex(page, "/")+1:], ".md")
	return markup(`<a rel="noreferrer" href="https://github.com/fencepost/fencepost/blob/main/%s">%s</a>`, page, name)
}

// meter draws how much of a limit is used, in parts of a hundred. Texts that are no whole numbers draw nothing.
func meter(used, limit string) template.HTML {
	of, ok := new(big.Int).SetString(limit, 10)
	now, also := new(big.Int).SetString(used, 10)
	if !ok || !also || of.Sign() <= 0 {
		return ""
	}
	percent := new(big.Int).Div(now.Mul(now, big.NewInt(100)), of)
	if percent.Cmp(big.NewInt(100)) > 0 {
		percent.SetInt64(100)
	}
	return markup(`<meter min="0" max="100" low="70" high="90" optimum="0" value="%s">%s%%</meter>`, percent.String(), percent.String())
}
