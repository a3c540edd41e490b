package transfer

import (
	"errors"
	"time"
)

// Request is a user's request for a transfer.
type Request struct {
	ReqID  string // a new ULID, made by the service
	CID    string // the client's own key, at most 64 characters; "": none
	UserID int64
	From   AccountType
	To     AccountType
	Asset  string // its name
	Amount Amount
	Payout *Payout // set if From is Funding and To is Chain; else nil
}

// Terms are the settings that a request is checked against.
type Terms struct {
	SafetyFactor uint64 // an amount times this factor must fit 64 bits; at least 1
	Limits       Limits
	Addresses    AddressTerms
}

// AddressTerms define which payout addresses are allowed.
type AddressTerms struct {
	Required bool          // payouts go only to addresses on the user's list
	Delay    time.Duration // waiting time before an added address can be paid
}

// Limits bound the requests of one user. 0: no limit.
type Limits struct {
	PerSecond int
	PerDay    int // in 24 hours
}

// Counts are a user's recent requests. Counting stops at each limit.
type Counts struct {
	LastSecond int
	LastDay    int
	DayUnits   uint64 // of the asset, in 24 hours, without failed and refunded transfers
}

// Check validates a request that is not stored yet, in the API's order: account type, asset,
// amount. A nil asset is unknown. It returns the type and the amount in units, or the reason to
// refuse the request.
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

// CheckLimits returns the limit that a further transfer of so many units would exceed.
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

// CheckPayoutDay checks a further payout against the asset's daily payout limit. The sum of the
// day's payouts is used, in units. The amount that can still be paid out is left.
func CheckPayoutDay(units, used uint64, a Asset) (left uint64, reason Reason) {
	left = a.PayoutDay - min(a.PayoutDay, used)
	if a.PayoutDay > 0 && units > left {
		return left, DailyPayoutExceeded
	}
	return left, ""
}

// Same reports whether t has the content of r. Of a payout only the address is compared: the
// client chose nothing else, and the settings may have changed since.
func (r Request) Same(t Transfer) bool {
	kind, _ := CheckAccounts(r.From, r.To, r.Payout != nil)
	if kind != t.Type || r.UserID != t.UserID || r.Asset != t.Asset || r.Amount.String() != t.Amount() {
		return false
	}
	return r.Payout == nil || t.Payout != nil && r.Payout.Address == t.Payout.Address
}

// Errors of [Book.Create] beside [RefusedError]. After each of them this attempt has stored
// nothing.
var (
	ErrCIDConflict = errors.New("the user has another request with this cid")
	ErrHalted      = errors.New("new transfers are halted until a person resumes them")
	ErrForeign     = errors.New("the database is not the one written last")
	ErrProtected   = errors.New("the paying account does not pay: it is in PROTECT, suspended, or not registered for the coordinator alone")
	ErrRetired     = errors.New("the paying account is retired for ever")
	ErrMoved       = errors.New("the request was refused, and its cause was over before it could be read")
)

// ErrNotFound reports a transfer that does not exist or belongs to another user.
var ErrNotFound = errors.New("no such transfer")
