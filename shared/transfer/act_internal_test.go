package transfer

import (
	"testing"
	"time"

	"github.com/fencepost/fencepost/shared/check"
)

// A status keeps its key for a day, and has a time within the core's horizon however long it is open.
func TestStatusCall(t *testing.T) {
	t.Parallel()
	ordered := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, c := range []struct {
		name string
		age  time.Duration
		key  string
		ok   bool
	}{
		{"at once", 0, "status-7-1767323045000", true},
		{"the same day", 23 * time.Hour, "status-7-1767323045000", true},
		{"while a call with the last key may be under way", 24*time.Hour + 59*time.Minute, "status-7-1767409445000", false},
		{"the next day", 26 * time.Hour, "status-7-1767409445000", true},
		{"after 40 days", 40*24*time.Hour + 2*time.Hour, "status-7-1770779045000", true},
	} {
		call, ok := Act{ID: 7, At: ordered, Age: c.age}.statusCall()
		if ok != c.ok || call.ReqID != c.key || ordered.Add(c.age).Sub(call.CreatedAt) >= keyLasts {
			t.Errorf("%s: got %s of %v, %t; want %s, %t, and a time of the last day", c.name, call.ReqID, call.CreatedAt, ok, c.key, c.ok)
		}
	}
	earlier, _ := Act{ID: 7, At: ordered.Add(-time.Hour)}.statusCall()
	check.Equal(t, "another act of the number", earlier.ReqID, "status-7-1767319445000")
}
