package payout

import (
	"errors"
	"fmt"
	"math/big"
	"time"

	"github.com/fencepost/fencepost/shared/chain"
	"github.com/fencepost/fencepost/shared/transfer"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// AddressError reports an address that cannot be paid. It unwraps to the refusal
// [transfer.InvalidAddress].
type AddressError struct {
	Problem string // shown to the user
}

func (e AddressError) Error() string { return "address: " + e.Problem }

// Unwrap returns the refusal that the API answers.
func (e AddressError) Unwrap() error { return transfer.RefusedError{Reason: transfer.InvalidAddress} }

// Prepare fixes the payout of so many units of the asset to the address, by the asset's present
// terms. The family of the payer's chain reads the address.
// Prepare refuses an address that no account has, the payer and the token's contract, because money sent there is
// lost or goes nowhere.
//
// The error is an [AddressError], or a [transfer.RefusedError] with another reason if the asset has no
// payouts or units is 0. Any other error describes a mistake in the asset's terms.
//
// A payout that needs more gas than maxGas is refused before it is sent: the recipient can be a
// contract that burns the payer's gas.
func Prepare(families chain.Families, asset transfer.Asset, units uint64, address string, maxGas uint64) (*transfer.Payout, error) {
	switch {
	case asset.Payout == nil:
		return nil, transfer.RefusedError{Reason: transfer.TransferNotAllowed}
	case units == 0:
		return nil, transfer.RefusedError{Reason: transfer.InvalidAmount}
	}
	terms := *asset.Payout
	family, token, err := CheckTerms(families, asset.Precision, terms)
	if err != nil {
		return nil, fmt.Errorf("terms of payout of %s: %w", asset.Name, err)
	}
	to, err := checkAddress(family, address, txmanager.Submitter(terms.Submitter).Address(), token)
	if err != nil {
		return nil, err
	}
	p := &transfer.Payout{
		Submitter: terms.Submitter, ChainID: terms.ChainID, Token: terms.Token, Address: to.String(),
		BaseUnits: terms.BaseUnits(units, asset.Precision),
	}
	amount, _ := new(big.Int).SetString(p.BaseUnits, 10) // BaseUnits formats a number
	if p.Payload, err = family.PaymentPayload(token, to, amount, maxGas); err != nil {
		return nil, fmt.Errorf("render the payout of %s: %w", asset.Name, err)
	}
	return p, nil
}

// CheckTerms validates the form of an asset's terms. It returns the family of the payer's chain and the
// token's contract; nil: the chain's own coin.
func CheckTerms(families chain.Families, precision int, terms transfer.PayoutTerms) (family chain.Family, token *txmanager.Address, err error) {
	if s := txmanager.Submitter(terms.Submitter); s.Namespace() != Namespace {
		return nil, nil, fmt.Errorf("payer %q is not of namespace %s, the only one with payouts", s, Namespace)
	}
	if family, err = families.Named(Namespace); err != nil {
		return nil, nil, err
	}
	s, err := chain.ParseSubmitter(family, terms.Submitter, terms.ChainID)
	switch {
	case err != nil:
		return family, nil, err
	case string(s) != terms.Submitter || s.ChainID() != terms.ChainID:
		return family, nil, fmt.Errorf("payer %q is no account of chain %d in its canonical form", terms.Submitter, terms.ChainID)
	case terms.Decimals < precision:
		return family, nil, fmt.Errorf("%d decimals on the chain, fewer than the %d of the asset", terms.Decimals, precision)
	case terms.Token == "":
		return family, nil, nil
	}
	contract, err := family.ParseAccount(terms.Token)
	if err == nil && contract.String() != terms.Token {
		err = errors.New("the token's contract is not in its canonical form")
	}
	return family, &contract, err
}

// Namespace is of the chains that payouts can go to: the columns of payouts have the form of their addresses.
const Namespace = "eip155"

// ParseAddress reads an address that a payout may name. No other family is tried, since it may accept a
// mistyped one. The error is a [*chain.FieldError], or tells that the deployment serves no such chain.
func ParseAddress(families chain.Families, text string) (txmanager.Address, error) {
	family, err := families.Named(Namespace)
	if err != nil {
		return "", err
	}
	return family.ParseAddress(text)
}

func checkAddress(family chain.Family, text string, payer txmanager.Address, token *txmanager.Address) (txmanager.Address, error) {
	to, err := family.ParseAddress(text)
	if field, ok := errors.AsType[*chain.FieldError](err); ok {
		return to, AddressError{field.Problem}
	}
	switch {
	case err != nil:
		return to, AddressError{"want an address, " + family.AddressForm()}
	case family.Unpayable(to) != "":
		return to, AddressError{family.Unpayable(to)}
	case to == payer:
		return to, AddressError{"is the account that pays"}
	case token != nil && to == *token:
		return to, AddressError{"is the token's own contract"}
	}
	return to, nil
}

// finalizedBlocks is the number of blocks within which a healthy chain finalizes a transaction:
// three epochs of Ethereum.
//
// Source: https://ethereum.org/en/developers/docs/consensus-mechanisms/pos/gasper
const finalizedBlocks = 96

// Limit returns how long a payout can take before an alert, for [transfer.Rules]: twice the
// expected finality, and at least least.
func Limit(f txmanager.Finality, confirmations uint64, blockTime, least time.Duration) time.Duration {
	blocks := confirmations + 2 // its own block, and the one after which the poll comes
	if f != txmanager.ByConfirmations {
		blocks = finalizedBlocks
	}
	return max(2*time.Duration(blocks)*blockTime, least)
}
