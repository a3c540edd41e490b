package transfer

import (
	"errors"
	"time"
)

// Request is a transfer that a user asks for.
type Request struct {
	ReqID  string // a new ULID, made by the service
	CID    string // the client's own key, at most 64 characters; "": none
	UserID int64
	From   AccountType
	To     AccountType
	Asset  string // its name
	Amount Amount
	Payout *Payout // where From is Funding and To is Chain; else nil
}

// Terms are the settings that a request is judged by.
type Terms struct {
	SafetyFactor uint64 // an amount must fit 64 bits so many times over; at least 1
	Limits       Limits
	Addresses    AddressTerms
}

// AddressTerms say which addresses can be paid.
type AddressTerms struct {
	Required bool          // a payout goes to an address on the user's list alone
	Delay    time.Duration // from when an address is added until it can be paid
}

// Limits bound what one user may ask for. 0: no limit.
type Limits struct {
	PerSecond int
	PerDay    int // in 24 hours
}

// Counts are what the user has asked for lately. Each is counted no further than
// its limit.
type Counts struct {
	LastSecond int
	LastDay    int
	DayUnits   uint64 // of the asset, in 24 hours, but for what failed or was given back
}

// Check judges a request that is not stored yet, in the order of the API: account
// type, asset, amount. A nil asset is one that nobody knows. It returns the type
// and the amount in units, or the reason to refuse it.
func (r Request) Check(a *Asset, terms Terms) (Type, uint64, Reason) {
	t, reason := CheckAccounts(r.From, r.To, r.Payout != nil)
	if reason != "" {
		return 0, 0, reason
	}
	if reason := CheckAsset(a, t); reason != "" {
		return t, 0, reason
	}
	units, reason := CheckAmount(r.Amount, *a, terms.SafetyFactor)
	return t, units, reason
}

// CheckLimits says which limit so many units more would exceed.
func CheckLimits(units uint64, a Asset, l Limits, n Counts) Reason {
	switch {
	case l.PerSecond > 0 && n.LastSecond >= l.PerSecond:
		return RateLimitExceeded
	case l.PerDay > 0 && n.LastDay >= l.PerDay:
		return DailyLimitExceeded
	case a.DailyUnits > 0 && (units > a.DailyUnits || n.DayUnits > a.DailyUnits-units):
		return DailyAmountExceeded
	}
	return ""
}

// CheckPayoutDay says whether a payout of so many units more would exceed the asset's
// amount of a day, of which payouts have used so many, and how many units are left of it.
func CheckPayoutDay(units, used uint64, a Asset) (left uint64, reason Reason) {
	left = a.PayoutDay - min(a.PayoutDay, used)
	if a.PayoutDay > 0 && units > left {
		return left, DailyPayoutExceeded
	}
	return left, ""
}

// Same says whether t is what r asks for. Of a payout the client chose the address
// alone: what the settings added then may be otherwise now.
func (r Request) Same(t Transfer) bool {
	kind, _ := CheckAccounts(r.From, r.To, r.Payout != nil)
	if kind != t.Type || r.UserID != t.UserID || r.Asset != t.Asset || r.Amount.String() != t.Amount() {
		return false
	}
	return r.Payout == nil || t.Payout != nil && r.Payout.Address == t.Payout.Address
}

// Errors of [Book.Create] beside [ErrRefused]. After each, this attempt has stored
// nothing.
var (
	ErrCIDConflict = errors.New("the cid is taken by another request of the user")
	ErrHalted      = errors.New("new transfers are halted until a person resumes them")
	ErrForeign     = errors.New("the database is not the one written last")
	ErrProtected   = errors.New("the paying account does not pay: it is in PROTECT, suspended, or not registered for the coordinator alone")
	ErrMoved       = errors.New("what refused the request was over when it was asked why")
)

// ErrNotFound reports a transfer that is not there, or not the user's.
var ErrNotFound = errors.New("no such transfer")
