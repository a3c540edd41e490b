package page

import (
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/shared/check"
)

func TestTexts(t *testing.T) {
	now := time.Date(2026, 11, 27, 3, 0, 0, 0, time.UTC)
	for _, c := range []struct{ got, want string }{
		{span(0), "0 ms"},
		{span(59 * time.Second), "59 s"},
		{span(3*time.Minute + 5*time.Second), "3 min 5 s"},
		{span(25 * time.Minute), "25 min"},
		{span(2*time.Hour + 5*time.Minute), "2 h 5 min"},
		{span(26 * time.Hour), "1 d 2 h"},
		{span(400 * 24 * time.Hour), "1 y 35 d"},
		{lasts(3600), "1 h"},
		{lasts(366 * 24 * 3600), "over a year"},
		{decimal("1500000000000000000", 18), "1.5"},
		{decimal("1", 18), "0.000000000000000001"},
		{decimal("0", 18), "0"},
		{decimal("1234567000000000", 9), "1\u202f234\u202f567"},
		{digits("1234567"), "1\u202f234\u202f567"},
		{digits("12"), "12"},
		{digits("-1"), "-1"},
		{shorten("0x1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b2c"), "0x1b1b…1b2c"},
		{shorten("eip155:1337:0x02e40fe26b255d5c8dfb71cbfeb1bf9ff7ab917d"), "eip155:1337:0x02e4…917d"},
		{shorten("01a1fda0-b1f9-7b07-a2c1-57c667e395bc"), "01a1fda0…e395bc"},
		{shorten("order-4711"), "order-4711"},
	} {
		check.Equal(t, "text", c.got, c.want)
	}
	for text, want := range map[string]string{
		string(ago(now, now.Add(-3*time.Minute))):                 ">3 min ago</time>",
		string(ago(now, now.Add(2*time.Hour))):                    ">in 2 h</time>",
		string(ago(now, now)):                                     ">now</time>",
		string(ago(now, (*time.Time)(nil))):                       "never",
		string(ago(now, time.Time{})):                             "never",
		string(ago(now, time.Unix(0, 0))):                         "never",
		string(at(time.Unix(0, 0))):                               "–",
		string(howLong(now, now.Add(-6*time.Second))):             ">for 6 s</time>",
		string(due(now, now.Add(-time.Minute))):                   ">now</time>",
		string(due(now, now.Add(2*time.Second))):                  ">in 2 s</time>",
		string(due(now, time.Time{})):                             "never",
		string(howLong(now, now)):                                 ">just now</time>",
		string(howLong(now, (*time.Time)(nil))):                   "since an unknown time",
		string(times("<b> since 2026-11-27T02:59:00Z; then")):     `&lt;b&gt; since <time datetime="2026-11-27T02:59:00Z" title="2026-11-27 02:59:00.000 UTC">2026-11-27 02:59:00 UTC</time>; then`,
		string(times("2026-13-27T02:59:00Z")):                     "2026-13-27T02:59:00Z",
		string(ether(`1"><b>`)):                                   "1&#34;&gt;&lt;b&gt;",
		string(roughly("1999999000000000000")):                    ">≈ 1.9999 ether<",
		string(roughly("1500000000000000000")):                    ">1.5 ether<",
		string(full("0x1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b<")): `<code class="wrap">0x1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b&lt;</code>`,
		string(full("")):                                          "–",
		string(state("<i>")):                                      `idle">&lt;i&gt;</span>`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("got %q, want it to contain %q", text, want)
		}
	}
}
