package attacks

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/url"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/emulator/fake/kms"
	"github.com/fencepost/fencepost/emulator/stack"
)

const (
	robber    = "0x00000000000000000000000000000000000e71b2"
	robbery   = `{"to":"` + robber + `","value":"7000000000000000000"}`
	addForged = `
with row as (
  insert into managed_tx (tx_id, submitter, request_id, caller, fingerprint, mac, mac_key)
  values (gen_random_uuid(), $1, $2, $3, $4, $5, $6)
  returning tx_id
), document as (
  insert into tx_document (tx_id, name, body) select tx_id, 'payload', $7::text::json from row
)
select tx_id::text from row`
)

// brokenInto is a session of a role that has the rights of a function which accepts no
// intents and signs nothing: it reads, inserts and updates.
func (h deployment) brokenInto(t *testing.T) *pgx.Conn {
	t.Helper()
	role, password := "query_"+rand.Text()[:8], rand.Text()
	for _, statement := range []string{
		fmt.Sprintf(`create role %q login password '%s'`, role, password),
		fmt.Sprintf(`grant select, insert, update on managed_tx, submitter_nonce_cursor to %q`, role),
		fmt.Sprintf(`grant select, insert on tx_document, tx_history to %q`, role),
		fmt.Sprintf(`grant select, insert, update, delete on event_outbox, event, event_counter to %q`, role),
		fmt.Sprintf(`grant select on all tables in schema public to %q`, role),
		fmt.Sprintf(`grant usage on all sequences in schema public to %q`, role),
	} {
		must(h.DB.Exec(h.ctx, statement))(t)
	}
	u := must(url.Parse(h.Database))(t)
	u.User = url.UserPassword(role, password)
	conn := must(pgx.Connect(h.ctx, u.String()))(t)
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(h.ctx)) })
	return conn
}

// An attacker in a function that accepts no intents writes rows, and none is signed. The database
// refuses a row without a MAC. A row with a wrong MAC, or another intent's, ends without a nonce. A
// row with an unknown key waits. The intents behind it continue.
func TestRowsOfABrokenFunctionAreNotSigned(t *testing.T) {
	t.Parallel()
	h := setup(t, stack.Options{Processes: 2})
	s := h.Submitters()[0]
	shop := h.token(t, stack.CallerAccount)
	honest := h.post(t, shop, s, "honest")
	h.await(t, honest.TxID, "CONFIRMED")
	var key, caller string
	var sum []byte
	check(t, h.DB.QueryRow(h.ctx, `select mac_key, caller, mac from managed_tx where tx_id = $1`, honest.TxID).Scan(&key, &caller, &sum))
	print, thief := sha256.Sum256([]byte(robbery)), h.brokenInto(t)
	add := func(request string, mac []byte, macKey any) (id string, err error) {
		err = thief.QueryRow(h.ctx, addForged, s, request, caller, print[:], mac, macKey, robbery).Scan(&id)
		return id, err
	}
	if id, err := add("without a MAC", nil, nil); err == nil {
		t.Errorf("a row without a MAC: got %s stored, want it refused", id)
	}
	if tag, err := thief.Exec(h.ctx, `update managed_tx set mac = sha256('x') where tx_id = $1`, honest.TxID); err == nil {
		t.Errorf("another MAC for a row that is there: got %v, want it refused", tag)
	}
	var rejected []string
	unknown := must(add("a key that never was", sum, "key-0000000000000000"))(t)
	for request, mac := range map[string][]byte{"an invented MAC": print[:], "another intent's MAC": sum} {
		id := must(add(request, mac, key))(t)
		rejected = append(rejected, id)
	}
	h.await(t, h.post(t, shop, s, "behind").TxID, "CONFIRMED")
	for _, id := range rejected {
		h.await(t, id, "FAILED")
	}
	h.wantCount(t, "rejected without a nonce", len(rejected), `select count(*) from managed_tx where tx_id = any($1) and sub_state = 'REJECTED' and nonce is null and last_error like '%MAC is missing or wrong%'`, rejected)
	h.wantCount(t, "a row whose key never was", 1, `select count(*) from managed_tx where tx_id = $1 and state = 'QUEUED' and nonce is null and last_error like '%does not have the key%'`, unknown)
	h.robbedOfNothing(t)
}

// A payload that an attacker changed under a valid MAC is not signed.
func TestAChangedPayloadIsNotSigned(t *testing.T) {
	t.Parallel()
	h := setup(t, stack.Options{Processes: 2})
	h.Chain.StopMining()
	s := h.Submitters()[0]
	shop := h.token(t, stack.CallerAccount)
	bound := h.post(t, shop, s, "bound before")
	h.await(t, bound.TxID, "TRACKING")
	changed := h.post(t, shop, s, "changed")
	behind := h.post(t, shop, s, "behind")
	must(h.DB.Exec(h.ctx, `
alter table tx_document disable trigger guard_documents;
update tx_document set body = '`+robbery+`' where tx_id = '`+changed.TxID+`' and name = 'payload';
alter table tx_document enable trigger guard_documents`))(t)
	h.Chain.StartMining()
	h.await(t, bound.TxID, "CONFIRMED")
	h.await(t, behind.TxID, "CONFIRMED")
	h.wantCount(t, "the changed one", 1, `select count(*) from managed_tx where tx_id = $1 and sub_state = 'REJECTED' and nonce is null and last_error like '%differs from the accepted one%'`, changed.TxID)
	h.robbedOfNothing(t)
}

// A row that was given a nonce by force costs a placeholder, and no more.
func TestANonceTakenByForceIsAPlaceholder(t *testing.T) {
	t.Parallel()
	h := setup(t, stack.Options{Processes: 2})
	s := h.Submitters()[0]
	shop := h.token(t, stack.CallerAccount)
	honest := h.post(t, shop, s, "honest")
	h.await(t, honest.TxID, "CONFIRMED")
	var id string
	print := sha256.Sum256([]byte(robbery))
	check(t, h.brokenInto(t).QueryRow(h.ctx, `
with row as (
  insert into managed_tx (tx_id, submitter, request_id, caller, fingerprint, mac, mac_key, state, nonce, prev_nonce, last_gas_params)
  select gen_random_uuid(), submitter, 'by force', caller, $2, mac, mac_key, 'IN_FLIGHT', nonce + 1, nonce,
         '{"gas": 21000, "maxFeePerGas": "2000000000", "maxPriorityFeePerGas": "1000000000", "value": "7000000000000000000"}'
    from managed_tx where tx_id = $1
  returning tx_id
), document as (
  insert into tx_document (tx_id, name, body) select tx_id, 'payload', $3::text::json from row
), moved as (
  update submitter_nonce_cursor set next_nonce = next_nonce + 1 where submitter = $4
)
select tx_id::text from row`, honest.TxID, print[:], robbery, s).Scan(&id))
	behind := h.post(t, shop, s, "behind")
	h.await(t, id, "FAILED")
	h.await(t, behind.TxID, "CONFIRMED")
	h.wantCount(t, "the forced one", 1, `select count(*) from managed_tx m join tx_decision d using (tx_id) where tx_id = $1 and m.sub_state = 'PLACEHOLDER' and d.by = 'intent MAC'`, id)
	h.robbedOfNothing(t)
}

// With the key in Cloud KMS, a create makes one more call. If KMS does not answer, nothing is stored,
// and queued intents wait and are not rejected.
func TestMACsByCloudKMS(t *testing.T) {
	t.Parallel()
	h := setup(t, stack.Options{Processes: 1, Signer: stack.SignerKMS, Settings: map[string]string{
		"FENCEPOST_INTENTS_MAC_KEYS": "gcpkms:" + kms.Version("intents"),
	}})
	h.Chain.StopMining()
	s := h.Submitters()[0]
	shop := h.token(t, stack.CallerAccount)
	first := h.post(t, shop, s, "first")
	h.await(t, first.TxID, "TRACKING")
	queued := h.post(t, shop, s, "queued")
	h.KMS.SetFault(kms.Unavailable)
	h.post(t, shop, s, "without an answer").wantStatus(t, "create without an answer of KMS", http.StatusServiceUnavailable)
	h.Chain.StartMining()
	h.await(t, first.TxID, "CONFIRMED")
	h.until(t, "the queued one does not wait for KMS with the reason", func() bool {
		return h.count(t, `select count(*) from managed_tx where tx_id = $1 and state = 'QUEUED' and last_error like '%cannot be checked now%'`, queued.TxID) == 1
	})
	h.KMS.SetFault(kms.None)
	h.await(t, queued.TxID, "CONFIRMED")
	h.wantCount(t, "intents with a MAC by KMS", 2, `select count(*) from managed_tx where submitter = $1 and mac_key like 'kms-%'`, s)
}

func (h deployment) robbedOfNothing(t *testing.T) {
	t.Helper()
	equal(t, "the robber's wei", must(h.Node.BalanceAt(h.ctx, common.HexToAddress(robber), nil))(t).String(), "0")
}
