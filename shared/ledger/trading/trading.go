// Package trading is the Trading ledger: the client of the trading core, by the protocol of package
// wire.
//
// It maps each response to one of three outcomes. Only status 200 with a complete, strictly decoded
// answer to exactly this request is a success or a refusal. Everything else (another status with
// any code, a broken connection, a time-out, an answer that does not fit) leaves the result open
// and is Unknown.
package trading

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/fencepost/fencepost/shared/ledger/trading/wire"
	"github.com/fencepost/fencepost/shared/transfer"
	"github.com/fencepost/fencepost/shared/web"
)

// Options define the connection to the core.
type Options struct {
	URL     string        // of the core, such as http://127.0.0.1:8090, without a path
	Secret  string        // that the core requires of its callers
	Timeout time.Duration // of one call, whatever its context allows; 0: 5 s
}

const defaultTimeout = 5 * time.Second

// Ledger is the Trading ledger. It implements [transfer.Ledger], and reads the core's journal and
// balances. Create it with [New] and share it.
type Ledger struct {
	url     string
	secret  string
	timeout time.Duration
	client  *http.Client
}

var (
	_ transfer.Ledger    = (*Ledger)(nil)
	_ transfer.Forgetful = (*Ledger)(nil)
)

// idleConnections bounds the idle connections to the core.
const idleConnections = 256

// New returns a ledger by the options, without a call to the core. The error names the missing or
// invalid option and never contains the secret.
func New(o Options) (*Ledger, error) {
	u, err := url.Parse(o.URL)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.User != nil {
		return nil, errors.New("the trading core's URL: want http or https and a host, without a path")
	}
	if o.Secret == "" {
		return nil, errors.New("the trading core's secret is missing")
	}
	if o.Timeout <= 0 {
		o.Timeout = defaultTimeout
	}
	transport := &http.Transport{
		MaxIdleConns: idleConnections, MaxIdleConnsPerHost: idleConnections,
		IdleConnTimeout: time.Minute, MaxResponseHeaderBytes: 16 << 10,
	}
	return &Ledger{
		url: u.Scheme + "://" + u.Host, secret: o.Secret, timeout: o.Timeout,
		client: &http.Client{
			Transport:     transport,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

// Close closes the idle connections. The ledger can still be used.
func (l *Ledger) Close() { l.client.CloseIdleConnections() }

// Withdraw takes the units from the user's account.
func (l *Ledger) Withdraw(ctx context.Context, c transfer.Call) transfer.Outcome {
	return l.move(ctx, wire.OperationsPath, transfer.Withdraw, c)
}

// Deposit puts the units into the user's account, and creates it if there is none.
func (l *Ledger) Deposit(ctx context.Context, c transfer.Call) transfer.Outcome {
	return l.move(ctx, wire.OperationsPath, transfer.Deposit, c)
}

// Refund returns the units of the withdrawal with the same req_id.
func (l *Ledger) Refund(ctx context.Context, c transfer.Call) transfer.Outcome {
	return l.move(ctx, wire.OperationsPath, transfer.Refund, c)
}

// Resolve returns the stored answer for (req_id, op), or stores a permanent refusal.
func (l *Ledger) Resolve(ctx context.Context, op transfer.Op, c transfer.Call) transfer.Outcome {
	return l.move(ctx, wire.ResolvePath, op, c)
}

// Forgot implements [transfer.Forgetful].
func (l *Ledger) Forgot(lastUnknown string) bool {
	return strings.Contains(lastUnknown, strconv.Quote(wire.BeyondHorizon.Name))
}

// Objection implements [transfer.Forgetful].
func (l *Ledger) Objection(o transfer.Outcome) error {
	if problem, ok := errors.AsType[*ProblemError](o.Err); ok {
		return objections[problem.Code]
	}
	return nil
}

var objections = map[string]error{
	wire.BeyondHorizon.Name: transfer.ErrForgotten, wire.NotForgotten.Name: transfer.ErrNotForgotten, wire.EvidenceDiffers.Name: transfer.ErrEvidence,
}

// Record stores an operator's statement about a forgotten call in the core.
func (l *Ledger) Record(ctx context.Context, op transfer.Op, c transfer.Call, w transfer.OperatorStatement) transfer.Outcome {
	o, err := wire.NewOperation(op, c)
	if err != nil {
		return unknown(err)
	}
	body := wire.Record{Operation: o, Outcome: w.Outcome(), Line: w.Line}
	if _, err := body.Call(); err != nil {
		return unknown(err)
	}
	return l.post(ctx, wire.RecordPath, body, op, c.ReqID)
}

// Adjust adjusts the account if it has the given balance. Its req_id names the finding.
func (l *Ledger) Adjust(ctx context.Context, op transfer.Op, c transfer.Call, balance uint64) error {
	body := wire.Adjustment{
		Op: op, ReqID: c.ReqID, UserID: &c.UserID, AssetID: &c.AssetID, Units: wire.FormatUnits(c.Units),
		Balance: wire.FormatUnits(balance), CreatedAt: wire.FormatTime(c.CreatedAt),
	}
	if _, _, err := body.Call(); err != nil {
		return fmt.Errorf("trading: %w", err)
	}
	if o := l.post(ctx, wire.AdjustPath, body, op, c.ReqID); o.Verdict != transfer.Success {
		return cmp.Or(o.Err, fmt.Errorf("trading: the core refused an adjustment: %s", o.Reason))
	}
	return nil
}

// OutsideDeposit credits units that come from outside. It has the same kind of key as a transfer's
// call.
func (l *Ledger) OutsideDeposit(ctx context.Context, c transfer.Call) transfer.Outcome {
	return l.move(ctx, wire.OperationsPath, transfer.OutsideDeposit, c)
}

// OutsideWithdrawal debits units that leave to the outside. It has the same kind of key as a
// transfer's call.
func (l *Ledger) OutsideWithdrawal(ctx context.Context, c transfer.Call) transfer.Outcome {
	return l.move(ctx, wire.OperationsPath, transfer.OutsideWithdrawal, c)
}

// SetStatus sets the status of an account: ACTIVE, FROZEN or DISABLED. It ignores the call's units.
func (l *Ledger) SetStatus(ctx context.Context, c transfer.Call, status string) transfer.Outcome {
	body := wire.AccountStatus{
		ReqID: c.ReqID, UserID: &c.UserID, AssetID: &c.AssetID, Status: status, CreatedAt: wire.FormatTime(c.CreatedAt),
	}
	if _, err := body.Check(); err != nil {
		return unknown(err)
	}
	return l.post(ctx, wire.StatusPath, body, wire.SetStatus, c.ReqID)
}

// AddAsset adds an asset with its precision in decimals. The core refuses a known asset with
// another precision as INVALID_ASSET.
func (l *Ledger) AddAsset(ctx context.Context, reqID string, assetID int32, precision uint8, createdAt time.Time) transfer.Outcome {
	body := wire.Asset{ReqID: reqID, AssetID: &assetID, Precision: &precision, CreatedAt: wire.FormatTime(createdAt)}
	if _, err := body.Check(); err != nil {
		return unknown(err)
	}
	return l.post(ctx, wire.AssetsPath, body, wire.AddAsset, reqID)
}

// move sends a request to move money. It sends an invalid call too, because a refusal counts only
// once the core has stored it.
func (l *Ledger) move(ctx context.Context, path string, op transfer.Op, c transfer.Call) transfer.Outcome {
	body, err := wire.NewOperation(op, c)
	if err != nil {
		return unknown(err)
	}
	outcome := l.post(ctx, path, body, op, c.ReqID)
	switch wrong := checkValid(c); {
	case outcome.Verdict == transfer.Success && wrong != nil:
		return unknown(fmt.Errorf("the core applied an invalid call: %w", wrong))
	case outcome.Verdict == transfer.Refused && op == transfer.Refund:
		return unknown(fmt.Errorf("the core refused a refund (%s), which has no refusal", outcome.Reason))
	}
	return outcome
}

// checkValid returns why no core may apply the call.
func checkValid(c transfer.Call) error {
	switch {
	case c.Units == 0:
		return errors.New("the amount is 0")
	case c.UserID <= 0:
		return fmt.Errorf("the user is %d", c.UserID)
	case c.AssetID <= 0:
		return fmt.Errorf("the asset is %d", c.AssetID)
	}
	return nil
}

// post sends the request and accepts only an answer that fits exactly.
func (l *Ledger) post(ctx context.Context, path string, body any, op transfer.Op, reqID string) transfer.Outcome {
	a, err := call[wire.Answer](ctx, l, http.MethodPost, path, body)
	if err != nil {
		return unknown(fmt.Errorf("%s of %s: %w", op, reqID, err))
	}
	if a.Op != op || a.ReqID != reqID || a.Seq == 0 {
		return unknown(fmt.Errorf("%s of %s: the core answered for %.40q of %.40q, line %d", op, reqID, a.Op, a.ReqID, a.Seq))
	}
	if err := wire.CheckOutcome(a.Outcome, a.Reason); err != nil {
		return unknown(fmt.Errorf("%s of %s: %w", op, reqID, err))
	}
	if a.Outcome == wire.RefusedEver {
		return transfer.Outcome{Verdict: transfer.Refused, Reason: a.Reason}
	}
	return transfer.Outcome{Verdict: transfer.Success}
}

func unknown(err error) transfer.Outcome {
	return transfer.Outcome{Verdict: transfer.Unknown, Err: fmt.Errorf("trading: %w", err)}
}

// ProblemError is a response of the core without an answer. None of its codes means that an
// operation was refused.
type ProblemError struct {
	Status int
	Code   string // as in wire and web; empty if the response had none
}

func (e *ProblemError) Error() string {
	return fmt.Sprintf("the core answered with status %d, code %.64q", e.Status, e.Code)
}

// call makes one request within the ledger's time-out and decodes a T strictly. The error is a
// [*ProblemError] for every status but 200.
func call[T any](ctx context.Context, l *Ledger, method, path string, body any) (answer T, err error) {
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	var content []byte
	if body != nil {
		if content, err = json.Marshal(body); err != nil {
			return answer, err
		}
	}
	r, err := http.NewRequestWithContext(ctx, method, l.url+path, bytes.NewReader(content))
	if err != nil {
		return answer, err
	}
	r.Header.Set("Authorization", "Bearer "+l.secret)
	r.Header.Set("Content-Type", "application/json")
	r.Header["Idempotency-Key"] = nil // a reqId is idempotent: net/http may then repeat the request on a dead connection, and sends no header
	resp, err := l.client.Do(r)
	if err != nil {
		return answer, err
	}
	defer func() {
		_, _ = io.CopyN(io.Discard, resp.Body, maxRest) // so that the connection can be reused
		_ = resp.Body.Close()
	}()
	if resp.StatusCode != http.StatusOK {
		return answer, problemOf(resp)
	}
	// An answer is read as strictly as a request.
	return web.Decode[T](nil, &http.Request{Header: resp.Header, Body: resp.Body}, wire.MaxAnswer)
}

// Limits of reading beyond answers.
const (
	maxProblem = 16 << 10
	maxRest    = 4 << 10
)

func problemOf(resp *http.Response) error {
	var p struct {
		Code string `json:"code"`
	}
	content, _ := io.ReadAll(io.LimitReader(resp.Body, maxProblem))
	_ = json.Unmarshal(content, &p) // its content only changes the error's text
	return &ProblemError{Status: resp.StatusCode, Code: p.Code}
}
