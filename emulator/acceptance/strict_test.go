package acceptance

import (
	"net/http"
	"testing"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// besideAnOpenNonce counts nonces from $2 on that were allocated beside an open one.
const besideAnOpenNonce = `
with life as (
  select m.nonce,
         (select min(h.id) from tx_history h where h.tx_id = m.tx_id and h.state <> 'QUEUED' and h.nonce is not null) as bound,
         (select max(h.id) from tx_history h where h.tx_id = m.tx_id and h.state in ('CONFIRMED', 'FAILED')) as ended
    from managed_tx m
   where m.submitter = $1 and m.nonce is not null
)
select count(*)
  from life a
 where a.nonce >= $2 and exists (select from life b where b.nonce < a.nonce and b.ended > a.bound)`

// A submitter's window, registered while nonce.strict.enabled was false, is full when the setting
// becomes true. Transactions in flight end. From then on no nonce is allocated while another is open.
func TestStrictBindsAWindowThatWasRegisteredBefore(t *testing.T) {
	t.Parallel()
	const window, further = 3, 4
	b := setup(t, stack.Options{Processes: 1, Submitters: 1, Window: window, Settings: quick})
	s := b.Submitters()[0]
	b.Chain.StopMining()
	want := b.postAll(t, window+further)
	b.await(t, s, txmanager.Tracking, window)
	before := b.Processes()
	must(b.StartProcess(b.ctx, map[string]string{"FENCEPOST_NONCE_STRICT_ENABLED": "true", "FENCEPOST_NONCE_MAX_IN_FLIGHT": "200"}))(t)
	for _, p := range before {
		b.forget(p)
	}
	b.Chain.StartMining()
	b.ends(t, want)
	b.inOrder(t)
	b.wantCount(t, "nonces bound beside an open one before the setting", window-1, besideAnOpenNonce, s, 1)
	b.wantCount(t, "nonces bound beside an open one under nonce.strict.enabled=true", 0, besideAnOpenNonce, s, window)
	for what, body := range map[string]map[string]any{
		"a window of its own":  {"maxInFlight": window},
		"the default's window": {},
	} {
		body["submitter"], body["callers"] = s, []string{"email:" + stack.CallerAccount}
		b.call(t, stack.OperatorAccount, http.MethodPost, "/admin/v1/submitters", body).want("registration with "+what, http.StatusConflict, `"code":"STRICT_WINDOW"`, `"field":"maxInFlight"`)
	}
}
