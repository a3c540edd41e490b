package store

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/fencepost/fencepost/shared/txmanager"
)

// MACMaker makes the MACs of intents.
type MACMaker interface {
	Make(ctx context.Context, t txmanager.IntentTerms) (txmanager.MAC, error)
}

// ErrNoMAC reports that the service which computes MACs returned none. Nothing was stored.
var ErrNoMAC = errors.New("the MAC of an intent could not be made")

// intentMAC has the MACs that a new row may be stored with. Only the insert knows which of the
// caller's names the submitter lists.
type intentMAC struct {
	key  string // ""; no MAC is made
	sums []byte // 32 bytes with the name of who posts, and 32 with each of [Intent.Names]
}

// storedPlace is the position among i's names of the name that [storedCaller] stores; 0 is the
// caller's own name.
const storedPlace = `coalesce((select n.place from unnest(i.names::text[]) with ordinality as n (name, place)
         where n.name = any(s.callers) and n.name <> '*' order by n.place limit 1), 0)::integer`

// storedMAC is the MAC of i under the name that is stored, and its key.
const storedMAC = `substring(i.macs from 1 + 32 * ` + storedPlace + ` for 32), nullif(i.mac_key, '')`

// mark makes the MACs of an intent, one for each name that may be stored.
func (s *Store) mark(ctx context.Context, in *Intent) error {
	if s.opts.MACs == nil || in.Refused != nil {
		return nil
	}
	made := map[string][]byte{}
	in.mac = intentMAC{}
	for _, caller := range slices.Concat([]string{in.Caller}, namesOf(in.Caller, in.Names)) {
		if made[caller] == nil {
			m, err := s.opts.MACs.Make(ctx, txmanager.IntentTerms{
				TxID: in.TxID, Submitter: in.Submitter, RequestID: in.RequestID, Caller: caller, Handler: in.Handler, Fingerprint: in.Fingerprint[:],
			})
			if err != nil {
				return fmt.Errorf("%w: %w", ErrNoMAC, err)
			}
			in.mac.key, made[caller] = m.Key, m.Sum
		}
		in.mac.sums = append(in.mac.sums, made[caller]...)
	}
	return nil
}

// hasKey is true of a queued q whose key is among those given, or that was not checked since
// it was stored. If the parameter is null, it is true of every q.
func hasKey(parameter string) string {
	return `(` + parameter + `::text[] is null or q.mac_key is null or q.mac_key = any(` + parameter + `) or q.next_check_at is null)`
}
