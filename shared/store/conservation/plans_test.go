package conservation_test

import (
	"testing"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/store/conservation"
	"github.com/fencepost/fencepost/shared/store/storetest"
)

// Beside 50,000 findings that no longer stand, the last check is read from few blocks.
func TestTheLastCheckReadsWhatStands(t *testing.T) {
	t.Parallel()
	db := storetest.NewClone(t)
	db.Run(t, `insert into conservation_finding (generation, kind, user_id, asset_id, expected, got, evidence) select 1, 'BALANCE_DIFFERS', n, 1, '1', '2', '{}' from generate_series(1, 50000) n`)
	db.Run(t, `insert into conservation_standing (key, finding_id) select 'k' || finding_id, finding_id from conservation_finding where finding_id % 500 = 0`)
	check.OK(t)(db.DB.Exec(t.Context(), `vacuum analyze conservation_finding, conservation_standing`))
	for name, args := range map[string][]any{"checkedAt": nil, "standing": {101}} {
		if got := storetest.Blocks(t, db.DB, conservation.PageStatements[name], args...); got > 500 {
			t.Errorf("%s: read %d blocks, want at most 500", name, got)
		}
	}
}
