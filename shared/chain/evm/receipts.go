package evm

import (
	"errors"
	"slices"

	"github.com/ethereum/go-ethereum/common/hexutil"

	"github.com/fencepost/fencepost/shared/nonce"
)

// How receipts are asked for. For a receipt by its transaction go-ethereum reads
// the whole block and hashes all its transactions, each time; for the receipts of
// a block it writes them all. Either costs it as much as the block is large: one
// block as much as 50 to 100 of its transactions.
const (
	fewReceipts = 32 // at most so many go with the rest of a look, by transaction
	worthABlock = 64 // so many in a block, or more, are asked for with the block's others
	maxBlocks   = 4  // in one round trip: a full block's receipts are megabytes, and go-ethereum stops at 25 MB
	enoughTried = 3  // blocks that a walk down from the head tries before it may give up
)

// receipts finds the receipts of one look, in as many rounds as it takes.
//
// What has a nonce at or above the account's count is in no block of the node's
// and is not asked for. Of the others those go by the block that are many in one:
// first in the blocks where they were before, and from the head down, as long as
// that finds enough. Whatever is left goes by transaction, so a block's receipts
// decide nothing by what is missing in them.
type receipts struct {
	answers map[nonce.Hash]nonce.ReceiptAnswer // one for each that is wanted
	left    []wanted                           // those without an answer
	known   *recent                            // blocks that were asked for whole
	byBlock bool                               // what is left tells its nonce and block, and is much

	count  *call           // the account's count, in the first round
	single []*call         // under way: one for each that is left
	blocks []*blockCall    // under way
	seen   map[uint64]bool // the heights of the blocks that were asked for
	walk   walk
}

// walk goes down from the head, for receipts of which the block is not known.
type walk struct {
	next    uint64 // the height at which it goes on
	pace    int    // how many blocks it takes next, twice as many each time; 0: it has ended
	tried   int    // blocks
	brought int    // receipts
}

// wanted is a transaction whose receipt is wanted.
type wanted struct {
	hash nonce.Hash
	nonce.Hint
}

// blockCall asks for the receipts of the block at a height.
type blockCall struct {
	number uint64
	proof  nonce.Hash // of the block there, where there is no header
	header *call      // the block there, asked for after the receipts
	answer *call
	walked bool // down from the head
}

func newReceipts(q nonce.Look, known *recent) *receipts {
	r := &receipts{known: known, answers: make(map[nonce.Hash]nonce.ReceiptAnswer, len(q.Receipts)), seen: map[uint64]bool{},
		byBlock: q.Account && len(q.Receipts) > fewReceipts && len(q.Hints) == len(q.Receipts)}
	r.left = make([]wanted, len(q.Receipts))
	for i, h := range q.Receipts {
		r.answers[h], r.left[i].hash = nonce.ReceiptAnswer{}, h
		if r.byBlock {
			r.left[i].Hint = q.Hints[i]
		}
	}
	return r
}

// begin is what is asked in the look's first round: every receipt, unless they
// are many of which the account's count may spare some.
func (r *receipts) begin() []*call {
	if r.byBlock {
		return nil
	}
	return r.askSingle()
}

func (r *receipts) askSingle() []*call {
	r.single = make([]*call, len(r.left))
	for i, w := range r.left {
		r.single[i] = ask("eth_getTransactionReceipt", w.hash.String())
	}
	return r.single
}

// spare settles what the account's count tells enough of, and begins the walk at
// head, which is not below the block of the count.
func (r *receipts) spare(head block) {
	var count hexutil.Uint64
	if r.count.into(&count) != nil {
		r.left = nil // without it the look says nothing anyway
	}
	r.left = slices.DeleteFunc(r.left, func(w wanted) bool {
		if w.Nonce >= uint64(count) {
			r.answers[w.hash] = nonce.ReceiptAnswer{Answer: nonce.AnswerNotFound}
		}
		return w.Nonce >= uint64(count)
	})
	r.walk = walk{next: uint64(head.Number), pace: 1}
}

// byBlocks says that receipts of blocks are under way.
func (r *receipts) byBlocks() bool { return len(r.blocks) > 0 }

// further is what is asked in the next round; none if every answer is there.
// head is the view's as far as it is known.
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

// askBlocks chooses the blocks of the next round.
func (r *receipts) askBlocks(head block) {
	lost := 0 // how many are in a block that is not known
	held := map[uint64]int{}
	for i, w := range r.left {
		switch {
		case i > 0 && w.Nonce == r.left[i-1].Nonce: // another version: a block has one of them
		case w.Block == 0 || r.seen[w.Block] || w.Block > uint64(head.Number):
			lost++
		default:
			held[w.Block]++
		}
	}
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

func (r *receipts) askBlock(number uint64, head block) *blockCall {
	at := hexutil.EncodeUint64(number)
	b := &blockCall{number: number, answer: ask("eth_getBlockReceipts", at)}
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

// errNoBlock reports a node that has no block at a height, or another than it
// said: it lags, or the chain changed. That is no reason not to ask it again.
var errNoBlock = errors.New("the node has another block there, or none")

// take reads the answers of a round that ended with head. It reports a node that
// does not give the receipts of a block; what they were asked for is left, and
// goes by transaction.
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

// takeBlock takes over the receipts that are wanted, if all in the answer are of
// one block, and that block is proved to be the chain's. It counts them.
func (r *receipts) takeBlock(b *blockCall) (int, error) {
	switch {
	case b.answer.err != nil:
		return 0, b.answer.err
	case b.answer.null():
		return 0, errNoBlock
	}
	var all, found []receipt
	var block nonce.Hash
	first := true
	isList := eachReceipt(b.answer.raw, func(one receipt) bool {
		if first {
			block, first = one.block, false
		}
		all = append(all, one)
		if a, ok := r.answers[one.tx]; ok && a.Answer != nonce.AnswerFound {
			found = append(found, one)
		}
		return one.whole() && one.number == b.number && one.block == block
	})
	switch {
	case !isList:
		return 0, errors.New("the answer is no list of receipts of that one block")
	case first:
		return 0, nil
	case !b.proves(block):
		return 0, errNoBlock
	}
	r.known.keep(block, all)
	r.accept(found)
	return len(found), nil
}

// wantsHead says that the head's receipts are what would be asked for next.
func (r *receipts) wantsHead(head block) bool {
	return r.byBlock && r.single == nil && len(r.left) >= worthABlock && r.walk.pace > 0 && r.walk.next == uint64(head.Number) && !r.seen[r.walk.next]
}

// reuse takes over the receipts of head and of its parent that are known. Both are
// in the view's chain, and what a block's hash stands for does not change.
func (r *receipts) reuse(known *recent, head block) {
	if !r.byBlock || len(r.left) == 0 {
		return
	}
	number := uint64(head.Number)
	for _, at := range []struct {
		number uint64
		hash   nonce.Hash
	}{{number, head.Hash}, {number - 1, head.Parent}} {
		all := known.of(at.hash)
		if all == nil || r.seen[at.number] {
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

// accept takes the receipts as answers, with one piece of memory for all their
// documents.
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

// proves says whether the block at b's height has that hash: by the head, or by
// its header, which was asked for after the receipts. The round ends with the
// proof that the node has that head still, so what it has below is in its chain.
func (b *blockCall) proves(hash nonce.Hash) bool {
	if b.header == nil {
		return b.proof == hash
	}
	var at block
	return b.header.into(&at) == nil && uint64(at.Number) == b.number && at.Hash == hash
}

// settle takes what has an answer off what is left. Where one version of a nonce
// was found, none of the others is in that chain.
func (r *receipts) settle() {
	taken := map[uint64]bool{}
	for _, w := range r.left {
		if r.answers[w.hash].Answer == nonce.AnswerFound {
			taken[w.Nonce] = true
		}
	}
	r.left = slices.DeleteFunc(r.left, func(w wanted) bool {
		if taken[w.Nonce] && r.answers[w.hash].Answer != nonce.AnswerFound {
			r.answers[w.hash] = nonce.ReceiptAnswer{Answer: nonce.AnswerNotFound}
		}
		return taken[w.Nonce]
	})
}

// upTo takes back what is not in head's chain by its height: no receipt is above
// the view's head.
func (r *receipts) upTo(head nonce.Header) map[nonce.Hash]nonce.ReceiptAnswer {
	for h, a := range r.answers {
		if n := a.Receipt.BlockNumber; a.Answer == nonce.AnswerFound && (n > head.Number || n == head.Number && a.Receipt.BlockHash != head.Hash) {
			r.answers[h] = nonce.ReceiptAnswer{}
		}
	}
	return r.answers
}

// receiptAnswer is what the node said to the question about one transaction.
func receiptAnswer(hash nonce.Hash, a *call) nonce.ReceiptAnswer {
	if a.null() {
		return nonce.ReceiptAnswer{Answer: nonce.AnswerNotFound}
	}
	if a.err != nil {
		return nonce.ReceiptAnswer{}
	}
	r, ok := readReceipt(&cursor{text: a.raw})
	if !ok || !r.whole() || r.tx != hash {
		return nonce.ReceiptAnswer{}
	}
	return r.found(a.raw[:0]) // in its place
}
