// Package snapshot is the cursor of a journal in Postgres: the set of transactions that its reader
// has seen. A sequence number would not do, since a lower one can be committed after a higher one
// was read.
package snapshot

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Unseen is the condition for rows that a reader with the snapshot $1 has not seen. Their column tx
// is the transaction that wrote them (xid8). An index on tx serves it.
const Unseen = `tx >= pg_snapshot_xmin($1::text::pg_snapshot) and not pg_visible_in_snapshot(tx, $1::text::pg_snapshot)`

// Snapshot is the set of transactions below xmax without those that were in progress. Source:
// https://www.postgresql.org/docs/17/functions-info.html (pg_snapshot)
type Snapshot struct {
	xmax       uint64
	inProgress []uint64 // ascending, all below xmax
}

// Parse reads Postgres's notation; empty text is before everything.
func Parse(text string) (s Snapshot, err error) {
	if text == "" {
		return Snapshot{xmax: 1}, nil
	}
	wrong := fmt.Errorf("%q is not a snapshot", text)
	parts := strings.Split(text, ":")
	if len(parts) != 3 {
		return s, wrong
	}
	if s.xmax, err = strconv.ParseUint(parts[1], 10, 64); err != nil {
		return s, wrong
	}
	for one := range strings.FieldsFuncSeq(parts[2], func(r rune) bool { return r == ',' }) {
		xid, err := strconv.ParseUint(one, 10, 64)
		if err != nil {
			return s, wrong
		}
		s.inProgress = append(s.inProgress, xid)
	}
	return s, nil
}

// String returns s in Postgres's notation.
func (s Snapshot) String() string {
	xmin, texts := s.xmax, make([]string, len(s.inProgress))
	for i, xid := range s.inProgress {
		xmin, texts[i] = min(xmin, xid), strconv.FormatUint(xid, 10)
	}
	return fmt.Sprintf("%d:%d:%s", xmin, s.xmax, strings.Join(texts, ","))
}

// Upto returns s plus the transactions up to last that now sees. now is a later snapshot than s.
func (s Snapshot) Upto(last uint64, now Snapshot) Snapshot {
	if last == math.MaxUint64 {
		return now
	}
	inNow, _ := slices.BinarySearch(now.inProgress, last+1)
	inOld, _ := slices.BinarySearch(s.inProgress, last+1)
	return Snapshot{xmax: max(s.xmax, last+1), inProgress: slices.Concat(now.inProgress[:inNow], s.inProgress[inOld:])}
}
