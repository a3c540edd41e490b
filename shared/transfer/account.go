package transfer

import "fmt"

// AccountType is a kind of account, each kept by one ledger.
type AccountType string

// The account types. Future and Margin are known but have no ledger yet. Chain is
// an address outside, where a payout goes; nobody names it in a request.
const (
	Funding AccountType = "FUNDING"
	Spot    AccountType = "SPOT"
	Future  AccountType = "FUTURE"
	Margin  AccountType = "MARGIN"
	Chain   AccountType = "CHAIN"
)

// Type is what kind of transfer it is, as it is stored.
type Type int16

// The types.
const (
	FundingToSpot  Type = 1
	SpotToFunding  Type = 2
	FundingToChain Type = 3 // a payout
)

// account is what the coordinator has to know of a ledger.
type account struct {
	known      bool // a request may name it
	supported  bool
	reversible bool // as a source: it takes back what it gave
	refuses    bool // as a target: it may say no
}

var accounts = map[AccountType]account{
	Funding: {known: true, supported: true, reversible: true, refuses: true},
	Spot:    {known: true, supported: true, reversible: true, refuses: true},
	Future:  {known: true},
	Margin:  {known: true},
	Chain:   {supported: true, refuses: true},
}

type pair struct{ source, target AccountType }

var pairs = map[Type]pair{
	FundingToSpot:  {Funding, Spot},
	SpotToFunding:  {Spot, Funding},
	FundingToChain: {Funding, Chain},
}

// Source is the account that the money leaves; "" for an unknown type.
func (t Type) Source() AccountType { return pairs[t].source }

// Target is the account that the money goes to; "" for an unknown type.
func (t Type) Target() AccountType { return pairs[t].target }

// sound says what is wrong with the pairs: a target that may refuse needs a source
// that takes the money back.
func sound(pairs map[Type]pair, accounts map[AccountType]account) error {
	for t, p := range pairs {
		source, target := accounts[p.source], accounts[p.target]
		switch {
		case p.source == p.target:
			return fmt.Errorf("transfer type %d goes from %s to itself", t, p.source)
		case !source.supported || !target.supported:
			return fmt.Errorf("transfer type %d is between %s and %s, which are not both supported", t, p.source, p.target)
		case target.refuses && !source.reversible:
			return fmt.Errorf("transfer type %d: %s may refuse what %s cannot take back", t, p.target, p.source)
		}
	}
	return nil
}

// CheckAccounts finds the type of a transfer between the two, or the reason why
// there is none. A payout is from Funding to Chain; nothing else may name Chain.
func CheckAccounts(from, to AccountType, payout bool) (Type, Reason) {
	if payout {
		if from != Funding || to != Chain {
			return 0, InvalidAccountType
		}
		return FundingToChain, ""
	}
	switch {
	case !accounts[from].known || !accounts[to].known:
		return 0, InvalidAccountType
	case from == to:
		return 0, SameAccount
	}
	for t, p := range pairs {
		if p.source == from && p.target == to {
			return t, ""
		}
	}
	return 0, UnsupportedAccountType
}
