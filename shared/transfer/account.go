package transfer

import "fmt"

// AccountType names a kind of account. One ledger keeps all accounts of a kind.
type AccountType string

// The account types. Future and Margin are known but have no ledger yet. Chain is an address
// outside the ledgers, the target of a payout. A transfer request cannot name it.
const (
	Funding AccountType = "FUNDING"
	Spot    AccountType = "SPOT"
	Future  AccountType = "FUTURE"
	Margin  AccountType = "MARGIN"
	Chain   AccountType = "CHAIN"
)

// Type is the stored kind of a transfer: a pair of source and target account types.
type Type int16

// The types.
const (
	FundingToSpot  Type = 1
	SpotToFunding  Type = 2
	FundingToChain Type = 3 // a payout
)

// account has the properties of a ledger that decide which transfers are possible.
type account struct {
	known      bool // a request can name it
	supported  bool
	reversible bool // as a source, it can refund a withdrawal
	refuses    bool // as a target, it can refuse a deposit
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

// Source returns the account type that the money leaves; "" for an unknown type.
func (t Type) Source() AccountType { return pairs[t].source }

// Target returns the account type that receives the money; "" for an unknown type.
func (t Type) Target() AccountType { return pairs[t].target }

// checkPairs returns an error for the first invalid pair. A target that can refuse a deposit
// needs a source that can refund: the money would otherwise be stuck between them.
func checkPairs(pairs map[Type]pair, accounts map[AccountType]account) error {
	for t, p := range pairs {
		source, target := accounts[p.source], accounts[p.target]
		switch {
		case p.source == p.target:
			return fmt.Errorf("transfer type %d goes from %s to itself", t, p.source)
		case !source.supported || !target.supported:
			return fmt.Errorf("transfer type %d is between %s and %s, which are not both supported", t, p.source, p.target)
		case target.refuses && !source.reversible:
			return fmt.Errorf("transfer type %d: %s can refuse a deposit, and %s cannot refund it", t, p.target, p.source)
		}
	}
	return nil
}

// CheckAccounts returns the type of a transfer from one account type to the other, or the reason
// to refuse it. A payout is from Funding to Chain; no other request can name Chain.
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
