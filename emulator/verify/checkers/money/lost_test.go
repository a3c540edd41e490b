package money_test

import (
	"testing"

	"github.com/fencepost/fencepost/emulator/verify/checkers/money"
	"github.com/fencepost/fencepost/emulator/verify/checkers/promise/promisetest"
)

// loses deletes a transfer from Funding as restoring an earlier backup does: its row, its history and
// Funding's entries. The core keeps its entries.
func (b *bench) loses(name string, units string) {
	b.Helper()
	b.forge(`update balances_tb set available = available + $2::numeric where user_id = $1`, ann, units)
	b.forge(`delete from transfer_operations where req_id = $1`, b.ids[name])
	b.forge(`delete from transfer_history where transfer_id = (select transfer_id from transfers_tb where req_id = $1)`, b.ids[name])
	b.forge(`delete from transfers_tb where req_id = $1`, b.ids[name])
}

// The core's entries for a lost transfer are no violation if the episode declares the loss.
// Undeclared, they are a violation. A declaration excuses no other entry.
func TestALostTransferExcusesTheCoresLinesAlone(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spoil func(*bench)
		want  []string
	}{
		"declared":         {func(*bench) {}, nil},
		"not declared":     {func(b *bench) { b.Lost = nil }, []string{"conserved", "credit-implies-debit", "its-transfer"}},
		"another declared": {func(b *bench) { b.Lost = map[string]bool{b.ids["failed"]: true} }, []string{"conserved", "credit-implies-debit", "its-transfer"}},
		"a unit is stolen": {func(b *bench) {
			b.forge(`update balances_tb set available = available - 0.01 where user_id = $1`, ann)
		}, []string{"books", "conserved"}},
		"declared, and its row is there": {func(b *bench) {
			b.Lost[b.ids["failed"]] = true
			b.applied(b.trading.Deposit(b.Context(), b.of("failed")))
		}, []string{"conserved", "credit-implies-debit", "ends-as-journaled"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.loses("there", "0.40")
			b.Lost = map[string]bool{b.ids["there"]: true}
			c.spoil(b)
			promisetest.WantReported(t, b.check(), c.want, "")
			evidence, err := money.ReadEvidence(t.Context(), b.Run)
			if got := evidence.LostHalves()[b.ids["there"]].Units; err != nil || b.Lost[b.ids["there"]] && got != 40 {
				t.Errorf("the lost half: got %d units, %v; want the 40 that the core was given", got, err)
			}
		})
	}
}
