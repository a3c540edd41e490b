package transfer

// Asset describes an asset and the limits of its transfers. Amounts are in units of
// 10^-Precision.
type Asset struct {
	ID         int32
	Name       string
	Precision  int
	MinUnits   uint64
	MaxUnits   uint64
	DailyUnits uint64 // what one user can transfer in 24 hours; 0: no limit
	PayoutDay  uint64 // what one user can have paid out in 24 hours; 0: no limit
	ServiceDay uint64 // what the deposit service can book for all users in a day (UTC); 0: nothing
	Active     bool
	Enabled    bool         // transfers between accounts are allowed
	Payout     *PayoutTerms // nil: payouts of the asset are not supported
}

// PayoutTerms define the account that pays an asset out, and the asset's form on the chain.
type PayoutTerms struct {
	Submitter string // canonical
	ChainID   uint64
	Token     string // the contract, 0x and 40 lower-case hex digits; "": the native coin
	Decimals  int    // of the token or coin on the chain, at least the asset's precision
}

// Payout describes the transaction of a payout. It is fixed when the transfer is created. Each
// attempt sends the same, even if the settings have changed since.
type Payout struct {
	Submitter string // the payer
	ChainID   uint64
	Token     string // "": the native coin
	Address   string // the recipient: 0x and 40 lower-case hex digits
	BaseUnits string // the amount in the chain's smallest unit, as a decimal integer
	Payload   []byte // the managed transaction's payload, JSON
}

// BaseUnits converts an amount in the asset's units to the chain's smallest unit, as a decimal
// integer: units · 10^(Decimals − precision).
func (t PayoutTerms) BaseUnits(units uint64, precision int) string {
	return timesTenTo(units, t.Decimals-precision).String()
}

// CheckAsset returns the reason why the asset cannot be transferred now. A nil asset is unknown.
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

// CheckAmount returns the amount in the asset's units, or the reason to refuse it. The amount
// times safety (at least 1) must fit 64 bits.
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
