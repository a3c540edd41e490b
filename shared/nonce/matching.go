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
// name that was given twice, or that the transaction contradicts.
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
	wanted := t.wanted(e, open)
	if err := e.contradicted(pairs, wanted); err != nil {
		return nil, err
	}
	matches := t.matches(l, e, wanted, nonces)
	if l.Matching {
		for n, name := range oneToOne(matches) {
			pairs[n] = name
			delete(matches, n)
		}
	}
	return pairs, refused(matches, e)
}

// wanted is what every request wants that is open, or in flight and was not carried out.
func (t *tenure) wanted(e evidence, open []OpenRequest) (wanted []want) {
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
	return wanted
}

// matches are the requests that each nonce, of which nothing was said, may have been. One
// whose transaction proves a payout was none of them.
func (t *tenure) matches(l *Leave, e evidence, wanted []want, named map[string]uint64) map[uint64][]string {
	matches := make(map[uint64][]string)
	for _, n := range e.lost {
		f, read := e.foreign[n]
		if _, said := l.Requests[n]; said || f.Proves != "" {
			continue
		}
		for _, w := range wanted {
			_, isNamed := named[w.id]
			if !isNamed && (!read || w.mayBe(n, f)) {
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

// mayBe says that f, which consumed nonce n, may have been the request.
func (w want) mayBe(n uint64, f ForeignTransaction) bool {
	return w.unknown || w.of != nil && *w.of == n || w.digest == f.CallDigest
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

// contradicted refuses a name where the transaction does something else than the request
// wants: of two names that were swapped each request would end as the other's transaction
// did. A payout ends by proof of payment alone, whatever the name says. A name whose
// transaction proves another payout is refused too.
func (e evidence) contradicted(pairs map[uint64]string, wanted []want) error {
	for _, n := range slices.Sorted(maps.Keys(pairs)) {
		f, read := e.foreign[n]
		if f.Proves != "" && f.Proves != pairs[n] {
			return ErrNaming{n, pairs[n], fmt.Sprintf("transaction %s, which consumed the nonce, proves that payout %q was paid; say %q", f.Taker.Hash, f.Proves, NoRequest)}
		}
		i := slices.IndexFunc(wanted, func(w want) bool { return w.id == pairs[n] })
		if read && !e.payer && i >= 0 && !wanted[i].mayBe(n, f) {
			return ErrNaming{n, pairs[n], fmt.Sprintf("transaction %s, which consumed the nonce, does something else than the request asks for (to, value and data); say %q where no other request was it", f.Taker.Hash, NoRequest)}
		}
	}
	return nil
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
