package model

// nonces is how many nonces one run can allocate.
const nonces = 4

// party identifies the signer of bytes for a nonce: a reservation's owner, an intent, or the
// placeholder.
type party int8

const (
	owner0 party = iota
	owner1
	intent0
	intent1
	filler
	nobody
)

func (w party) String() string {
	return [...]string{"owner A", "owner B", "intent 1", "intent 2", "a placeholder", "nobody"}[w]
}

// isIn reports whether the set contains w.
func (w party) isIn(set uint8) bool { return set>>w&1 == 1 }

// reservation is the state of one owner's reservation.
type reservation int8

const (
	unasked reservation = iota
	reserved
	used
	recyclable
	passedOn // it was released, and another holder has the nonce
)

// nonceSlot is the state of one nonce.
type nonceSlot struct {
	holder  party
	ordered bool  // a placeholder was requested
	stored  uint8 // the signers whose bytes are in the database
	sent    uint8 // the signers whose bytes are in the mempool
	mined   party // the signer whose bytes consumed it
}

// owner has reserved a nonce, or will.
type owner struct {
	res    reservation
	nonce  int8
	over   bool // its reservation has expired
	signed bool
	rogue  bool // it has sent its signed bytes itself
	gone   bool // it takes no further steps
	used   int8 // marks that have not arrived yet
	back   int8
}

// plan is a worker's decision after its load, before its write.
type plan struct {
	kind  act
	whose party // the new holder of the nonce, or the owner of the expired reservation
	from  party // the owner whose reservation releases it; nobody: the cursor advances
	nonce int8  //
}

type act int8

const (
	rest act = iota
	allocate
	order
	recycle // the wrong alternative to a placeholder for an expired reservation
)

// state is one state of the model. It is comparable and holds no pointer.
type state struct {
	next    int8
	slots   [nonces]nonceSlot
	owners  [2]owner
	queued  [2]bool
	workers [2]plan
	left    Budget
}

// violation describes how s breaks the first property, or is "".
func (s state) violation() string {
	for n, at := range s.slots {
		payloads := 0
		for w := owner0; w < filler; w++ {
			if w.isIn(at.stored) {
				payloads++
			}
		}
		switch {
		case int8(n) < s.next && at.holder == nobody:
			return "a nonce that nobody has"
		case payloads > 1:
			return "versions of two payloads"
		case at.mined != nobody && at.mined != filler && at.mined != at.holder:
			return "consumed by what is not its holder's"
		case at.sent != 0 && at.stored == 0 && !s.rogueAt(int8(n)):
			return "sent and not stored"
		}
	}
	return ""
}

// rogueAt reports whether an owner has sent its own bytes at n. The chain's counts show that,
// which opens PROTECT.
func (s state) rogueAt(n int8) bool {
	return s.owners[0].rogue && s.owners[0].nonce == n || s.owners[1].rogue && s.owners[1].nonce == n
}

// isTerminal reports whether the chain has consumed every allocated nonce, and the queue is empty.
func (s state) isTerminal() bool {
	for n := range s.next {
		if s.slots[n].mined == nobody {
			return false
		}
	}
	return !s.queued[0] && !s.queued[1]
}

// acknowledged reports whether a node holds stored bytes for n, or the chain has consumed n.
func (s state) acknowledged(n int8) bool {
	return s.slots[n].mined != nobody || s.slots[n].sent&s.slots[n].stored != 0
}

// lowest is the lowest nonce that is not consumed.
func (s state) lowest() int8 {
	for n := range s.next {
		if s.slots[n].mined == nobody {
			return n
		}
	}
	return s.next
}

// nextSlot is the next nonce to allocate: the lowest released one, if nodes hold all below it.
// Otherwise it is the cursor's, if nodes hold all below that.
func (s state) nextSlot() (n int8, from party, ok bool) {
	for n := range s.next {
		if s.acknowledged(n) {
			continue
		}
		h := s.slots[n].holder
		if h <= owner1 && s.owners[h].res == recyclable && !s.owners[h].over && !s.slots[n].ordered {
			return n, h, true
		}
		return 0, nobody, false
	}
	return s.next, nobody, s.next < nonces && s.next-s.lowest() < s.left.Window
}
