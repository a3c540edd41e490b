package chain

import (
	"math/big"

	"github.com/fencepost/fencepost/shared/txmanager"
)

// NativeCoin is the LogIndex of a payment in the chain's own coin.
const NativeCoin = -1

// Payment is money that left an account in a final block: the value of one of its transactions, or a
// Transfer event of a token.
type Payment struct {
	TxHash      txmanager.Hash
	LogIndex    int // of the Transfer event in its block, or [NativeCoin]
	BlockNumber uint64
	BlockHash   txmanager.Hash
	Token       *txmanager.Address // nil: the chain's own coin
	To          *txmanager.Address // nil: the transaction deployed a contract
	Amount      *big.Int           // in the smallest unit
}

// PaymentsQuery requests the payments of one account in the blocks after one.
type PaymentsQuery struct {
	Payer     txmanager.Address
	After     uint64              // the block that was read last
	AfterHash txmanager.Hash      // its hash; zero: it is not compared with the chain
	Sent      uint64              // a lower bound of the account's transaction count at After
	UpTo      uint64              // the last block to read
	Tokens    []txmanager.Address // whose events are requested
	ByTag     bool                // the tag "finalized" decides finality; otherwise Depth
	Depth     uint64              // a block is final with this many blocks, itself included
	MaxBlocks int                 // maximum of whole blocks to read; 0: any number
}

// Payments is the result of a read.
type Payments struct {
	Node      string
	Final     uint64         // the last final block
	End       uint64         // each block after the query's After, up to this one, was read
	EndHash   txmanager.Hash // of block End; if nothing was read, of block After
	Sent      uint64         // a lower bound of the account's transaction count at End
	Found     []Payment      // by block, transaction and event, each once
	WentBack  bool           // block After has another hash now, EndHash; nothing was read
	FullReads int            // whole blocks that were read
}

// PaymentsStart is the block after which the reading of an account's payments begins.
type PaymentsStart struct {
	Block uint64
	Hash  txmanager.Hash
	Sent  uint64 // a lower bound of the account's transaction count at it
}

// PaymentProof holds the fields of a receipt that prove a payment: sender, called contract, token transfers.
type PaymentProof struct {
	From, To  txmanager.Address // To is zero for a deployment
	Succeeded bool
	Transfers []TokenTransfer
}

// TokenTransfer is one Transfer event of ERC-20.
type TokenTransfer struct {
	Token, From, To txmanager.Address
	Amount          *big.Int // in the token's smallest unit
	LogIndex        int      // of the event in its block
}
