package transfer

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ActKind is the kind of an act on an account.
type ActKind string

// The kinds. A deposit or withdrawal moves money from or to the outside in one ledger. A status is set
// in both ledgers.
const (
	ActDeposit    ActKind = "DEPOSIT"
	ActWithdrawal ActKind = "WITHDRAWAL"
	ActStatus     ActKind = "STATUS"
)

// The statuses of an account. A FROZEN one accepts deposits and refunds, a DISABLED one only refunds.
const (
	StatusActive   = "ACTIVE"
	StatusFrozen   = "FROZEN"
	StatusDisabled = "DISABLED"
)

// The answers of a ledger to an act. Any other answer is the [Reason] of a refusal.
const (
	ActApplied    = "APPLIED"
	ActNoAccount  = "NO_ACCOUNT" // of status ACTIVE: a new account has it anyway
	ActSuperseded = "SUPERSEDED" // a later status of the account counts
	ActTaken      = "ID_TAKEN"   // the core has another user, asset or amount under the id
	ActForgotten  = "FORGOTTEN"  // the ledger no longer knows the act's key: order the status again

	ActKeptDisabled = "KEPT_DISABLED" // of a status that one operator ordered to narrow: the core has DISABLED, which allows less
	ActNotApplied   = "NOT_APPLIED"   // the core has forgotten the act's key, and its journal does not have the act
)

// Act is a stored act on a user's account.
type Act struct {
	ID           int64
	Kind         ActKind
	RequestID    string      // of the outside system, and the key in the ledger; "" for a status
	Ledger       AccountType // of a deposit or withdrawal: Funding or Spot
	UserID       int64
	AssetID      int32
	Asset        string
	Precision    int
	Units        uint64
	Status       string // of [ActStatus]
	By           string
	Reason       string
	OfService    bool // made by the deposit service
	OnlyNarrower bool // of a status: a core that has DISABLED keeps it

	JournalRead uint64 // up to this line the core's journal does not have it, as an operator's call has read
	At          time.Time
	Funding     string // the answer of Funding; "": not known, or not called
	Trading     string // the answer of the trading core; "": not known, or not called
	Unknown     string // why the last attempt had no answer
	ApprovedBy  string
	Age         time.Duration // by the database's clock
}

// Answer is the answer to a deposit or withdrawal; "": not known.
func (a Act) Answer() string {
	if a.Ledger == Funding {
		return a.Funding
	}
	return a.Trading
}

// Open reports whether a ledger's answer is not known yet.
func (a Act) Open() bool {
	if a.Kind == ActStatus {
		return a.Funding == "" || a.Trading == ""
	}
	return a.Answer() == ""
}

// MoneyOrder is a deposit or withdrawal to store.
type MoneyOrder struct {
	Kind      ActKind
	RequestID string
	Ledger    AccountType
	UserID    int64
	AssetID   int32
	Units     uint64
	By        string
	Reason    string
	OfService bool // counts against the asset's daily limit of the deposit service

	// Line is the line of the core's journal that has the answer under the order's id; 0: the core is called. A
	// restored database orders an id anew, with another time, and the core then answers CONTRADICTION for ever.
	Line uint64

	// NotApplied ends a stored act whose key the core has forgotten, if the core's journal does not have it.
	NotApplied bool
}

// StatusOrder is a status to store.
type StatusOrder struct {
	UserID  int64
	AssetID int32
	Status  string
	By      string
	Reason  string

	// The status may not allow more than either ledger has, or has been ordered: see [ErrWider]. Without an answer of the
	// core it is ordered, and a core that has DISABLED keeps it: see [ActKeptDisabled].
	OnlyNarrower bool
}

// The errors of acts. Nothing was stored.
var (
	ErrActConflict = errors.New("the id was used for another deposit or withdrawal")
	ErrWider       = errors.New("the status allows more than the present one")
	ErrNoAct       = errors.New("no such act")
)

// ServiceLimitError reports a deposit that would pass the daily limit of the deposit service.
type ServiceLimitError struct{ Left string } // what can still be booked today, as a decimal number

func (e ServiceLimitError) Error() string {
	return "the deposit service can book " + e.Left + " more today"
}

// ActStore is the port that stores acts.
type ActStore interface {
	// OrderMoney stores the order, or returns the act that is stored under its id. The error wraps
	// [ErrActConflict] or [ErrForeign], or is a [ServiceLimitError].
	OrderMoney(ctx context.Context, o MoneyOrder) (Act, error)

	// EndMoney stores the order's act, if it is not stored, and ends it, if it is open. Its errors are those of OrderMoney,
	// with which it returns no act.
	EndMoney(ctx context.Context, o MoneyOrder, e Ending) (Act, error)

	// OrderStatus stores the order and sets the status in Funding. The error wraps [ErrWider] or
	// [ErrForeign].
	OrderStatus(ctx context.Context, o StatusOrder) (Act, error)

	// ActOf returns the deposit or withdrawal that is stored under the order's id. The error wraps [ErrNoAct], or
	// [ErrActConflict] if its other fields differ.
	ActOf(ctx context.Context, o MoneyOrder) (Act, error)

	// Act reads one. The error wraps [ErrNoAct].
	Act(ctx context.Context, id int64) (Act, error)

	// StatusActs returns the newest status act of an account and the open ones, oldest first.
	StatusActs(ctx context.Context, userID int64, assetID int32) ([]Act, error)

	// KeepJournalRead stores that the core's journal does not have the act up to the line.
	KeepJournalRead(ctx context.Context, id int64, upto uint64) error

	// SetFundingStatus sets the status of the act in Funding, unless a later one counts.
	SetFundingStatus(ctx context.Context, id int64) error

	// AnswerAct stores a ledger's answer, unless one is stored.
	AnswerAct(ctx context.Context, id int64, from AccountType, answer string) error

	// PostponeAct plans the next attempt after wait, and stores why this one had no answer.
	PostponeAct(ctx context.Context, id int64, unknown string, wait time.Duration) error
}

// OutsideLedger is a ledger that books money from and to the outside, once for each req_id.
type OutsideLedger interface {
	OutsideDeposit(ctx context.Context, c Call) Outcome
	OutsideWithdrawal(ctx context.Context, c Call) Outcome
}

// CoreLedger is the ledger outside the database, as acts need it beyond [OutsideLedger].
type CoreLedger interface {
	Line(ctx context.Context, number uint64) (e Entry, exists bool, err error)        // of its journal
	Entries(ctx context.Context, after uint64) (page []Entry, last uint64, err error) // of its journal, with the number of the last one
	Forgot(lastUnknown string) bool
	SetStatus(ctx context.Context, c Call, status string) Outcome                   // once for each req_id
	AccountStatus(ctx context.Context, userID int64, assetID int32) (string, error) // "": there is no account
	Objection(o Outcome) error
}

// Accounts carries out acts on accounts. An act is stored before a ledger is called. It is repeated
// until each ledger has answered, since an unknown answer is no failure.
type Accounts struct {
	Store   ActStore
	Ledgers map[AccountType]OutsideLedger // Funding and Spot
	Core    CoreLedger
	Timeout time.Duration      // of one call to a ledger
	At      func(point string) // called at crash points; nil outside tests
}

func (a *Accounts) reach(point string) {
	if a.At != nil {
		a.At("account." + point)
	}
}

// Book stores a deposit or withdrawal and calls its ledger. If the act stays open, its answer is not
// known: a repeat with the same id, or the sweep, asks again. An error with an act is of an act that is
// stored and stays open. An order that ends an act books nothing: see [Accounts.EndingOf].
func (a *Accounts) Book(ctx context.Context, o MoneyOrder) (Act, error) {
	if o.Ends() {
		e, err := a.EndingOf(ctx, o)
		if err != nil { // nothing is stored without the evidence
			return Act{}, err
		}
		return a.Store.EndMoney(ctx, o, e) // with an error it returns no act
	}
	act, err := a.Store.OrderMoney(ctx, o)
	if err != nil {
		return Act{}, err
	}
	a.reach("ordered")
	settled, err := a.settle(ctx, act)
	if err != nil {
		return act, err
	}
	return settled, nil
}

// SetStatus stores a status and sets it in both ledgers. If the act stays open, a ledger has not
// answered, or has no such account yet. The sweep continues.
func (a *Accounts) SetStatus(ctx context.Context, o StatusOrder) (Act, error) {
	if a.widens(ctx, o) {
		return Act{}, ErrWider
	}
	act, err := a.Store.OrderStatus(ctx, o)
	if err != nil {
		return Act{}, err
	}
	a.reach("ordered")
	return a.settle(ctx, act)
}

// presentWithin bounds the question for Spot's present status. A freeze does not wait for long: if there is no answer it
// is ordered, and the core keeps a status that allows less.
const presentWithin = time.Second

// widens reports whether a status that may only narrow allows more than Spot's present one. The store compares it with
// Funding's, and with those that were ordered.
func (a *Accounts) widens(ctx context.Context, o StatusOrder) bool {
	if !o.OnlyNarrower || o.Status == StatusDisabled {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, min(a.Timeout, presentWithin))
	defer cancel()
	present, err := a.Core.AccountStatus(ctx, o.UserID, o.AssetID)
	return err == nil && present == StatusDisabled
}

// Settle continues an open act. The error wraps [ErrNoAct].
func (a *Accounts) Settle(ctx context.Context, id int64) (Act, error) {
	act, err := a.Store.Act(ctx, id)
	if err != nil {
		return Act{}, err
	}
	return a.settle(ctx, act)
}

func (a *Accounts) settle(ctx context.Context, act Act) (Act, error) {
	if !act.Open() {
		return act, nil
	}
	carryOut := a.book
	if act.Kind == ActStatus {
		carryOut = a.setStatus
	}
	unknown, err := carryOut(ctx, act)
	if err == nil && unknown != "" {
		err = a.Store.PostponeAct(ctx, act.ID, unknown, act.nextWait(unknown))
	}
	if err != nil {
		return Act{}, err
	}
	return a.Store.Act(ctx, act.ID)
}

// The times between two attempts of an act.
const (
	actWait    = time.Minute
	maxActWait = 10 * time.Minute // after which a new account has the status that was ordered before
)

// nextWait is the time to the next attempt. It grows with the age of a status whose account does not exist, since
// it may never exist.
func (a Act) nextWait(unknown string) time.Duration {
	if unknown != noAccountYet {
		return actWait
	}
	return min(max(a.Age/8, actWait), maxActWait)
}

// book calls the ledger of a deposit or withdrawal. It returns why the answer is unknown, or "".
func (a *Accounts) book(ctx context.Context, act Act) (unknown string, err error) {
	o := a.call(ctx, act)
	a.reach("called")
	return a.answer(ctx, act.ID, act.Ledger, o)
}

// call makes the call of a deposit or withdrawal to its ledger.
func (a *Accounts) call(ctx context.Context, act Act) Outcome {
	call := Call{ReqID: act.RequestID, UserID: act.UserID, AssetID: act.AssetID, Units: act.Units, CreatedAt: act.At}
	do := a.Ledgers[act.Ledger].OutsideDeposit
	if act.Kind == ActWithdrawal {
		do = a.Ledgers[act.Ledger].OutsideWithdrawal
	}
	ctx, cancel := context.WithTimeout(ctx, a.Timeout)
	defer cancel()
	return do(ctx, call)
}

// answer stores the ledger's answer. It returns why that is unknown, or "".
func (a *Accounts) answer(ctx context.Context, id int64, from AccountType, o Outcome) (unknown string, err error) {
	switch o.Verdict {
	case Success:
		return "", a.Store.AnswerAct(ctx, id, from, ActApplied)
	case Refused:
		return "", a.Store.AnswerAct(ctx, id, from, string(o.Reason))
	}
	return fmt.Sprint(o.Err), nil
}

// settledAfter is the age at which no invocation can still carry out an act that it has read before a
// later one was stored.
const settledAfter = time.Hour

// setStatus sets the account's status in both ledgers. The core gets the open acts in their order, so
// that a delayed call of an older one has no effect after a newer one.
func (a *Accounts) setStatus(ctx context.Context, act Act) (unknown string, err error) {
	if act.Funding == "" {
		if err := a.Store.SetFundingStatus(ctx, act.ID); err != nil {
			return "", err
		}
	}
	acts, err := a.Store.StatusActs(ctx, act.UserID, act.AssetID)
	if err != nil {
		return "", err
	}
	within, cancel := context.WithTimeout(ctx, a.Timeout)
	defer cancel()
	present, err := a.Core.AccountStatus(within, act.UserID, act.AssetID)
	if err != nil {
		return err.Error(), nil
	}
	if present == "" {
		return a.withoutAccount(ctx, acts)
	}
	for _, one := range acts {
		if one.Trading != "" {
			continue
		}
		call, ok := one.statusCall()
		if !ok {
			return betweenKeys, nil
		}
		o := a.setInCore(within, one, call, present)
		if o.Verdict == Success {
			present = one.Status
		}
		if unknown, err = a.answer(ctx, one.ID, Spot, o); unknown != "" || err != nil {
			return unknown, err
		}
	}
	return a.stillOpen(ctx, act)
}

// setInCore sets a status in the core, whose present one is given.
func (a *Accounts) setInCore(ctx context.Context, act Act, call Call, present string) Outcome {
	if act.OnlyNarrower && present == StatusDisabled && act.Status != StatusDisabled {
		return Outcome{Verdict: Refused, Reason: ActKeptDisabled}
	}
	o := a.Core.SetStatus(ctx, call, act.Status)
	a.reach("called")
	if errors.Is(a.Core.Objection(o), ErrForgotten) {
		return Outcome{Verdict: Refused, Reason: ActForgotten}
	}
	return o
}

// keyLasts is how long a status is set under one key. It is far below the horizon beyond which the core
// refuses a call.
const keyLasts = 24 * time.Hour

const betweenKeys = "the status gets a new key within the hour, once no call with the last one can be under way"

// statusCall is the call that sets the status in the core. Its key has the time too: after a restore of the
// database the ids of acts come again. An act that stays open, since the user has no account in the core, gets
// a new key and time each day. It has none (false) while a call with the last key could still be under way.
func (a Act) statusCall() (Call, bool) {
	days := a.Age.Truncate(keyLasts)
	at := a.At.Add(days)
	return Call{ReqID: fmt.Sprintf("status-%d-%d", a.ID, at.UnixMilli()), UserID: a.UserID, AssetID: a.AssetID, CreatedAt: at},
		days == 0 || a.Age-days >= settledAfter
}

// stillOpen returns why the act stays open without a doubt about the core; "" if it does not.
func (a *Accounts) stillOpen(ctx context.Context, act Act) (string, error) {
	now, err := a.Store.Act(ctx, act.ID)
	if err == nil && now.Open() {
		return noAccountYet, nil
	}
	return "", err
}

const noAccountYet = "a ledger has no such account yet; the status is set once it has one"

// withoutAccount closes what needs no account in the core: status ACTIVE, and acts that a later one
// has superseded. Several open acts wait until no invocation can have read an older list of them.
func (a *Accounts) withoutAccount(ctx context.Context, acts []Act) (unknown string, err error) {
	newest := acts[len(acts)-1]
	if len(acts) > 1 && newest.Age < settledAfter {
		return noAccountYet, nil
	}
	for _, one := range acts {
		answer := ActSuperseded
		if one.ID == newest.ID {
			answer = ActNoAccount
		}
		if one.Trading == "" && (one.ID != newest.ID || one.Status == StatusActive) {
			if err := a.Store.AnswerAct(ctx, one.ID, Spot, answer); err != nil {
				return "", err
			}
		}
	}
	return a.stillOpen(ctx, newest)
}
