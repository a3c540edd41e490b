package txmanager

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math/big"
	"time"
)

// ChainConnector is what the transaction manager needs of one chain.
//
// Every implementation gives the same meaning to silence: a call that fails or
// times out as a whole is an error and says nothing about the chain; an answer
// inside a [ChainObservation] that the node could not give is marked unknown; and "not
// found" is only ever what one node said at one moment. None of the three is
// proof that something did not happen.
type ChainConnector interface {
	// ParsePayload reads a stored payload. An error means that the payload can never
	// become a transaction.
	ParsePayload(payload []byte) (Call, error)

	// CheckCall says why no node would ever take a call that was not read by Call, or nil.
	CheckCall(c Call) error

	// ParseSigned reads signed bytes that came from elsewhere: who signed them, what they do,
	// and their hash. An error means that no node will ever take them, or that they
	// are of a kind which is not stored here.
	ParseSigned(raw []byte) (from Address, tx Unsigned, s Signed, err error)

	// Query asks one node everything that one judgement needs, in one round
	// trip, or a few where it is much. Asking twice changes nothing.
	Query(ctx context.Context, q ChainQuery) (ChainObservation, error)

	// Send hands raw transactions to the chain in the order given, in one
	// round trip, and returns one result for each. It never fails as a whole:
	// what got no answer is [SendUnknown]. Sending the same bytes again is
	// harmless.
	Send(ctx context.Context, raws [][]byte) []SendResult

	// FindConsumingTx finds the transaction by which the account's nonce n was consumed,
	// on one node's chain as it is now. The error wraps [ErrNotConsumed] if the
	// node says that n is not consumed, and [ErrConsumerUnavailable] if it has answered and
	// will not tell however often it is asked. After any other error the same
	// question may be answered.
	FindConsumingTx(ctx context.Context, s Submitter, n uint64) (ConsumingTx, error)

	// ReadBlocks reads final blocks of one node's chain whole, and finds the
	// transactions of the account in them. A node keeps its blocks, also where it no
	// longer keeps old counts. An answer that tells of fewer blocks than were asked
	// for is no error. The error wraps [ErrConsumerUnavailable] if the node has answered and will
	// not give the blocks however often it is asked.
	ReadBlocks(ctx context.Context, q BlocksQuery) (BlocksRead, error)

	// Transaction reads the transaction of that hash, mined or not. What it returns is
	// proved by the hash. The error wraps [ErrNoTransaction] if no node that answered
	// knows it.
	Transaction(ctx context.Context, hash Hash) (SignedTransaction, error)
}

// SignedTransaction is a transaction that was read by its hash: who signed it, and what
// it does.
type SignedTransaction struct {
	From  Address
	Nonce uint64
	Tx    ConsumingTx // Hash, To, ValueWei and Data; it is of no block
}

// ErrNoTransaction reports a hash of which a node knows no transaction. It may come to
// know it.
var ErrNoTransaction = errors.New("the node knows no transaction of that hash")

// ErrNotConsumed reports a nonce that the chain has not consumed.
var ErrNotConsumed = errors.New("the nonce is not consumed")

// ErrConsumerUnavailable reports a consumed nonce of which a node cannot tell by what: it no longer
// keeps so old a state or block, or no transaction of the account did it.
var ErrConsumerUnavailable = errors.New("the node cannot tell what consumed the nonce")

// ErrNoCounts reports a consumed nonce of which a node cannot tell by what, since it no
// longer keeps the account's counts at blocks so old. It may still keep the blocks.
var ErrNoCounts = errors.New("the node keeps no counts of so old a block")

// BlocksQuery asks for the transactions of an account in the blocks that follow one.
type BlocksQuery struct {
	Submitter Submitter
	After     uint64    // the block that was read last
	Most      int       // how many blocks are read at most
	OlderThan time.Time // not zero: no block is read, and [BlocksRead.End] is the last final block that is older, or the first block of the chain
	Turn      int       // of a chain with several nodes: how many of them are passed over at first
}

// BlocksRead is what one node's blocks have of an account.
type BlocksRead struct {
	Node         string                 // which node answered; no credentials
	Final        uint64                 // the last final block
	End          uint64                 // every block after the query's After, up to this one, was read
	Transactions map[uint64]ConsumingTx // the account's transactions, by their nonces
}

// ConsumingTx is the transaction that consumed a nonce, whoever signed it.
type ConsumingTx struct {
	Hash        Hash     `json:"hash"`
	BlockNumber uint64   `json:"blockNumber"`
	BlockHash   Hash     `json:"blockHash"`
	Node        string   `json:"node"`  // which node answered; no credentials
	To          *Address `json:"to"`    // nil deploys a contract
	ValueWei    string   `json:"value"` // decimal, in wei
	Data        []byte   `json:"-"`
}

// Call is what an intent wants done, before nonce and fee.
type Call struct {
	To    *Address // nil deploys a contract
	Value *big.Int // wei
	Data  []byte
	Gas   uint64 // gas limit; 0: estimate it

	// MaxGas is the most gas that an estimate may come to: a call that needs more is
	// refused. 0: as much as one transaction may have.
	MaxGas uint64

	FeeCapWei *big.Int // maxFeePerGas, wei per gas; nil: as the node advises
	TipCapWei *big.Int // maxPriorityFeePerGas, wei per gas; nil: as the node advises
}

// Does says that the transaction t does what c wants: to, value and data.
func (c Call) Does(t ConsumingTx) bool {
	value := "0"
	if c.Value != nil {
		value = c.Value.String()
	}
	sameTo := (c.To == nil) == (t.To == nil) && (c.To == nil || *c.To == *t.To)
	return sameTo && value == t.ValueWei && bytes.Equal(c.Data, t.Data)
}

// Unsigned is a transaction ready to be signed: an EIP-1559 transaction, or one of
// legacy form with a chain id (EIP-155).
type Unsigned struct {
	ChainID   uint64
	Nonce     uint64
	To        *Address // nil deploys a contract
	Value     *big.Int // wei
	Data      []byte
	Gas       uint64
	Legacy    bool     // of legacy form: FeeCapWei is its price of gas, and TipCapWei the same
	FeeCapWei *big.Int // maxFeePerGas, wei per gas
	TipCapWei *big.Int // maxPriorityFeePerGas, wei per gas
}

// Signed is a signed transaction: the bytes that a node takes, and the hash by
// which the chain will know them.
type Signed struct {
	Hash Hash
	Raw  []byte
}

// ChainQuery is one question to one node. The head of the chain is always asked for;
// the rest only where set.
type ChainQuery struct {
	Submitter    Submitter
	Account      bool     // counts, balance, code, fees
	Receipts     []Hash   // transactions whose receipts are wanted
	Hints        []Hint   // of Receipts, one each and in their order, or none; they only count with Account
	Known        []Hash   // transactions the node may know, mined or pending
	FromBlock    uint64   // headers FromBlock … ToBlock by number, the head's chain;
	ToBlock      uint64   // none if ToBlock is 0; numbers past the head are left out
	Estimates    []Call   // gas estimates, as calls from the submitter on the head
	SelfTransfer bool     // a gas estimate of nothing, sent to itself: a placeholder's
	FinalCount   bool     // the account's count at the chain's finalized block; where the chain is declared to have none, so many blocks below the head as make a transaction final
	Finality     string   // "", "safe" or "finalized": the block with that tag
	HashesAt     []uint64 // heights whose blocks' hashes are wanted, at most 100
}

// Hint is what is known of a transaction whose receipt is wanted. By hints a look
// at many costs the node less; they change no answer but this one: of a version
// whose nonce the account's count says is not consumed, and of one whose nonce
// another has consumed, the receipt is not found without being asked for.
type Hint struct {
	Nonce uint64 // of the look's submitter
	Block uint64 // where it, or another version of its nonce, was found before; 0: nowhere
}

// ChainObservation is one node's answer to a [ChainQuery].
type ChainObservation struct {
	Node         string // which node answered, for evidence; no credentials
	Head         Header
	StartHead    *Header // the head when the answer began: nothing in it is older; nil: Head
	Account      Account
	Receipts     map[Hash]ReceiptAnswer // one for each hash asked for
	Known        map[Hash]Answer        // one for each hash asked for
	Headers      []Header               // ascending and without holes, or empty where the node did not give them all
	Estimates    []Estimate             // one for each call asked for, in order
	FinalCount   *uint64                // where asked for; nil: the node has none
	FinalBlock   *uint64                // at which FinalCount was asked for, or a later one; nil: not known
	SelfTransfer Estimate               // where asked for
	Tagged       *Header                // the block with the tag; nil: the node has none
	HashesAt     map[uint64]Hash        // by height, of the head's chain; absent where the node has no block or gave no answer

	// Of a chain with several nodes; nil, and nothing in doubt, where it has one.
	OtherNodes OtherNodes
	Lagging    bool     // the node is far behind the others: what it does not show, it may not have yet
	Forked     bool     // its head is no block of the chain of the node whose word it is asked about
	NoAnswer   bool     // the node, which was not known to be away, gave no answer: what it would say is open, and nothing else is in here but its name
	Disputes   Disputes // what too few of them bear out
	AgreedBy   string   // who bears out the sign of a broken premise, by their names
}

// oldestBlock is the height that nothing in the view is older than.
func (v ChainObservation) oldestBlock() uint64 {
	if v.StartHead != nil {
		return v.StartHead.Number
	}
	return v.Head.Number
}

// Account is the chain's word on the submitter.
type Account struct {
	LatestCount  uint64   // transactions mined up to the head: the next nonce the chain will take
	PendingCount uint64   // the same with the node's pool
	BalanceWei   *big.Int // at the head
	HasCode      bool     // the account has code (or a delegation): its count may move by itself
	BaseFeeWei   *big.Int // of the head, wei per gas; 0: the chain has none
	TipWei       *big.Int // what blocks are paid beside it, as the node advises or its history says, wei per gas; nil where GasPriceWei is not
	GasPriceWei  *big.Int // on a chain without EIP-1559: the node's advice, wei per gas; nil: the chain has it
}

// Header is a block's place in its chain.
type Header struct {
	Number uint64 `json:"number"`
	Hash   Hash   `json:"hash"`
	Parent Hash   `json:"-"`
	Time   uint64 `json:"-"` // seconds since 1970, by the block's maker
}

// Answer is what a node said of something it was asked for by name.
type Answer int

// The zero Answer is the one that proves nothing.
const (
	AnswerUnknown  Answer = iota // no answer, or "cannot say yet"
	AnswerNotFound               // this node does not have it now
	AnswerFound
)

// ReceiptAnswer is a node's word on one transaction's receipt.
type ReceiptAnswer struct {
	Answer  Answer
	Receipt Receipt // where Answer is AnswerFound
}

// Receipt proves that a transaction was included in one block.
type Receipt struct {
	TxHash      Hash            `json:"txHash"`
	BlockNumber uint64          `json:"blockNumber"`
	BlockHash   Hash            `json:"blockHash"`
	Succeeded   bool            `json:"succeeded"` // false: included and reverted; its nonce is consumed all the same
	Document    json.RawMessage `json:"document"`  // the node's receipt, without its logsBloom, which follows from the logs
}

// Estimate is a node's word on the gas that a call would take.
type Estimate struct {
	Outcome Outcome
	Gas     uint64 // where Outcome is Done
	Reason  string // where it is not: the node's text, shortened
}

// Outcome is the result of any call to the outside. Only Done and Refused are
// facts; every outside call has all three.
type Outcome int

// The zero Outcome is the one that proves nothing.
const (
	Unknown Outcome = iota
	Done
	Refused
)

// String names the outcome for logs.
func (o Outcome) String() string { return [...]string{"unknown", "done", "refused"}[o] }

// SendClass is what a node's answer to a raw transaction means. Node texts are
// turned into classes once, at the connector's edge.
type SendClass int

// The classes. Only SendAccepted and SendAlreadyKnown say that a node holds the
// bytes; no class says that it never will.
const (
	SendUnknown           SendClass = iota // time-out, no connection, a text nobody knows
	SendAccepted                           // the node took it
	SendAlreadyKnown                       // the node had it
	SendNonceTooLow                        // that nonce is consumed, by whom is not said
	SendNonceTooHigh                       // the node will not hold one so far ahead
	SendUnderpriced                        // another version of the nonce pays as much: never a success
	SendFeeTooLow                          // below what the node takes now
	SendInsufficientFunds                  // the account cannot pay now
	SendPoolFull                           // the node has no room now
	SendOverNodeCap                        // the fee may come to more than the node sends for anybody: it never entered the node's pool
	SendInvalid                            // no node will ever take these bytes
)

var sendClassNames = [...]string{"unknown", "accepted", "already_known", "nonce_too_low", "nonce_too_high",
	"replacement_underpriced", "fee_too_low", "insufficient_funds", "pool_full", "over_node_cap", "invalid"}

// String names the class for logs and metrics.
func (c SendClass) String() string { return sendClassNames[c] }

// SendResult is a node's answer to one raw transaction.
type SendResult struct {
	Class SendClass
	Node  string // which node answered
	Text  string // the node's words, shortened, where it did not accept
}

// Acknowledged says that a node holds the bytes.
func (r SendResult) Acknowledged() bool {
	return r.Class == SendAccepted || r.Class == SendAlreadyKnown
}

// Signer signs for submitters. It never sends.
type Signer interface {
	// Sign signs tx for s. It may be called from many goroutines. An error is unknown, never a refusal: asking again
	// may give other bytes with another hash, so what comes back is stored
	// before it is used. What it returns is checked by the implementation:
	// sender, chain, nonce, and that it is the transaction that was asked for.
	Sign(ctx context.Context, s Submitter, tx Unsigned) (Signed, error)

	// InProcess says that the signed bytes of s cannot have left this process
	// before Sign returned, wherever the key is. Only then may the next nonce be
	// signed for before it is allocated.
	InProcess(s Submitter) bool
}
