package transfer

// Asset is what may be transferred, and on which terms. Amounts are in units of
// 10^-Precision.
type Asset struct {
	ID         int32
	Name       string
	Precision  int
	MinUnits   uint64
	MaxUnits   uint64
	DailyUnits uint64 // the most that one user may transfer in 24 hours; 0: no limit
	PayoutDay  uint64 // the most that one user may have paid out in 24 hours; 0: no limit
	Active     bool
	Enabled    bool         // transfers between accounts are allowed
	Payout     *PayoutTerms // nil: it cannot be paid out
}

// PayoutTerms say which account pays an asset out, and where.
type PayoutTerms struct {
	Submitter string // canonical
	ChainID   uint64
	Token     string // the contract, 0x and 40 lower-case hex digits; "": the native coin
	Decimals  int    // of the token or coin on the chain, at least the asset's precision
}

// Payout is what a payout will do on the chain. It is fixed when the transfer is
// created and sent the same at each attempt, whatever the settings say by then.
type Payout struct {
	Submitter string // who pays
	ChainID   uint64
	Token     string // "": the native coin
	Address   string // who is paid: 0x and 40 lower-case hex digits
	BaseUnits string // how much, in the chain's smallest unit, as a decimal integer
	Payload   []byte // the managed transaction's payload, JSON
}

// BaseUnits is what so many units of the asset are on the chain: units ·
// 10^(Decimals − precision), as a decimal integer.
func (t PayoutTerms) BaseUnits(units uint64, precision int) string {
	return timesTenTo(units, t.Decimals-precision).String()
}

// CheckAsset says why the asset cannot be transferred now: a nil asset is unknown.
func CheckAsset(a *Asset, t Type) Reason {
	switch {
	case a == nil:
		return InvalidAsset
	case !a.Active:
		return AssetSuspended
	case t == FundingToChain && a.Payout == nil, t != FundingToChain && !a.Enabled:
		return TransferNotAllowed
	}
	return ""
}

// CheckAmount is the amount in the asset's units, or why it cannot be transferred.
// safety is how many times over it must fit 64 bits, at least 1.
func CheckAmount(amount Amount, a Asset, safety uint64) (uint64, Reason) {
	if amount.unscaled == "" {
		return 0, InvalidAmount
	}
	units, reason := amount.Units(a.Precision)
	switch {
	case reason == PrecisionOverflow:
		return 0, reason
	case reason == "" && units < a.MinUnits:
		return 0, AmountTooSmall
	case reason == Overflow || units > ^uint64(0)/max(safety, 1):
		return 0, Overflow
	case units > a.MaxUnits:
		return 0, AmountTooLarge
	}
	return units, ""
}
