package protect

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fencepost/fencepost/shared/txmanager"
)

// pairRequests maps nonces to the requests that consumed them: those that the operator named, and
// with [txmanager.ReleaseRequest.Matching] those that match one to one. The error is an [txmanager.UnnamedNonceError]
// where an unnamed nonce matches a request. It is a [txmanager.NamingError] for a name that was given twice,
// or that the transaction contradicts.
func (t *incident) pairRequests(l *txmanager.ReleaseRequest, e evidence, open []txmanager.OpenRequest) (map[uint64]string, error) {
	pairs := make(map[uint64]string)
	nonces := make(map[string]uint64)
	for _, n := range slices.Sorted(maps.Keys(l.Requests)) {
		name := l.Requests[n]
		if name == txmanager.NoRequest {
			continue
		}
		if other, twice := nonces[name]; twice {
			return nil, txmanager.NamingError{Nonce: n, RequestID: name, Why: fmt.Sprintf("it is named for nonce %d too, and runs once", other)}
		}
		pairs[n], nonces[name] = name, n
	}
	wanted := t.wantedCalls(e, open)
	if err := e.checkContradictions(pairs, wanted); err != nil {
		return nil, err
	}
	matches := t.possibleMatches(l, e, wanted, nonces)
	if l.Matching {
		for n, name := range uniqueMatches(matches) {
			pairs[n] = name
			delete(matches, n)
		}
	}
	return pairs, unnamedNoncesError(matches, e)
}

// wantedCalls lists the calls of every queued request or open payout, and of open transactions
// that were not carried out.
func (t *incident) wantedCalls(e evidence, open []txmanager.OpenRequest) (wanted []wantedCall) {
	for _, o := range open {
		wanted = append(wanted, t.wantedCallOf(o.RequestID, o.Payload, o.Unknown))
	}
	for _, x := range t.State.Open {
		if x.FillsLostNonce {
			continue
		}
		w := t.wantedCallOf(x.RequestID, x.Payload, x.IsMadeElsewhere())
		if x.IsMadeElsewhere() && len(x.Raw) > 0 && !x.IsPlaceholder(x.Hash()) {
			w = t.wantedCallOfBytes(x.RequestID, x.Raw)
		}
		if n := *x.Nonce; x.IsMadeElsewhere() && slices.Contains(e.lost, n) { // its handler, or its owner, may have sent it by other means
			w.lostNonce = &n
		}
		if x.Recorded == nil && x.Receipt == nil {
			wanted = append(wanted, w)
		}
	}
	return wanted
}

// possibleMatches lists, for each nonce that the operator did not name, the requests that may have
// consumed it. A transaction that proves a payout matches none.
func (t *incident) possibleMatches(l *txmanager.ReleaseRequest, e evidence, wanted []wantedCall, named map[string]uint64) map[uint64][]string {
	matches := make(map[uint64][]string)
	for _, n := range e.lost {
		f, read := e.foreign[n]
		if _, said := l.Requests[n]; said || f.Proves != "" {
			continue
		}
		for _, w := range wanted {
			_, isNamed := named[w.id]
			if !isNamed && (!read || w.mayBeRequest(n, f)) {
				matches[n] = append(matches[n], w.id)
			}
		}
	}
	return matches
}

// wantedCall is the call that a request wants.
type wantedCall struct {
	id        string
	digest    [32]byte
	unknown   bool    // its call is not known yet
	lostNonce *uint64 // a nonce that it may have consumed with any call
}

// mayBeRequest reports whether f, which consumed nonce n, may have been the request.
func (w wantedCall) mayBeRequest(n uint64, f txmanager.ForeignTransaction) bool {
	return w.unknown || w.lostNonce != nil && *w.lostNonce == n || w.digest == f.CallDigest
}

func (t *incident) wantedCallOf(id string, payload []byte, unknown bool) wantedCall {
	call, err := t.Chain.ParsePayload(payload)
	if unknown || err != nil {
		return wantedCall{id: id, unknown: true}
	}
	return wantedCall{id: id, digest: call.Digest()}
}

func (t *incident) wantedCallOfBytes(id string, raw []byte) wantedCall {
	_, tx, _, err := t.Chain.ParseSigned(raw)
	if err != nil {
		return wantedCall{id: id, unknown: true}
	}
	return wantedCall{id: id, digest: txmanager.Call{To: tx.To, Value: tx.Value, Data: tx.Data}.Digest()}
}

// checkContradictions refuses a name where the transaction differs from the request's call. If two
// names were swapped, each request would otherwise end with the other's result. For a payer this
// comparison is skipped, since only a proof of payment ends a payout. A name is also refused if
// its transaction proves another payout.
func (e evidence) checkContradictions(pairs map[uint64]string, wanted []wantedCall) error {
	for _, n := range slices.Sorted(maps.Keys(pairs)) {
		f, read := e.foreign[n]
		if f.Proves != "" && f.Proves != pairs[n] {
			return txmanager.NamingError{Nonce: n, RequestID: pairs[n], Why: fmt.Sprintf("transaction %s, which consumed the nonce, proves that payout %q was paid; say %q", f.Tx.Hash, f.Proves, txmanager.NoRequest)}
		}
		i := slices.IndexFunc(wanted, func(w wantedCall) bool { return w.id == pairs[n] })
		if read && !e.payer && i >= 0 && !wanted[i].mayBeRequest(n, f) {
			return txmanager.NamingError{Nonce: n, RequestID: pairs[n], Why: fmt.Sprintf("transaction %s, which consumed the nonce, does something else than the request asks for (to, value and data); say %q where no other request was it", f.Tx.Hash, txmanager.NoRequest)}
		}
	}
	return nil
}

// uniqueMatches are the nonces with exactly one matching request, which matches no other nonce.
func uniqueMatches(matches map[uint64][]string) map[uint64]string {
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

// maxMatchesShown bounds how many requests an error lists for each nonce.
const maxMatchesShown = 3

// unnamedNoncesError is the error for unnamed nonces that match requests.
func unnamedNoncesError(matches map[uint64][]string, e evidence) error {
	var first *txmanager.UnnamedNonceError
	for _, n := range slices.Sorted(maps.Keys(matches)) {
		ids := matches[n]
		shown := strings.Join(ids[:min(len(ids), maxMatchesShown)], ", ")
		if len(ids) > maxMatchesShown {
			shown += fmt.Sprintf(" and %d more", len(ids)-maxMatchesShown)
		}
		why := "the transaction that consumed it is unknown, and may have been " + shown
		if f, read := e.foreign[n]; read {
			why = fmt.Sprintf("transaction %s, which consumed it, has, or may have, the call of %s", f.Tx.Hash, shown)
		}
		one := txmanager.UnnamedNonceError{Nonce: n, Why: why}
		if first == nil {
			first = &one
		} else {
			first.More = append(first.More, one.Error())
		}
	}
	if first == nil {
		return nil
	}
	return *first
}
