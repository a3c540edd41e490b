package nonce

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// pairs are the nonces with the requests that they were: those that the operator named,
// and with [Leave.Matching] those that match one to one. The error is an [ErrNotForeign]
// where a nonce of which nothing was said matches a request, and an [ErrNaming] for a
// name that was given twice.
func (t *tenure) pairs(l *Leave, e evidence, open []OpenRequest) (map[uint64]string, error) {
	pairs := make(map[uint64]string)
	nonces := make(map[string]uint64)
	for _, n := range slices.Sorted(maps.Keys(l.Requests)) {
		name := l.Requests[n]
		if name == NoRequest {
			continue
		}
		if other, twice := nonces[name]; twice {
			return nil, ErrNaming{n, name, fmt.Sprintf("it is named for nonce %d too, and runs once", other)}
		}
		pairs[n], nonces[name] = name, n
	}
	matches := t.matches(l, e, open, nonces)
	if l.Matching {
		for n, name := range oneToOne(matches) {
			pairs[n] = name
			delete(matches, n)
		}
	}
	return pairs, refused(matches, e)
}

// matches are the requests that each nonce, of which nothing was said, may have been.
func (t *tenure) matches(l *Leave, e evidence, open []OpenRequest, named map[string]uint64) map[uint64][]string {
	var wanted []want
	for _, o := range open {
		wanted = append(wanted, t.wantOf(o.RequestID, o.Payload, o.Unknown))
	}
	for _, x := range t.work.Unsettled {
		if x.Fills {
			continue
		}
		w := t.wantOf(x.RequestID, x.Payload, x.opaque())
		if x.opaque() && len(x.Raw) > 0 && !x.isPlaceholder(x.Hash()) {
			w = t.wantOfBytes(x.RequestID, x.Raw)
		}
		if n := *x.Nonce; x.opaque() && slices.Contains(e.lost, n) { // its handler, or its owner, may have sent it by other means
			w.of = &n
		}
		if x.Recorded == nil && x.Receipt == nil {
			wanted = append(wanted, w)
		}
	}
	matches := make(map[uint64][]string)
	for _, n := range e.lost {
		if _, said := l.Requests[n]; said {
			continue
		}
		f, read := e.foreign[n]
		for _, w := range wanted {
			_, isNamed := named[w.id]
			if !isNamed && (!read || w.unknown || w.of != nil && *w.of == n || w.digest == f.CallDigest) {
				matches[n] = append(matches[n], w.id)
			}
		}
	}
	return matches
}

// want is what a request wants done.
type want struct {
	id      string
	digest  [32]byte
	unknown bool    // what it wants is not known yet
	of      *uint64 // a nonce that it may have consumed whatever it wants
}

func (t *tenure) wantOf(id string, payload []byte, unknown bool) want {
	call, err := t.chain.Call(payload)
	if unknown || err != nil {
		return want{id: id, unknown: true}
	}
	return want{id: id, digest: call.Digest()}
}

func (t *tenure) wantOfBytes(id string, raw []byte) want {
	_, tx, _, err := t.chain.Open(raw)
	if err != nil {
		return want{id: id, unknown: true}
	}
	return want{id: id, digest: Call{To: tx.To, Value: tx.Value, Data: tx.Data}.Digest()}
}

// oneToOne are the nonces that match one request alone, which matches no other nonce.
func oneToOne(matches map[uint64][]string) map[uint64]string {
	nonces := make(map[string]int)
	for _, ids := range matches {
		for _, id := range ids {
			nonces[id]++
		}
	}
	pairs := make(map[uint64]string)
	for n, ids := range matches {
		if len(ids) == 1 && nonces[ids[0]] == 1 {
			pairs[n] = ids[0]
		}
	}
	return pairs
}

// matchesShown bounds the requests that an error names for each nonce.
const matchesShown = 3

// refused is the error for nonces that match requests, of which nothing was said.
func refused(matches map[uint64][]string, e evidence) error {
	var all []ErrNotForeign
	for _, n := range slices.Sorted(maps.Keys(matches)) {
		ids := matches[n]
		shown := strings.Join(ids[:min(len(ids), matchesShown)], ", ")
		if len(ids) > matchesShown {
			shown += fmt.Sprintf(" and %d more", len(ids)-matchesShown)
		}
		why := "what consumed it is not known, and may have been " + shown
		if f, read := e.foreign[n]; read {
			why = fmt.Sprintf("transaction %s, which consumed it, does what is wanted by %s, or may do so", f.Taker.Hash, shown)
		}
		all = append(all, ErrNotForeign{Nonce: n, Why: why})
	}
	if len(all) == 0 {
		return nil
	}
	for _, other := range all[1:] {
		all[0].More = append(all[0].More, other.Error())
	}
	return all[0]
}
