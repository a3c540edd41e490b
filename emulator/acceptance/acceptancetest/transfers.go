package acceptancetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/emulator/stack/processes"
	"github.com/fencepost/fencepost/emulator/stack/steps"
	"github.com/fencepost/fencepost/emulator/verify/checkers/money"
	"github.com/fencepost/fencepost/shared/crash"
	"github.com/fencepost/fencepost/shared/transfer"
)

// Shared is the deployment of all tests of a package that do not disturb other tests' users. The first
// test that needs it starts it.
type Shared struct {
	Options func() stack.Options
	once    sync.Once
	d       *Deployment
	err     error
}

// Get returns the deployment.
func (s *Shared) Get(t testing.TB) *Deployment {
	t.Helper()
	s.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), Within)
		defer cancel()
		s.d, s.err = Start(ctx, s.Options())
	})
	return Must(s.d, s.err)(t)
}

// End checks the deployment if all tests have passed, and closes it.
func (s *Shared) End(passed bool) (err error) {
	if s.d == nil {
		return s.err
	}
	if passed {
		err = s.d.Verify(true)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, s.d.Log.End())
	}
	return errors.Join(err, s.d.Close())
}

// Verify runs the checkers on everything that happened in the deployment, and queries the deployment
// itself. If settled, everything must have ended.
func (d *Deployment) Verify(settled bool) (err error) {
	defer steps.Return(&err)
	ctx, cancel := context.WithTimeout(context.Background(), Within)
	defer cancel()
	if found := steps.Value(money.Check(ctx, money.Run{Database: d.Database, Core: d.Core.Ledger(), Settled: settled})); len(found) > 0 {
		return errors.New(money.Report(found))
	}
	status, answer, err := d.Call(ctx, stack.OperatorAccount, http.MethodPost, "/admin/v1/conservation/check", map[string]any{"full": true})
	if err != nil || status != http.StatusOK {
		return fmt.Errorf("the deployment's own check: got %d %s, %w; want 200", status, answer, err)
	}
	var findings, halts, checks int
	err = d.DB.QueryRow(ctx, `
select (select count(*) from conservation_finding), (select count(*) from transfer_halt), (select max(version) from conservation_checkpoint)`,
	).Scan(&findings, &halts, &checks)
	if err != nil || findings > 0 || halts > 0 || checks == 0 {
		return fmt.Errorf("the deployment's own checks: got %d findings and %d halts by %d steps, %w; want none by some", findings, halts, checks, err)
	}
	return nil
}

// Armed starts a process that does the action when it reaches the point, and gets no routed requests.
func (d *Deployment) Armed(t testing.TB, point, action string, settings map[string]string) (p *processes.Process, hit func() bool) {
	t.Helper()
	folder := t.TempDir()
	Check(t, crash.Arm(folder, point, 1, action))
	p = d.Aside(t, Settings(map[string]string{crash.Variable: folder}, settings))
	return p, func() bool { return crash.Hit(folder, point) }
}

// Aside starts a process that gets no routed requests.
func (d *Deployment) Aside(t testing.TB, settings map[string]string) *processes.Process {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Within)
	defer cancel()
	p := Must(d.StartAside(ctx, settings))(t)
	t.Cleanup(func() { _ = p.Kill() })
	return p
}

// Died waits until the process has exited at the point.
func Died(t testing.TB, p *processes.Process, hit func() bool, point string) {
	t.Helper()
	select {
	case <-p.Done():
	case <-time.After(Within):
		t.Fatalf("no process reached %s", point)
	}
	if !hit() {
		t.Fatalf("the process ended by %v, want by reaching %s", p.Err(), point)
	}
}

// The histories of transfers that end COMMITTED and ROLLED_BACK.
var (
	Happy    = []transfer.State{transfer.Init, transfer.SourcePending, transfer.SourceDone, transfer.TargetPending, transfer.Committed}
	Rollback = []transfer.State{transfer.Init, transfer.SourcePending, transfer.SourceDone, transfer.TargetPending, transfer.Compensating, transfer.RolledBack}
)

// User is a user of T alone, with separate accounts.
type User struct {
	T   *testing.T
	ID  int64
	Ctx context.Context
	on  *Deployment
}

var lastUser atomic.Int64

// NewUser returns a user without an account.
func (d *Deployment) NewUser(t *testing.T) User {
	ctx, cancel := context.WithTimeout(context.Background(), Within) // longer than t's, which ends before clean-up
	t.Cleanup(cancel)
	return User{t, 1000 + lastUser.Add(1), ctx, d}
}

// Answer is the API's answer to a post or a query of a transfer.
type Answer struct {
	Status     int    `json:"-"`
	TransferID int64  `json:"transfer_id"`
	ReqID      string `json:"req_id"`
	From       string `json:"from"`
	To         string `json:"to"`
	Address    string `json:"address"`
	Asset      string `json:"asset"`
	Amount     string `json:"amount"`
	State      string `json:"state"`
	Message    string `json:"message"`
	Code       string `json:"code"`
	Reason     string `json:"reason"`
}

// ReadAnswer reads the answer of a call.
func ReadAnswer(status int, text []byte, err error) (Answer, error) {
	if err != nil {
		return Answer{}, err
	}
	a := Answer{Status: status}
	if err := json.Unmarshal(text, &a); err != nil {
		return Answer{}, fmt.Errorf("status %d: %s: %w", status, text, err)
	}
	return a, nil
}

// Post posts once, as the user.
func (u *User) Post(path string, body any) (Answer, error) {
	return ReadAnswer(u.on.CallAsUser(u.Ctx, u.ID, http.MethodPost, path, body))
}

// PostAt posts to one process, at its address.
func (u *User) PostAt(addr, path string, body any) (_ Answer, err error) {
	defer steps.Return(&err)
	token := steps.Value(u.on.Users.UserToken(u.ID, stack.UsersAudience))
	return ReadAnswer(stack.CallWith(u.Ctx, token, http.MethodPost, "http://"+addr+path, body))
}

// Get queries a transfer.
func (u *User) Get(reqID string) Answer {
	u.T.Helper()
	return Must(ReadAnswer(u.on.CallAsUser(u.Ctx, u.ID, http.MethodGet, "/api/v1/internal_transfer/"+reqID, nil)))(u.T)
}

// Want checks an answer's status, state and code.
func (u *User) Want(what string, got Answer, status int, state, code string) {
	u.T.Helper()
	if got.Status != status || got.State != state || got.Code != code {
		u.T.Errorf("%s: got %d %q %q, want %d %q %q (%+v)", what, got.Status, got.State, got.Code, status, state, code, got)
	}
}

// Load returns a transfer's row.
func (u *User) Load(reqID string) transfer.Transfer {
	u.T.Helper()
	return Must(u.on.Transfers.Load(u.Ctx, reqID))(u.T)
}

// All returns the req_ids of the user's stored transfers, in order.
func (u *User) All() []string {
	u.T.Helper()
	return Rows[string](u.T, u.on, `select req_id from transfers_tb where user_id = $1 order by transfer_id`, u.ID)
}

// Only returns the req_id of the user's only stored transfer.
func (u *User) Only() string {
	u.T.Helper()
	all := u.All()
	if len(all) != 1 {
		u.T.Fatalf("transfers of user %d: got %v, want one", u.ID, all)
	}
	return all[0]
}

// States returns the transfer's history.
func (u *User) States(reqID string) (all []transfer.State) {
	u.T.Helper()
	for _, h := range Must(u.on.Transfers.Why(u.Ctx, reqID))(u.T).History {
		all = append(all, h.State)
	}
	return all
}

// AwaitState waits until the transfer is in the state.
func (u *User) AwaitState(reqID string, want transfer.State) transfer.Transfer {
	u.T.Helper()
	Poll(u.T, fmt.Sprintf("transfer %s is %s", reqID, want), func() bool {
		x, err := u.on.Transfers.Load(u.Ctx, reqID)
		return err == nil && x.State == want
	})
	return u.Load(reqID)
}

// Move moves the row as another build would.
func (u *User) Move(reqID string, path ...transfer.State) {
	u.T.Helper()
	m, err := u.on.Transfers.Move(u.Ctx, transfer.Transition{ReqID: reqID, Path: path})
	if err != nil || !m.Done {
		u.T.Fatalf("move %s along %v: got %+v, %v; want it done", reqID, path, m, err)
	}
}

// Age makes a transfer in INIT older.
func (u *User) Age(reqID, by string) {
	u.T.Helper()
	tx := Must(u.on.DB.Begin(u.Ctx))(u.T)
	defer func() { _ = tx.Rollback(u.Ctx) }()
	for _, statement := range []string{
		`set local session_replication_role = replica`, // past the trigger that keeps created_at
		`update transfers_tb set created_at = created_at - '` + by + `'::interval where req_id = '` + reqID + `' and state = 0`,
		`commit`,
	} {
		if tag, err := tx.Exec(u.Ctx, statement); err != nil || tag.Update() && tag.RowsAffected() != 1 {
			u.T.Fatalf("%s: got %v, %v; want one row", statement, tag, err)
		}
	}
}

// Task delivers the step task of a transfer once more, and returns its status.
func (u *User) Task(reqID string) (status int) {
	u.T.Helper()
	return u.TaskAt(strings.TrimPrefix(u.on.URLMap.InternalURL(), "http://"), reqID)
}

// TaskAt delivers it to one process; 0: it gave no answer.
func (u *User) TaskAt(addr, reqID string) (status int) {
	u.T.Helper()
	return u.Internal(addr, stack.TasksAccount, "transfer", map[string]string{"req_id": reqID})
}

// Internal calls an internal function of one process; 0: it gave no answer.
func (u *User) Internal(addr, account, function string, body any) (status int) {
	u.T.Helper()
	token := Must(u.on.Issuer.Token(u.Ctx, account, stack.InternalAudience))(u.T)
	status, _, err := stack.CallWith(u.Ctx, token, http.MethodPost, "http://"+addr+"/internal/"+function, body)
	if err != nil {
		return 0
	}
	return status
}

// Picture returns everything that the database stores about the user's money, one row a line.
func (u *User) Picture() []string {
	u.T.Helper()
	return Rows[string](u.T, u.on, `
select concat_ws(' ', 'funding', id, req_id, op_type, result, reason, units) from transfer_operations where user_id = $1
union all
select concat_ws(' ', 'row', req_id, state, error_message, retry_count, updated_at) from transfers_tb where user_id = $1
union all
select concat_ws(' ', 'history', h.id, h.state) from transfer_history h join transfers_tb using (transfer_id) where user_id = $1
union all
select concat_ws(' ', 'managed', m.tx_id, m.state, m.sub_state, m.nonce) from managed_tx m join transfers_tb t on t.req_id = m.request_id where t.user_id = $1
 order by 1`, u.ID)
}

// Checked requires that the checkers find nothing about the user's money.
func (u *User) Checked() {
	u.T.Helper()
	found := Must(money.Check(u.Ctx, money.Run{Database: u.on.Database, Core: u.on.Core.Ledger(), Users: []int64{u.ID}, Settled: true}))(u.T)
	if len(found) > 0 {
		u.T.Error(money.Report(found))
	}
}

// End is the end of every incident. All the user's transfers end, and the checkers find nothing. Then
// replay repeats every call and every task three times, late, and changes nothing in the picture.
func (u *User) End(picture func() []string, replay func()) {
	u.T.Helper()
	u.on.Await(u.T, fmt.Sprintf("every transfer of user %d has ended", u.ID), `select not exists (select from transfers_tb where user_id = $1 and open)`, u.ID)
	u.Checked()
	before := picture()
	for range 3 {
		replay()
	}
	u.Unchanged(fmt.Sprintf("user %d, after everything came three times more", u.ID), before, picture)
}

// Unchanged requires that the picture is as before.
func (u *User) Unchanged(what string, before []string, picture func() []string) {
	u.T.Helper()
	if diff := cmp.Diff(before, picture()); diff != "" {
		u.T.Errorf("%s: something was stored or moved (-before +after):\n%s", what, diff)
	}
}
