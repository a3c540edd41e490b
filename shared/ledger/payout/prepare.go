package payout

import (
	"errors"
	"fmt"
	"math/big"
	"time"

	"github.com/fencepost/fencepost/shared/chain/evm"
	"github.com/fencepost/fencepost/shared/nonce"
	"github.com/fencepost/fencepost/shared/transfer"
)

// ErrAddress is an address that cannot be paid to. It unwraps to the refusal with
// [transfer.InvalidAddress].
type ErrAddress struct {
	Problem string // in words for the user
}

// Error is the problem.
func (e ErrAddress) Error() string { return "address: " + e.Problem }

// Unwrap is the refusal that the API answers.
func (e ErrAddress) Unwrap() error { return transfer.ErrRefused{Reason: transfer.InvalidAddress} }

// Prepare fixes what a payout of so many units of the asset to the address will do,
// by the asset's terms of this moment. The address is 0x and 40 hex digits; in mixed
// case they must carry the checksum of EIP-55. The zero address, the payer and the
// token's contract are refused: what goes there is lost, or goes nowhere.
//
// The error is an [ErrAddress], or a [transfer.ErrRefused] with another reason where
// the asset has no payouts or units is 0. Any other says what is wrong with the asset's
// terms.
//
// A payout that needs more gas than maxGas is refused before it is sent: who is paid
// is code that may burn what the payer has.
func Prepare(asset transfer.Asset, units uint64, address string, maxGas uint64) (*transfer.Payout, error) {
	switch {
	case asset.Payout == nil:
		return nil, transfer.ErrRefused{Reason: transfer.TransferNotAllowed}
	case units == 0:
		return nil, transfer.ErrRefused{Reason: transfer.InvalidAmount}
	}
	terms := *asset.Payout
	token, err := checkTerms(asset, terms)
	if err != nil {
		return nil, fmt.Errorf("terms of payout of %s: %w", asset.Name, err)
	}
	to, err := checkAddress(address, nonce.Submitter(terms.Submitter).Address(), token)
	if err != nil {
		return nil, err
	}
	p := &transfer.Payout{
		Submitter: terms.Submitter, ChainID: terms.ChainID, Token: terms.Token, Address: to.String(),
		BaseUnits: terms.BaseUnits(units, asset.Precision),
	}
	amount, ok := new(big.Int).SetString(p.BaseUnits, 10)
	if !ok {
		return nil, fmt.Errorf("base units %q of %s are no number", p.BaseUnits, asset.Name)
	}
	if p.Payload, err = evm.PaymentPayload(token, to, amount, maxGas); err != nil {
		return nil, fmt.Errorf("render the payout of %s: %w", asset.Name, err)
	}
	return p, nil
}

// checkTerms holds the terms to the one form that they are stored in, and returns the
// token's contract; nil: the chain's own coin.
func checkTerms(asset transfer.Asset, terms transfer.PayoutTerms) (*nonce.Address, error) {
	s, err := nonce.ParseSubmitter(terms.Submitter, terms.ChainID)
	switch {
	case err != nil:
		return nil, err
	case string(s) != terms.Submitter || s.ChainID() != terms.ChainID:
		return nil, fmt.Errorf("payer %q is no account of chain %d in its canonical form", terms.Submitter, terms.ChainID)
	case terms.Decimals < asset.Precision:
		return nil, fmt.Errorf("%d decimals on the chain, fewer than the %d of the asset", terms.Decimals, asset.Precision)
	case terms.Token == "":
		return nil, nil
	}
	token, err := nonce.ParseAddress(terms.Token)
	if err == nil && token.String() != terms.Token {
		err = errors.New("the token's contract is not in lower case")
	}
	return &token, err
}

func checkAddress(text string, payer nonce.Address, token *nonce.Address) (nonce.Address, error) {
	to, err := evm.ParseAddress(text)
	if field, ok := errors.AsType[*evm.FieldError](err); ok {
		return to, ErrAddress{field.Problem}
	}
	switch {
	case err != nil:
		return to, ErrAddress{"want an address, 0x and 40 hex digits"}
	case to == nonce.Address{}:
		return to, ErrAddress{"is the zero address, which nobody holds"}
	case to == payer:
		return to, ErrAddress{"is the account that pays"}
	case token != nil && to == *token:
		return to, ErrAddress{"is the token's own contract"}
	}
	return to, nil
}

// finalizedBlocks is how many blocks after its inclusion a transaction is finalized at
// the latest, while the chain is healthy: three epochs of Ethereum.
//
// Source: https://ethereum.org/en/developers/docs/consensus-mechanisms/pos/gasper
const finalizedBlocks = 96

// Limit is how long a payout may take before a person is told: twice the expected
// finality, for [transfer.Rules]. It is never below least.
func Limit(f nonce.Finality, confirmations uint64, blockTime, least time.Duration) time.Duration {
	blocks := confirmations + 2 // its own, and the one that the poll comes after
	if f != nonce.ByConfirmations {
		blocks = finalizedBlocks
	}
	return max(2*time.Duration(blocks)*blockTime, least)
}
