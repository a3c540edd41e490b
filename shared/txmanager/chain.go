package txmanager

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"math/big"
	"time"
)

// ChainConnector is what the transaction manager needs from one chain.
//
// Every implementation treats missing answers the same way. A call that fails or times out as a whole is
// an error and says nothing about the chain. An answer inside a [ChainObservation] that the node
// could not give is marked unknown. "Not found" is the answer of one node at one moment. None of
// the three proves that something did not happen.
type ChainConnector interface {
	// ParsePayload parses a stored payload. An error means that the payload can never become a
	// transaction.
	ParsePayload(payload []byte) (Call, error)

	// CheckCall returns why no node would ever accept c, or nil. It is for calls that did not come
	// from ParsePayload.
	CheckCall(c Call) error

	// ParseSigned parses bytes signed elsewhere. It returns the signer's address, the transaction
	// and the hash. An error means that no node will ever accept the bytes, or that their type is
	// not supported here.
	ParseSigned(raw []byte) (from Address, tx Unsigned, s Signed, err error)

	// Query asks one node everything that one evaluation needs, in one round trip, or in a few
	// where there is much. It can be repeated.
	Query(ctx context.Context, q ChainQuery) (ChainObservation, error)

	// Send sends raw transactions to the chain in the given order, in one round trip, and returns
	// one result for each. It never fails as a whole: a transaction without an answer gets
	// [SendUnknown]. Sending the same bytes again is harmless.
	Send(ctx context.Context, raws [][]byte) []SendResult

	// FindConsumingTx finds the transaction that consumed the account's nonce n, on one node's
	// present chain. The error wraps [ErrNotConsumed] if the node says that n is not consumed. It
	// wraps [ErrConsumerUnavailable] if the node answered and can never give the transaction.
	// After any other error the query can be repeated.
	FindConsumingTx(ctx context.Context, s Submitter, n uint64) (ConsumingTx, error)

	// ReadBlocks reads whole final blocks of one node's chain and finds the account's transactions
	// in them. A node keeps its blocks even where it no longer keeps old counts. The answer may
	// cover fewer blocks than requested; that is no error. The error wraps
	// [ErrConsumerUnavailable] if the node answered and can never give the blocks.
	ReadBlocks(ctx context.Context, q BlocksQuery) (BlocksRead, error)

	// Transaction reads the transaction with that hash, mined or not. The hash proves the result.
	// The error wraps [ErrNoTransaction] if no node that answered knows it.
	Transaction(ctx context.Context, hash Hash) (SignedTransaction, error)
}

// SignedTransaction is a transaction that was read by its hash, with its signer.
type SignedTransaction struct {
	From  Address
	Nonce uint64
	Tx    ConsumingTx // Hash, To, ValueWei and Data; no block
}

// Errors of a [ChainConnector].
var (
	// ErrNoTransaction reports a hash for which a node knows no transaction now. The node may learn
	// of it later.
	ErrNoTransaction = errors.New("the node knows no transaction of that hash")
	// ErrNotConsumed reports a nonce that the chain has not consumed.
	ErrNotConsumed = errors.New("the nonce is not consumed")
	// ErrConsumerUnavailable reports a consumed nonce whose consuming transaction the node cannot
	// give. The node no longer keeps that state or block, or no transaction of the account consumed
	// the nonce.
	ErrConsumerUnavailable = errors.New("the node cannot find the transaction that consumed the nonce")
	// ErrNoCounts reports a consumed nonce whose consuming transaction the node cannot give, because
	// it no longer keeps such old account counts. It may still keep the blocks.
	ErrNoCounts = errors.New("the node has no nonce counts of a block that old")
)

// BlocksQuery asks for the transactions of an account in the blocks that follow one.
type BlocksQuery struct {
	Submitter Submitter
	After     uint64    // the last block that was read
	MaxBlocks int       // the maximum of blocks to read
	OlderThan time.Time // not zero: read no block; [BlocksRead.End] is the last final block older than this, or the first block of the chain
	Turn      int       // for a chain with several nodes: how many of them to skip at first
}

// BlocksRead holds the account's transactions in one node's blocks.
type BlocksRead struct {
	Node         string                 // the node that answered; no credentials
	Final        uint64                 // the last final block
	End          uint64                 // every block after the query's After, up to this one, was read
	Transactions map[uint64]ConsumingTx // the account's transactions by nonce
}

// ConsumingTx is the transaction that consumed a nonce, signed here or elsewhere.
type ConsumingTx struct {
	Hash        Hash     `json:"hash"`
	BlockNumber uint64   `json:"blockNumber"`
	BlockHash   Hash     `json:"blockHash"`
	Node        string   `json:"node"`  // the node that answered; no credentials
	To          *Address `json:"to"`    // nil deploys a contract
	ValueWei    string   `json:"value"` // decimal, in wei
	Data        []byte   `json:"-"`
}

// Call is the call that an intent requests, before nonce and fee.
type Call struct {
	To    *Address // nil deploys a contract
	Value *big.Int // wei
	Data  []byte
	Gas   uint64 // gas limit; 0: to be estimated

	// MaxGas is the highest accepted gas estimate; a call that needs more is refused. 0: the limit
	// of one transaction.
	MaxGas uint64

	FeeCapWei *big.Int // maxFeePerGas, wei per gas; nil: as the node advises
	TipCapWei *big.Int // maxPriorityFeePerGas, wei per gas; nil: as the node advises
}

// Does reports whether t has the To, Value and Data of c.
func (c Call) Does(t ConsumingTx) bool { return c.Digest() == t.CallDigest() }

// Unsigned is a transaction ready to be signed: EIP-1559, or legacy with a chain id (EIP-155).
type Unsigned struct {
	ChainID   uint64
	Nonce     uint64
	To        *Address // nil deploys a contract
	Value     *big.Int // wei
	Data      []byte
	Gas       uint64
	Legacy    bool     // a legacy transaction: FeeCapWei is its gas price, and TipCapWei the same
	FeeCapWei *big.Int // maxFeePerGas, wei per gas
	TipCapWei *big.Int // maxPriorityFeePerGas, wei per gas
}

// Signed is a signed transaction: the bytes that are sent, and their hash on the chain.
type Signed struct {
	Hash Hash
	Raw  []byte
}

// ChainQuery is one query to one node. It always includes the chain's head; the rest only where
// set.
type ChainQuery struct {
	Submitter    Submitter
	Account      bool     // counts, balance, code, fees
	Receipts     []Hash   // transactions whose receipts are queried
	Hints        []Hint   // none, or one for each of Receipts, in their order; used only with Account
	Known        []Hash   // transactions to look up, mined or pending
	FromBlock    uint64   // headers FromBlock … ToBlock by number, on the head's chain;
	ToBlock      uint64   // none if ToBlock is 0; numbers above the head are skipped
	Estimates    []Call   // gas estimates, as calls from the submitter at the head
	SelfTransfer bool     // a gas estimate of a zero-value transfer to itself: a placeholder's
	FinalCount   bool     // the account's count at the chain's finalized block; for a chain declared without one, at the block as deep as confirmations make final
	Finality     string   // "", "safe" or "finalized": the block with that tag
	HashesAt     []uint64 // heights whose block hashes are queried, at most 100
}

// Hint is known data about a transaction whose receipt is queried. Hints let a node do less work
// for a large query. They change only one kind of answer. A receipt is reported as not found
// without a query in two cases: the account's count shows that the nonce is not consumed, or
// another version consumed it.
type Hint struct {
	Nonce uint64 // of the query's submitter
	Block uint64 // where it, or another version of its nonce, was found before; 0: not found yet
}

// ChainObservation is one node's answer to a [ChainQuery].
type ChainObservation struct {
	Node         string // the node that answered, for evidence; no credentials
	Head         Header
	StartHead    *Header  // the head when the answer began: no part of the answer is older; nil: Head
	BaseFeeWei   *big.Int // of Head, wei per gas; nil: the chain has none
	Account      Account
	Receipts     map[Hash]ReceiptAnswer // one for each queried hash
	Known        map[Hash]Answer        // one for each queried hash
	Headers      []Header               // ascending without gaps, or empty where the node did not give them all
	Estimates    []Estimate             // one for each queried call, in order
	FinalCount   *uint64                // if queried; nil: the node has none
	FinalBlock   *uint64                // the block of FinalCount, or a later one; nil: unknown
	SelfTransfer Estimate               // if queried
	Tagged       *Header                // the block with the queried tag; nil: the node has none
	HashesAt     map[uint64]Hash        // by height, on the head's chain; absent where the node has no block or gave no answer

	// For a chain with several nodes. With one node OtherNodes is nil and nothing is disputed.
	OtherNodes OtherNodes
	Lagging    bool     // the node is far behind the others and may not have recent changes yet
	Forked     bool     // its head is not on the chain of the node whose observation it votes on
	NoAnswer   bool     // the node, which was not excluded, gave no answer: its vote is unknown, and only Node is set
	Disputes   Disputes // what too few other nodes agree with
	AgreedBy   string   // names of the nodes that agree with the violation
}

// OldestBlock is the lowest block that any part of the observation can come from.
func (v ChainObservation) OldestBlock() uint64 { return cmp.Or(v.StartHead, &v.Head).Number }

// Account is the chain's state of the submitter's account.
type Account struct {
	LatestCount  uint64   // transactions mined up to the head: the next nonce that the chain accepts
	PendingCount uint64   // the same, including the node's mempool
	BalanceWei   *big.Int // at the head
	HasCode      bool     // the account has code or a delegation: its count can rise without a transaction signed by it
	BaseFeeWei   *big.Int // of the head, wei per gas; 0: the chain has none
	TipWei       *big.Int // the tip by the node's advice or its fee history, wei per gas; nil where GasPriceWei is not
	GasPriceWei  *big.Int // on a chain without EIP-1559: the node's advice, wei per gas; nil on other chains
}

// Header is a block's place in its chain.
type Header struct {
	Number uint64 `json:"number"`
	Hash   Hash   `json:"hash"`
	Parent Hash   `json:"-"`
	Time   uint64 `json:"-"` // seconds since 1970, set by the block's producer
}

// Answer is a node's answer about one named item.
type Answer int

// The zero Answer is the one that proves nothing.
const (
	AnswerUnknown  Answer = iota // no answer, or not known yet
	AnswerNotFound               // the node does not have it now
	AnswerFound
)

// ReceiptAnswer is a node's answer about one transaction's receipt.
type ReceiptAnswer struct {
	Answer  Answer
	Receipt Receipt // where Answer is AnswerFound
}

// Receipt proves that a transaction was included in one block.
type Receipt struct {
	TxHash      Hash            `json:"txHash"`
	BlockNumber uint64          `json:"blockNumber"`
	BlockHash   Hash            `json:"blockHash"`
	Succeeded   bool            `json:"succeeded"` // false: included and reverted; the nonce is consumed as well
	Document    json.RawMessage `json:"document"`  // the node's receipt, without logsBloom, which the logs determine
}

// Estimate is a node's estimate of the gas for a call.
type Estimate struct {
	Outcome Outcome
	Gas     uint64 // where Outcome is Done
	Reason  string // otherwise the node's text, shortened

	Unfunded bool // where Outcome is Unknown: the account cannot pay the call's value
}

// Outcome is the result of an outside call. Only Done and Refused are facts.
type Outcome int

// The zero Outcome is the one that proves nothing.
const (
	Unknown Outcome = iota
	Done
	Refused
)

// String names the outcome for logs.
func (o Outcome) String() string { return [...]string{"unknown", "done", "refused"}[o] }

// SendClass classifies a node's answer to a raw transaction. The connector maps each node's text
// to a class.
type SendClass int

// The classes. Only SendAccepted and SendAlreadyKnown mean that a node holds the bytes. No class
// means that a node never will.
const (
	SendUnknown           SendClass = iota // time-out, no connection, or a text without a class
	SendAccepted                           // the node accepted it
	SendAlreadyKnown                       // the node had it already
	SendNonceTooLow                        // the nonce is consumed; the answer does not say by which transaction
	SendNonceTooHigh                       // the node does not hold nonces so far ahead
	SendUnderpriced                        // another version of the nonce pays as much: never a success
	SendFeeTooLow                          // below the node's present minimum
	SendInsufficientFunds                  // the account cannot pay now
	SendPoolFull                           // the node's mempool is full now
	SendOverNodeCap                        // the possible fee exceeds the node's limit: it never entered the mempool
	SendInvalid                            // no node will ever accept these bytes
)

// String names the class for logs and metrics.
func (c SendClass) String() string { return sendClasses[c].name }

// MarshalText is the class's name.
func (c SendClass) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// SendResult is a node's answer to one raw transaction.
type SendResult struct {
	Class SendClass
	Node  string // the node that answered
	Text  string // the node's text, shortened, where it did not accept

	Answers []NodeAnswer // for a chain with several nodes: of each node that answered in time; nil: Node's alone
}

// NodeAnswer is the answer of one node to one raw transaction.
type NodeAnswer struct {
	Node  string    `json:"node"` // no credentials
	Class SendClass `json:"answer"`
}

// Acknowledged reports whether a node holds the bytes.
func (r SendResult) Acknowledged() bool {
	return r.Class == SendAccepted || r.Class == SendAlreadyKnown
}

// Signer signs for submitters. It never sends.
type Signer interface {
	// Sign signs tx for s. It may be called from many goroutines. An error is unknown, never a
	// refusal. Another call may return other bytes with another hash, so the result is stored
	// before it is used. The implementation checks the result: sender, chain, nonce, and that it
	// is the requested transaction.
	Sign(ctx context.Context, s Submitter, tx Unsigned) (Signed, error)

	// InProcess reports whether the signed bytes of s cannot leave this process before Sign
	// returns, wherever the key is. Only then may the next nonce be signed for before it is
	// allocated.
	InProcess(s Submitter) bool
}

// OtherNodes are the other nodes of a chain with several. One node's answer is enough to advance a
// transaction. A claim that would end one, open PROTECT or remove a receipt is put to the others
// first.
type OtherNodes interface {
	// Quorum is how many nodes must agree, the first one included.
	Quorum() int

	// QueryOthers sends the query to at most n other nodes, except those named. Unavailable nodes
	// give no observation, so the list may be shorter or empty. An observation of a node that is
	// far behind has [ChainObservation.Lagging] set. One of a node that fails to answer for the
	// first time has [ChainObservation.NoAnswer] set.
	QueryOthers(ctx context.Context, q ChainQuery, n int, but ...string) []ChainObservation

	// QueryExcluded sends the query to the nodes that QueryOthers skips because they failed or
	// were on another chain, except those named. They may have recovered.
	QueryExcluded(ctx context.Context, q ChainQuery, but ...string) []ChainObservation

	// ReportOutvoted reports that the other nodes disagree with this one, which is then excluded
	// for a while.
	ReportOutvoted(ctx context.Context, node, what string)
}

// Disputes are the parts of an observation that too few other nodes agree with. They count as
// unknown.
type Disputes struct {
	Finality     bool   // that blocks are canonical: no transaction above FinalityUpTo becomes final
	FinalityUpTo uint64 // the highest agreed block below the disputed ones; 0: none
	Counts       bool   // counts, and blocks reported gone: no receipt is removed, nothing is suspected or allocated, and no transaction ends
}

// KeepsOpen reports whether transactions in the block must not end.
func (d Disputes) KeepsOpen(block uint64) bool {
	return d.Counts || d.Finality && block > d.FinalityUpTo
}

// ErrNoQuorum reports that too few nodes agree with what a decision depends on. Nothing was
// changed.
var ErrNoQuorum = errors.New("the chain's nodes do not agree")

// Finality is the rule that makes an included transaction final.
type Finality string

// By depth, or by one of the chain's block tags.
const (
	ByConfirmations Finality = "confirmations"
	BySafe          Finality = "safe"
	ByFinalized     Finality = "finalized"
)
