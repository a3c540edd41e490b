package functions_test

import (
	"errors"
	"fmt"
	"maps"
	"math/big"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/functions"
	"github.com/fencepost/fencepost/shared/chain"
	"github.com/fencepost/fencepost/shared/chain/memchain"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/signer"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/storetest"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// familyFunctions are the functions of the database that have a line for each family.
var familyFunctions = slices.Sorted(maps.Keys(memchain.SQL))

// withNamespace adds the second family to the database by the recipe of CONTRIBUTING.md: the function that
// reads its signed bytes, and one line in each function of families.
func (h deployment) withNamespace() {
	h.t.Helper()
	h.exec(memchain.SignedCall)
	for _, name := range familyFunctions {
		text := h.one(`select pg_get_functiondef($1::regproc)`, name)
		h.exec(strings.Replace(text, "when 'eip155'", memchain.SQL[name]+"\n    when 'eip155'", 1))
	}
}

// exec is [deployment.run] of a statement that may change no row.
func (h deployment) exec(statement string) {
	h.t.Helper()
	check.OK(h.t)(h.DB.Exec(h.t.Context(), statement))
}

// ofFamily is a process that serves a chain of the second family as its default chain.
type ofFamily struct {
	ported
	chain           *memchain.Chain
	payee           txmanager.Submitter
	tx              string // the last posted transaction
	keys            memchain.Keys
	registerRefused error // before the database knew the namespace
}

func serveFamily(t *testing.T) *ofFamily {
	t.Helper()
	const id = 7
	keys := memchain.Keys{}
	h := &ofFamily{keys: keys, payee: memchain.Keys{}.Add(id, 2)}
	h.deployment = bare(t)
	h.submitter = keys.Add(id, 1)
	h.chain = memchain.New(id, h.submitter)
	registration := store.Registration{Submitter: h.submitter, Signer: "vault", MaxInFlight: 4, Callers: []string{"*"}, CreatedBy: "test"}
	_, h.registerRefused = h.Store.Register(t.Context(), registration)
	h.withNamespace()
	h.Bundle = reopened(t, h.Bundle)
	h.App = h.openedWith(functions.Extensions{
		Families: []chain.Family{memchain.Family{Chain: h.chain}},
		Signers:  []signer.Kind{{Name: "vault", Signer: func(string) (signer.Service, error) { return keys, nil }}},
	}, "FENCEPOST_NONCE_STRICT_ENABLED=false", "FENCEPOST_RPC_URLS=", "FENCEPOST_CHAIN_ID=7",
		`FENCEPOST_CHAINS=[{"id": 7, "namespace": "mem", "urls": ["http://127.0.0.1:1/a", "http://127.0.0.1:1/b"], "feeKind": "legacy", "finality": "confirmations", "confirmations": 2}]`)
	h.url = h.listen(h.App, functions.All)
	check.OK(t)(h.Store.Register(t.Context(), registration))
	return h
}

// reopened returns the database with new connections, since a connection keeps the check of a domain.
func reopened(t *testing.T, db storetest.Bundle) storetest.Bundle {
	t.Helper()
	s := check.Value(store.Open(t.Context(), storetest.Options(db.URL, storetest.Rules)))(t)
	t.Cleanup(s.Close)
	db.Store = s
	return db
}

// pay posts a payment to the payee, by the account's address alone, in another spelling.
func (h *ofFamily) pay(requestID, value string) {
	h.t.Helper()
	a := h.as("shop", "POST", "/api/v1/tx", members{
		"submitter": strings.ToUpper(h.submitter.Address().String()), "requestId": requestID,
		"payload": members{"to": strings.ToUpper(h.payee.Address().String()), "value": value},
	})
	a.wants(h.t, 202, "post")
	h.tx = fmt.Sprint(a.body["txId"])
}

// reaches serves the submitter until the transaction is in the state.
func (h *ofFamily) reaches(state string) {
	h.t.Helper()
	await(h.t, "the state "+state, func() bool {
		h.exec(`update managed_tx set next_check_at = clock_timestamp() where next_check_at is not null`)
		for _, kind := range []txmanager.Kind{txmanager.KindAdvance, txmanager.KindReceipt, txmanager.KindConfirm} {
			check.OK(h.t)(h.Serve(h.t.Context(), h.submitter, kind))
		}
		return h.one(`select state || coalesce(' ' || sub_state, '') from managed_tx where tx_id = $1`, h.tx) == state
	})
}

// A transaction on a chain of the second family goes from the request to its finality. Its fee is one number.
// An operator replaces it, and a reorg removes it once. A placeholder cancels a second one.
func TestSecondFamilyGoesFromRequestToFinality(t *testing.T) {
	t.Parallel()
	h := serveFamily(t)
	if h.registerRefused == nil || !strings.Contains(h.registerRefused.Error(), "submitter_id") {
		t.Errorf("registered before the database had the namespace: got %v, want it refused by the domain", h.registerRefused)
	}
	h.pay("wage", "5")
	h.reaches("TRACKING PENDING")
	h.as("ann", "POST", "/admin/v1/tx/"+h.tx+"/decide", members{"action": "replace", "reason": "a test"}).wants(t, 202, "replace")
	await(t, "the replacement", func() bool {
		h.advance()
		return h.one(`select count(*) from tx_version`) == "2"
	})
	check.Equal(t, "the replacement's fee, an eighth more", h.one(`select last_gas_params ->> 'gasPrice' from managed_tx`), "1125000000")
	check.OK(t)(h.chain.Mine(1))
	h.reaches("TRACKING INCLUDED")
	check.OK(t)(errors.Join(h.chain.Reorg(nil), h.chain.DropPool(), h.chain.Mine(1)))
	h.reaches("TRACKING PENDING")
	check.OK(t)(h.chain.Mine(3))
	h.reaches("CONFIRMED")
	check.Equal(t, "query", h.as("shop", "GET", "/api/v1/tx/"+h.tx, nil).is("state", "submitter"), "200 CONFIRMED "+string(h.submitter))

	h.pay("bonus", "6")
	h.reaches("TRACKING PENDING")
	if a := h.as("shop", "POST", "/api/v1/tx/"+h.tx+"/cancel", map[string]any{}); a.status >= 300 {
		t.Fatalf("cancel: got %d %v", a.status, a.body)
	}
	await(t, "the placeholder", func() bool {
		h.advance()
		return h.one(`select count(*) from tx_version where kind = 'PLACEHOLDER'`) == "1"
	})
	check.OK(t)(h.chain.Mine(3))
	h.reaches("FAILED PLACEHOLDER")

	balances, err := h.chain.Node(chain.NodeOptions{ChainID: 7}).Balances(t.Context(), []txmanager.Submitter{h.payee})
	if err != nil || balances[0].Cmp(big.NewInt(5)) != 0 {
		t.Errorf("the payee has %s, %v; want 5: paid once, and the second payment cancelled", balances, err)
	}
}

// The database refuses what the second family's line refuses: another spelling of an account, bytes of
// another nonce or chain, and a placeholder that does something.
func TestSecondFamilyKeepsTheChecks(t *testing.T) {
	t.Parallel()
	h := serveFamily(t)
	other := memchain.Keys{}.Add(7, 3)
	for name, id := range map[string]string{
		"upper case": strings.ToUpper(string(other)), "an upper-case address": "mem:7:" + strings.ToUpper(other.Address().String()),
		"a leading zero": "mem:07:" + other.Address().String(), "no chain": "mem::" + other.Address().String(),
		"too short": string(other[:len(other)-1]), "a line break": string(other) + "\n", "another family's address": "mem:7:" + strings.TrimPrefix(payer, "eip155:1337:"),
		"another family's namespace": "eip155:7:" + other.Address().String(), "no family's": "cosmos:7:" + other.Address().String(),
	} {
		if _, err := h.DB.Exec(t.Context(), `select $1::text::submitter_id`, id); err == nil {
			t.Errorf("%s: got %q accepted, want it refused", name, id)
		}
	}
	if _, err := h.DB.Exec(t.Context(), `select $1::text::submitter_id`, string(other)); err != nil {
		t.Errorf("the canonical form: got %v", err)
	}
	tx := txmanager.Unsigned{ChainID: 7, Nonce: 3, To: new(other.Address()), Value: big.NewInt(9), Data: []byte("note"), Gas: 1,
		Legacy: true, FeeCapWei: big.NewInt(1), TipCapWei: big.NewInt(1)}
	for name, c := range map[string]struct {
		change func(*txmanager.Unsigned)
		want   string
	}{
		"as signed":     {func(*txmanager.Unsigned) {}, "7 3 false"},
		"a placeholder": {func(tx *txmanager.Unsigned) { tx.To, tx.Value, tx.Data = new(h.submitter.Address()), new(big.Int), nil }, "7 3 true"},
		"another chain": {func(tx *txmanager.Unsigned) { tx.ChainID = 8 }, "8 3 false"},
	} {
		one := tx
		c.change(&one)
		signed := check.Value(h.keys.Sign(t.Context(), h.submitter, one))(t)
		check.Equal(t, name, h.one(`select concat_ws(' ', chain, nonce, (substr($1, call_at, call_size) = placeholder_call('mem', $2))::text)
  from read_signed('mem', $1) as s (chain bigint, nonce bigint, call_at integer, call_size integer)`, signed.Raw, h.submitter.Address()), c.want)
	}
}

var namespaceLine = regexp.MustCompile(`(?m)^\s*when '([^']+)' then`)

// The families of the functions and those of the database are the same. A family that the database does not
// know could register no account.
func TestFamiliesAreThoseOfTheDatabase(t *testing.T) {
	t.Parallel()
	h := deployment{Bundle: storetest.New(t), t: t}
	for _, name := range familyFunctions {
		var got []string
		for _, m := range namespaceLine.FindAllStringSubmatch(h.one(`select prosrc from pg_proc where oid = $1::regproc`, name), -1) {
			got = append(got, m[1])
		}
		check.Same(t, name+" in migrations/0001_database.sql, by the families of functions/chains.go", got, functions.Namespaces())
	}
}

// A chain of a namespace that no family has, two families of one namespace, and a nil family keep a process
// from starting.
func TestUnknownNamespaceIsRefused(t *testing.T) {
	t.Parallel()
	h := bare(t)
	got := h.startError(functions.Extensions{}, `FENCEPOST_CHAINS=[{"id": 7, "namespace": "mem", "urls": ["http://127.0.0.1:1/a"]}]`)
	says(t, "a namespace", got, `chain 7: this deployment serves no chains of namespace "mem": it serves eip155`)
	for want, families := range map[string][]chain.Family{
		"two families of chains have the same namespace":  {memchain.Family{}, memchain.Family{}},
		"Extensions.Families has a nil family: remove it": {memchain.Family{}, nil},
	} {
		says(t, fmt.Sprint(families), h.startError(functions.Extensions{Families: families}), want)
	}
}
