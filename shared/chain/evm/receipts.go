package evm

import (
	"errors"
	"slices"

	"github.com/ethereum/go-ethereum/common/hexutil"

	"github.com/fencepost/fencepost/shared/txmanager"
)

// Receipts can be requested by transaction or by block. For one transaction go-ethereum reads the whole
// block and hashes all its transactions each time; for a block it encodes all receipts. A block costs
// as much as 50 to 100 of its transactions.
const (
	fewReceipts = 32 // at most so many are requested by transaction with the rest of a query
	worthABlock = 64 // so many or more in one block are requested by block
	maxBlocks   = 4  // in one round trip: a full block's receipts are megabytes, and go-ethereum stops at 25 MB
	enoughTried = 3  // blocks that a walk down from the head tries before it may end
)

// blockReceipts is the call for all receipts of a block.
const blockReceipts = "eth_getBlockReceipts"

// receipts finds the receipts of one query, in as many round trips as needed.
//
// A transaction with a nonce at or above the account's count is in no block of the node's, and is not
// requested. If many of the others are in one block, they are requested by block. First come the blocks
// where they were before, then downwards from the head as long as that finds enough. The rest is
// requested by transaction, so a receipt that is missing in a block's answer decides nothing.
type receipts struct {
	answers map[txmanager.Hash]txmanager.ReceiptAnswer // one for each wanted transaction
	left    []wanted                                   // those without an answer
	known   *recent                                    // blocks whose receipts are all known
	byBlock bool                                       // many are left, and they have nonces and blocks as hints

	count  *call           // the account's count, in the first round trip
	single []*call         // one for each in left; under way
	blocks []*blockCall    // under way
	seen   map[uint64]bool // the heights of the requested blocks
	walk   walk
}

// walk goes down from the head, for receipts whose block is not known.
type walk struct {
	next    uint64 // the next height
	pace    int    // how many blocks it reads next, doubled each time; 0: it has ended
	tried   int    // blocks
	brought int    // receipts
}

// wanted is a transaction whose receipt is wanted.
type wanted struct {
	hash txmanager.Hash
	txmanager.Hint
}

// blockCall requests the receipts of the block at a height.
type blockCall struct {
	number uint64
	proof  txmanager.Hash // the hash of the block there, if there is no header
	header *call          // the block there, requested after the receipts
	answer *call
	walked bool // by the walk down from the head
}

func newReceipts(q txmanager.ChainQuery, known *recent) *receipts {
	r := &receipts{known: known, answers: make(map[txmanager.Hash]txmanager.ReceiptAnswer, len(q.Receipts)), seen: map[uint64]bool{},
		byBlock: q.Account && len(q.Receipts) > fewReceipts && len(q.Hints) == len(q.Receipts)}
	r.left = make([]wanted, len(q.Receipts))
	for i, h := range q.Receipts {
		r.answers[h], r.left[i].hash = txmanager.ReceiptAnswer{}, h
		if r.byBlock {
			r.left[i].Hint = q.Hints[i]
		}
	}
	return r
}

// begin returns the calls of the query's first round trip: every receipt, unless there are many and the
// account's count may make some unnecessary.
func (r *receipts) begin() []*call {
	if r.byBlock {
		return nil
	}
	return r.askSingle()
}

func (r *receipts) askSingle() []*call {
	r.single = askEach(r.left, func(w wanted) *call { return askReceipt(w.hash) })
	return r.single
}

func askReceipt(of txmanager.Hash) *call { return ask("eth_getTransactionReceipt", of.String()) }

// spare answers the receipts that the account's count decides, and begins the walk at head, which is
// not below the block of the count.
func (r *receipts) spare(head block) {
	var count hexutil.Uint64
	if r.count.into(&count) != nil {
		r.left = nil // without the count the query fails anyway
	}
	r.left = slices.DeleteFunc(r.left, func(w wanted) bool {
		if w.Nonce >= uint64(count) {
			r.answers[w.hash] = txmanager.ReceiptAnswer{Answer: txmanager.AnswerNotFound}
		}
		return w.Nonce >= uint64(count)
	})
	r.walk = walk{next: uint64(head.Number), pace: 1}
}

// byBlocks reports whether receipts of blocks are under way.
func (r *receipts) byBlocks() bool { return len(r.blocks) > 0 }

// further returns the calls of the next round trip; none if every answer is there. head is the
// observation's head as far as it is known.
func (r *receipts) further(head block, blocksOffered bool) (calls []*call) {
	r.single, r.blocks = nil, nil
	if len(r.left) == 0 {
		return nil
	}
	if blocksOffered && r.byBlock {
		r.askBlocks(head)
	}
	if len(r.blocks) == 0 {
		return r.askSingle()
	}
	for _, b := range r.blocks {
		calls = append(calls, b.answer)
	}
	for _, b := range r.blocks { // after all receipts
		if b.header != nil {
			calls = append(calls, b.header)
		}
	}
	return calls
}

// askBlocks chooses the blocks of the next round trip.
func (r *receipts) askBlocks(head block) {
	lost, held := r.countByBlock(head)
	for w := &r.walk; len(r.blocks) < w.pace && w.next > 0 && lost >= worthABlock; w.next-- {
		if !r.seen[w.next] {
			r.askBlock(w.next, head).walked = true
		}
	}
	for _, w := range r.left {
		if len(r.blocks) < maxBlocks && held[w.Block] >= worthABlock && !r.seen[w.Block] {
			r.askBlock(w.Block, head)
		}
	}
}

// countByBlock counts the nonces that are wanted: those in an unknown block, and those of each block.
func (r *receipts) countByBlock(head block) (lost int, held map[uint64]int) {
	held = map[uint64]int{}
	for i, w := range r.left {
		switch {
		case i > 0 && w.Nonce == r.left[i-1].Nonce: // another version of the nonce: a block has one of them
		case w.Block == 0 || r.seen[w.Block] || w.Block > uint64(head.Number):
			lost++
		default:
			held[w.Block]++
		}
	}
	return lost, held
}

func (r *receipts) askBlock(number uint64, head block) *blockCall {
	at := hexutil.EncodeUint64(number)
	b := &blockCall{number: number, answer: ask(blockReceipts, at)}
	switch uint64(head.Number) {
	case number:
		b.proof = head.Hash
	case number + 1:
		b.proof = head.Parent
	default:
		b.header = askBlock(at)
	}
	r.seen[number] = true
	r.blocks = append(r.blocks, b)
	return b
}

// errNoBlock reports a node that has no block at a height, or another than before: it lags, or the
// chain changed. It can be asked again.
var errNoBlock = errors.New("the node has another block at that height, or none")

// take reads the answers of a round trip that ended with head. It reports whether the node does not
// give the receipts of a block; these are then requested by transaction.
func (r *receipts) take(head block) (refused bool) {
	if !r.byBlocks() {
		r.takeSingle(head)
		return false
	}
	before := r.walk.tried
	for _, b := range r.blocks {
		n, err := r.takeBlock(b)
		r.byBlock = r.byBlock && err == nil
		refused = refused || (err != nil && !errors.Is(err, errNoBlock))
		if b.walked {
			r.walk.tried, r.walk.brought = r.walk.tried+1, r.walk.brought+n
		}
	}
	if r.walk.tried > before {
		r.walk.pace = min(2*r.walk.pace, maxBlocks)
	}
	if r.walk.tried >= enoughTried && r.walk.brought < r.walk.tried*worthABlock {
		r.walk.pace = 0
	}
	r.settle()
	return refused
}

func (r *receipts) takeSingle(head block) {
	if r.single == nil {
		r.spare(head)
		return
	}
	for i, w := range r.left {
		r.answers[w.hash] = receiptAnswer(w.hash, r.single[i])
	}
	r.left = nil
}

// takeBlock accepts the wanted receipts if all in the answer are of one block, and that block is proved
// to be canonical. It returns their number.
func (r *receipts) takeBlock(b *blockCall) (int, error) {
	switch {
	case b.answer.err != nil:
		return 0, b.answer.err
	case b.answer.null():
		return 0, errNoBlock
	}
	var all, found []receipt
	var block txmanager.Hash
	first := true
	isList := eachReceipt(b.answer.raw, func(one receipt) bool {
		if first {
			block, first = one.block, false
		}
		all = append(all, one)
		if a, ok := r.answers[one.tx]; ok && a.Answer != txmanager.AnswerFound {
			found = append(found, one)
		}
		return one.complete() && one.number == b.number && one.block == block
	})
	switch {
	case !isList:
		return 0, errors.New("the answer is not a list of receipts of one block")
	case first:
		return 0, nil
	case !b.proves(block):
		return 0, errNoBlock
	}
	r.known.keep(block, all)
	r.accept(found)
	return len(found), nil
}

// wantsHead reports whether the head's receipts would be requested next.
func (r *receipts) wantsHead(head block) bool {
	return r.byBlock && r.single == nil && len(r.left) >= worthABlock && r.walk.pace > 0 && r.walk.next == uint64(head.Number) && !r.seen[r.walk.next]
}

// reuse accepts the known receipts of head and of its parent. Both are in the observation's chain, and
// a block's hash fixes its content.
func (r *receipts) reuse(head block) {
	if !r.byBlock || len(r.left) == 0 {
		return
	}
	number := uint64(head.Number)
	for _, at := range []struct {
		number uint64
		hash   txmanager.Hash
	}{{number, head.Hash}, {number - 1, head.Parent}} {
		all, known := r.known.blocks.Get(at.hash)
		if !known || r.seen[at.number] {
			continue
		}
		r.seen[at.number] = true
		var found []receipt
		for _, w := range r.left {
			if one, ok := all[w.hash]; ok && one.number == at.number {
				found = append(found, one)
			}
		}
		r.accept(found)
	}
	r.settle()
}

// accept stores the receipts as answers, with one allocation for all documents.
func (r *receipts) accept(found []receipt) {
	size := 0
	for i := range found {
		size += found[i].documentSize()
	}
	documents := make([]byte, 0, size)
	for i := range found {
		from := len(documents)
		answer := found[i].found(documents)
		documents = answer.Receipt.Document
		answer.Receipt.Document = slices.Clip(documents[from:])
		r.answers[found[i].tx] = answer
	}
}

// proves reports whether the block at b's height has that hash: by the head, or by its header, which
// was requested after the receipts. The round trip ends with the proof that the node still has that
// head, so a block below it is in its chain.
func (b *blockCall) proves(hash txmanager.Hash) bool {
	if b.header == nil {
		return b.proof == hash
	}
	var at block
	return b.header.into(&at) == nil && uint64(at.Number) == b.number && at.Hash == hash
}

// settle removes answered transactions from left. If one version of a nonce was found, no other is in
// that chain.
func (r *receipts) settle() {
	taken := map[uint64]bool{}
	for _, w := range r.left {
		if r.answers[w.hash].Answer == txmanager.AnswerFound {
			taken[w.Nonce] = true
		}
	}
	r.left = slices.DeleteFunc(r.left, func(w wanted) bool {
		if taken[w.Nonce] && r.answers[w.hash].Answer != txmanager.AnswerFound {
			r.answers[w.hash] = txmanager.ReceiptAnswer{Answer: txmanager.AnswerNotFound}
		}
		return taken[w.Nonce]
	})
}

// upTo removes receipts above head: no receipt is above the observation's head.
func (r *receipts) upTo(head txmanager.Header) map[txmanager.Hash]txmanager.ReceiptAnswer {
	for h, a := range r.answers {
		if n := a.Receipt.BlockNumber; a.Answer == txmanager.AnswerFound && (n > head.Number || n == head.Number && a.Receipt.BlockHash != head.Hash) {
			r.answers[h] = txmanager.ReceiptAnswer{}
		}
	}
	return r.answers
}

// receiptAnswer returns the node's answer about one transaction.
func receiptAnswer(hash txmanager.Hash, a *call) txmanager.ReceiptAnswer {
	if a.null() {
		return txmanager.ReceiptAnswer{Answer: txmanager.AnswerNotFound}
	}
	if a.err != nil {
		return txmanager.ReceiptAnswer{}
	}
	r, ok := readReceipt(&cursor{text: a.raw})
	if !ok || !r.complete() || r.tx != hash {
		return txmanager.ReceiptAnswer{}
	}
	return r.found(a.raw[:0]) // in the same memory
}
