package demo

import (
	"math/big"
	"strings"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/emulator/verify/chainscan"
	"github.com/fencepost/fencepost/shared/chain/devchain"
	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/txmanager"
)

func devSubmitters(n int) []txmanager.Submitter {
	var names []txmanager.Submitter
	for _, a := range devchain.DevAccounts(n) {
		names = append(names, eip155.NewSubmitter(devchain.DefaultChainID, a.Address))
	}
	return names
}

// The file that comes with the demo is valid: 200 different intents of 10 submitters.
func TestDemosOwnIntentsAreValid(t *testing.T) {
	t.Parallel()
	intents := check.Value(LoadIntents("", devSubmitters(10)))(t)
	submitters, deployments, calls := map[txmanager.Submitter]int{}, 0, 0
	for _, in := range intents {
		submitters[in.account]++
		if in.call.To == nil {
			deployments++
		} else if len(in.call.Data) > 0 {
			calls++
		}
	}
	if len(intents) != 200 || len(submitters) != 10 || deployments == 0 || calls == 0 {
		t.Errorf("intents: got %d of %d submitters, %d deployments, %d calls; want 200 of 10 with some of each",
			len(intents), len(submitters), deployments, calls)
	}
}

// Every invalid line is named with its number and the reason.
func TestInvalidLinesAreNamed(t *testing.T) {
	t.Parallel()
	known := devSubmitters(1)
	ok := `{"submitter": "` + string(known[0]) + `", "requestId": "a", "payload": {"to": "` + known[0].Address().String() + `"}}`
	file := strings.Join([]string{
		"# a comment", ok, "", ok, "{", `{"more": 1}`, strings.Replace(ok, `"a"`, `""`, 1),
		strings.Replace(ok, `"a"`, `"b"`, 1) + " {}",
		`{"submitter": "0x00000000000000000000000000000000deadbeef", "requestId": "c", "payload": {}}`,
		`{"submitter": "` + string(known[0]) + `", "requestId": "d", "payload": {"to": "0x1"}}`,
	}, "\n")
	_, err := readIntents([]byte(file), known)
	if err == nil {
		t.Fatal("bad lines: got no error")
	}
	for _, want := range []string{
		"line 4: requestId", "line 5: ", "line 6: ", "line 7: requestId", "line 8: there is more", "line 9: submitter", "line 10: payload.to",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("problems: got\n%v\nwant one with %q", err, want)
		}
	}
	if _, err := readIntents([]byte("# nothing\n"), known); err == nil {
		t.Error("a file without intents: got no error")
	}
}

// The comparison finds each kind of error on a chain.
func TestComparisonFindsEachError(t *testing.T) {
	t.Parallel()
	s := devSubmitters(1)[0]
	to := eip155.Address([20]byte{1})
	call := func(wei int64) txmanager.Call { return txmanager.Call{To: &to, Value: big.NewInt(wei)} }
	tx := func(n uint64, wei int64) chainscan.Tx {
		target := common.Address(eip155.MustBytes(to))
		return chainscan.Tx{
			Transaction: types.NewTx(&types.LegacyTx{Nonce: n, To: &target, Value: big.NewInt(wei)}),
			Receipt:     &types.Receipt{Status: types.ReceiptStatusSuccessful},
		}
	}
	asked := []txmanager.Call{call(1), call(2)}
	reverted := tx(1, 2)
	reverted.Receipt = &types.Receipt{Status: types.ReceiptStatusFailed}
	for name, c := range map[string]struct {
		chain []chainscan.Tx
		want  account
	}{
		"all is well":          {[]chainscan.Tx{tx(0, 1), tx(1, 2)}, account{s, 2, 2, 0, 1, 0, 0, 0, 0}},
		"one is missing":       {[]chainscan.Tx{tx(0, 1)}, account{s, 2, 1, 0, 0, 0, 0, 1, 0}},
		"one came twice":       {[]chainscan.Tx{tx(0, 1), tx(1, 2), tx(2, 2)}, account{s, 2, 3, 0, 2, 0, 1, 0, 0}},
		"a nonce was skipped":  {[]chainscan.Tx{tx(0, 1), tx(2, 2)}, account{s, 2, 2, 0, 2, 1, 0, 0, 0}},
		"the first was not 0":  {[]chainscan.Tx{tx(1, 1), tx(2, 2)}, account{s, 2, 2, 1, 2, 1, 0, 0, 0}},
		"one was reverted":     {[]chainscan.Tx{tx(0, 1), reverted}, account{s, 2, 2, 0, 1, 0, 0, 0, 1}},
		"another value":        {[]chainscan.Tx{tx(0, 1), tx(1, 3)}, account{s, 2, 2, 0, 1, 0, 1, 1, 0}},
		"nothing was sent yet": {nil, account{s, 2, 0, 0, 0, 0, 0, 2, 0}},
	} {
		check.Equal(t, name, compareOne(s, asked, c.chain), c.want)
		if ok := compareOne(s, asked, c.chain).ok(); ok != (name == "all is well") {
			t.Errorf("%s: got ok %v", name, ok)
		}
	}
}

// How often a transaction is polled depends on the machine; one round trip more in any function is a change.
func TestTripsOfATransactionAreWithoutFurtherPolls(t *testing.T) {
	t.Parallel()
	const n = 10
	made := stack.Cost{Invocations: 2 * n, SQLRoundTrips: 3 * n}
	for name, c := range map[string]struct {
		phase phase
		want  float64
	}{
		"no poll too many":     {phase{confirmed: n, made: made, watched: stack.Cost{Invocations: 2 * n, SQLRoundTrips: 4 * n}}, 7},
		"polls of late blocks": {phase{confirmed: n, made: made, watched: stack.Cost{Invocations: 5 * n, SQLRoundTrips: 10 * n}}, 7},
		"final at once":        {phase{confirmed: n, made: made, watched: stack.Cost{Invocations: n, SQLRoundTrips: 2 * n}}, 7},
		"a dearer advance":     {phase{confirmed: n, made: stack.Cost{Invocations: 2 * n, SQLRoundTrips: 4 * n}, watched: stack.Cost{Invocations: 2 * n, SQLRoundTrips: 4 * n}}, 8},
		"a dearer receipt":     {phase{confirmed: n, made: made, watched: stack.Cost{Invocations: 2 * n, SQLRoundTrips: 5 * n}}, 8},
	} {
		check.Equal(t, name, c.phase.tripsPerTx(), c.want)
	}
}
