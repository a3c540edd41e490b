package serve

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/fencepost/fencepost/shared/store"
)

// AttentionPlace is the place after an item of what needs attention. Its id is [AttentionID]'s.
var AttentionPlace = Place{25,
	func(id string) ([]byte, error) { _, err := ParseAttentionID(id); return []byte(id), err },
	func(b []byte) (string, error) { _, err := ParseAttentionID(string(b)); return string(b), err }}

// AttentionID is the text of a place in the list of what needs attention.
func AttentionID(p store.AttentionPlace) string {
	return fmt.Sprintf("%d %d %s", p.Rank, p.Since.UnixMicro(), p.Key)
}

// ParseAttentionID reads a text of [AttentionID]; "" is the first place.
func ParseAttentionID(id string) (p store.AttentionPlace, err error) {
	if id == "" {
		return p, nil
	}
	rank, rest, _ := strings.Cut(id, " ")
	since, key, ok := strings.Cut(rest, " ")
	micros, err := strconv.ParseInt(since, 10, 64)
	p.Since, p.Key = time.UnixMicro(micros).UTC(), key
	if p.Rank, _ = strconv.Atoi(rank); err != nil || !ok || AttentionID(p) != id || strings.ContainsRune(key, 0) {
		return p, errors.New("no place")
	}
	return p, nil
}
