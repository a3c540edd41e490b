// Package trading is the Trading ledger: the client of the trading core, by the
// protocol of package wire.
//
// It turns every answer into one of three outcomes, and believes only one form of
// two of them: status 200 with a whole, strictly decoded answer to exactly this
// request. Everything else (another status, whatever its code, a broken
// connection, silence, an answer that does not fit) leaves open what became of
// the request, and is Unknown.
package trading

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/fencepost/fencepost/shared/ledger/trading/wire"
	"github.com/fencepost/fencepost/shared/transfer"
)

// Options say where the core is.
type Options struct {
	URL     string        // of the core, such as http://127.0.0.1:8090, without a path
	Secret  string        // that the core wants of its callers
	Timeout time.Duration // of one call, whatever its context allows; 0: 5 s
}

const defaultTimeout = 5 * time.Second

// Ledger is the Trading ledger. It implements [transfer.Ledger], and reads the
// core's journal and balances. Make one with [New]; it is meant to be shared.
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

// idleConnections bounds those that are kept open to the core.
const idleConnections = 256

// New is a ledger by the options; it asks the core nothing yet. The error says
// which option is missing or wrong, without the secret.
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

// Close drops the idle connections. The ledger can still be used.
func (l *Ledger) Close() { l.client.CloseIdleConnections() }

// Withdraw takes the units from the user's account.
func (l *Ledger) Withdraw(ctx context.Context, c transfer.Call) transfer.Outcome {
	return l.move(ctx, wire.OperationsPath, transfer.Withdraw, c)
}

// Deposit puts the units into the user's account, and makes it if there is none.
func (l *Ledger) Deposit(ctx context.Context, c transfer.Call) transfer.Outcome {
	return l.move(ctx, wire.OperationsPath, transfer.Deposit, c)
}

// Refund puts back what the withdrawal of the same req_id took.
func (l *Ledger) Refund(ctx context.Context, c transfer.Call) transfer.Outcome {
	return l.move(ctx, wire.OperationsPath, transfer.Refund, c)
}

// Resolve answers what is stored for (req_id, op), or has it refused for ever.
func (l *Ledger) Resolve(ctx context.Context, op transfer.Op, c transfer.Call) transfer.Outcome {
	return l.move(ctx, wire.ResolvePath, op, c)
}

// Forgot implements [transfer.Forgetful].
func (l *Ledger) Forgot(lastUnknown string) bool {
	return strings.Contains(lastUnknown, strconv.Quote(wire.BeyondHorizon.Name))
}

// Objection implements [transfer.Forgetful].
func (l *Ledger) Objection(o transfer.Outcome) error {
	var problem *ProblemError
	if !errors.As(o.Err, &problem) {
		return nil
	}
	switch problem.Code {
	case wire.BeyondHorizon.Name:
		return transfer.ErrForgotten
	case wire.NotForgotten.Name:
		return transfer.ErrNotForgotten
	case wire.EvidenceDiffers.Name:
		return transfer.ErrEvidence
	}
	return nil
}

// Record has the core store what an operator says became of a forgotten call.
func (l *Ledger) Record(ctx context.Context, op transfer.Op, c transfer.Call, w transfer.Word) transfer.Outcome {
	o, err := wire.NewOperation(op, c)
	if err != nil {
		return unknown(err)
	}
	body := wire.Record{
		Op: op, ReqID: o.ReqID, UserID: o.UserID, AssetID: o.AssetID, Units: o.Units, CreatedAt: o.CreatedAt,
		Outcome: wire.NotApplied, Line: w.Line,
	}
	if w.Applied {
		body.Outcome = wire.Applied
	}
	if _, err := body.Call(); err != nil {
		return unknown(err)
	}
	return l.post(ctx, wire.RecordPath, body, op, c.ReqID)
}

// Adjust makes an adjustment of the account, which must hold the balance. Its
// req_id names the finding.
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

// OutsideDeposit puts units into the account that come from outside. It is keyed
// as a transfer's call.
func (l *Ledger) OutsideDeposit(ctx context.Context, c transfer.Call) transfer.Outcome {
	return l.move(ctx, wire.OperationsPath, transfer.OutsideDeposit, c)
}

// OutsideWithdrawal takes units from the account that go outside. It is keyed as a
// transfer's call.
func (l *Ledger) OutsideWithdrawal(ctx context.Context, c transfer.Call) transfer.Outcome {
	return l.move(ctx, wire.OperationsPath, transfer.OutsideWithdrawal, c)
}

// SetStatus sets the status of an account: ACTIVE, FROZEN or DISABLED. The call's
// units do not count.
func (l *Ledger) SetStatus(ctx context.Context, c transfer.Call, status string) transfer.Outcome {
	body := wire.AccountStatus{
		ReqID: c.ReqID, UserID: &c.UserID, AssetID: &c.AssetID, Status: status, CreatedAt: wire.FormatTime(c.CreatedAt),
	}
	if _, err := body.Check(); err != nil {
		return unknown(err)
	}
	return l.post(ctx, wire.StatusPath, body, wire.SetStatus, c.ReqID)
}

// AddAsset makes an asset known to the core, with its precision in decimals. An
// asset that has another precision is refused with INVALID_ASSET.
func (l *Ledger) AddAsset(ctx context.Context, reqID string, assetID int32, precision uint8, createdAt time.Time) transfer.Outcome {
	body := wire.Asset{ReqID: reqID, AssetID: &assetID, Precision: &precision, CreatedAt: wire.FormatTime(createdAt)}
	if _, err := body.Check(); err != nil {
		return unknown(err)
	}
	return l.post(ctx, wire.AssetsPath, body, wire.AddAsset, reqID)
}

// move asks for a move of money. A call that can never be right is asked for too:
// its refusal counts only once the core has stored it.
func (l *Ledger) move(ctx context.Context, path string, op transfer.Op, c transfer.Call) transfer.Outcome {
	body, err := wire.NewOperation(op, c)
	if err != nil {
		return unknown(err)
	}
	outcome := l.post(ctx, path, body, op, c.ReqID)
	switch wrong := impossible(c); {
	case outcome.Verdict == transfer.Success && wrong != nil:
		return unknown(fmt.Errorf("the core says that it applied what cannot be: %w", wrong))
	case outcome.Verdict == transfer.Refused && op == transfer.Refund:
		return unknown(fmt.Errorf("the core says that it refused a refund (%s), which has no refusal", outcome.Reason))
	}
	return outcome
}

// impossible says why nobody may apply the call.
func impossible(c transfer.Call) error {
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

// post asks, and believes what fits exactly.
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
