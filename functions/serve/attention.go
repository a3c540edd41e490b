package serve

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/fencepost/fencepost/shared/store"
)

// attentionText is the text of a place in the list of what needs attention.
func attentionText(p store.AttentionPlace) string {
	return fmt.Sprintf("%d %d %s", p.Rank, p.Since.UnixMicro(), p.Key)
}

// readAttention reads a text of [attentionText]; "" is the first place.
func readAttention(text []byte) (p store.AttentionPlace, err error) {
	if len(text) == 0 {
		return p, nil
	}
	rank, rest, _ := strings.Cut(string(text), " ")
	since, key, ok := strings.Cut(rest, " ")
	micros, err := strconv.ParseInt(since, 10, 64)
	p.Since, p.Key = time.UnixMicro(micros).UTC(), key
	if p.Rank, _ = strconv.Atoi(rank); err != nil || !ok || attentionText(p) != string(text) || strings.ContainsRune(key, 0) {
		return p, errNoPlace
	}
	return p, nil
}
