package transfers

import (
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"

	"github.com/fencepost/fencepost/shared/transfer"
)

// sides are the two accounts from which money can be transferred.
var sides = []transfer.AccountType{funding, spot}

// BAL-001: more than is available is refused, and nothing changes.
func TestBAL001MoreThanAvailable(t *testing.T) {
	t.Parallel()
	u := setup(t).newUser(t, 500, 500)
	for _, from := range sides {
		for _, amount := range []string{"0.000501", "1", "999999999"} {
			a := u.post(from, other(from), amount)
			u.Want(amount, a, http.StatusUnprocessableEntity, "FAILED", "INSUFFICIENT_BALANCE")
			u.wantStates(amount, a.ReqID, refused...)
		}
	}
	u.wantUnits("after that", 500, 500)

	poor := setup(t).newUser(t, 0, 0)
	for _, from := range sides {
		poor.Want("no account", poor.post(from, other(from), "1"), http.StatusUnprocessableEntity, "FAILED", "SOURCE_ACCOUNT_NOT_FOUND")
	}
	poor.wantUnits("no account", -1, -1)
}

// BAL-002: exactly all there is.
func TestBAL002ExactlyAll(t *testing.T) {
	t.Parallel()
	u := setup(t).newUser(t, 500, 3)
	u.committed(funding, spot, "0.0005")
	u.wantUnits("all of Funding", 0, 503)
	u.committed(spot, funding, "0.000503")
	u.wantUnits("all of Trading", 503, 0)
	u.Want("one more", u.post(spot, funding, "0.000001"), http.StatusUnprocessableEntity, "FAILED", "INSUFFICIENT_BALANCE")
}

// BAL-003: two concurrent transfers that together exceed the balance: one succeeds, the other gets
// INSUFFICIENT_BALANCE.
func TestBAL003TwoAtOnce(t *testing.T) {
	t.Parallel()
	for _, from := range sides {
		for range 5 {
			u := setup(t).newUser(t, 100, 100)
			got := u.together(2, body(from, other(from), "0.00006"))
			same(t, fmt.Sprintf("two at once from %s", from), endings(got), []string{"COMMITTED", "FAILED INSUFFICIENT_BALANCE"})
			u.wantMoved(fmt.Sprint("two at once from ", from), 200, 40)
		}
	}
}

// together posts the same body n times concurrently.
func (u *user) together(n int, body any) []answer {
	u.T.Helper()
	got, errs := make([]answer, n), make([]error, n)
	var posts sync.WaitGroup
	for i := range n {
		posts.Go(func() { got[i], errs[i] = u.try(body) })
	}
	posts.Wait()
	for _, err := range errs {
		check(u.T, err)
	}
	return got
}

// endings returns the answers' states and codes, sorted.
func endings(all []answer) (list []string) {
	for _, a := range all {
		ends := a.State
		if a.Code != "" {
			ends += " " + a.Code
		}
		list = append(list, ends)
	}
	slices.Sort(list)
	return list
}

// BAL-004: a frozen account accepts deposits and refuses withdrawals.
func TestBAL004Frozen(t *testing.T) {
	t.Parallel()
	for _, from := range sides {
		u := setup(t).newUser(t, 500, 500)
		u.status(from, "FROZEN")
		a := u.post(from, other(from), "0.0001")
		u.Want("from a frozen account", a, http.StatusUnprocessableEntity, "FAILED", "ACCOUNT_FROZEN")
		u.wantUnits("from a frozen account", 500, 500)
		u.Want("to a frozen account", u.post(other(from), from, "0.0001"), http.StatusOK, "COMMITTED", "")
	}
}

// BAL-005: a disabled account pays nothing and receives only its refunds.
func TestBAL005Disabled(t *testing.T) {
	t.Parallel()
	for _, from := range sides {
		u := setup(t).newUser(t, 500, 500)
		u.status(from, "DISABLED")
		a := u.post(from, other(from), "0.0001")
		u.Want("from a disabled account", a, http.StatusUnprocessableEntity, "FAILED", "ACCOUNT_DISABLED")
		back := u.post(other(from), from, "0.0001")
		u.Want("to a disabled account", back, http.StatusUnprocessableEntity, "ROLLED_BACK", "ACCOUNT_DISABLED")
		u.wantUnits("disabled", 500, 500)
	}
}
