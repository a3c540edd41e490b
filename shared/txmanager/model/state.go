package model

// nonces bounds those that a run can hand out.
const nonces = 4

// who is what may be signed for a nonce: the owner of a reservation, an intent, or the
// placeholder.
type who int8

const (
	owner0 who = iota
	owner1
	intent0
	intent1
	filler
	nobody
)

func (w who) String() string {
	return [...]string{"owner A", "owner B", "intent 1", "intent 2", "a placeholder", "nobody"}[w]
}

// of says that bytes by w are in set.
func (w who) of(set uint8) bool { return set>>w&1 == 1 }

// reservation is the hold of one owner.
type reservation int8

const (
	unasked reservation = iota
	reserved
	used
	recyclable
	passedOn // it was given back, and somebody else has the nonce
)

// seat is one nonce.
type seat struct {
	holder  who
	ordered bool  // a placeholder was ordered
	stored  uint8 // whose bytes the database has
	sent    uint8 // whose bytes the pool has
	mined   who   // whose bytes consumed it
}

// owner has asked for a nonce, or will.
type owner struct {
	res    reservation
	nonce  int8
	over   bool // its time is
	signed bool
	rogue  bool // it has sent what it signed
	gone   bool // it does nothing more
	used   int8 // marks on their way
	back   int8
}

// plan is what a worker has decided by what it loaded, and is about to write.
type plan struct {
	kind  act
	whose who  // who gets a nonce, or whose reservation is over
	from  who  // whose reservation gives it up; nobody: the cursor moves
	nonce int8 //
}

type act int8

const (
	rest act = iota
	allocate
	order
	recycle // what a plausible build does with a time-out
)

// state is one state of the model. It is comparable and holds no pointer.
type state struct {
	next    int8
	seats   [nonces]seat
	owners  [2]owner
	queued  [2]bool
	workers [2]plan
	left    Budget
}

// wrong says what must never be so.
func (s state) wrong() string {
	for n, at := range s.seats {
		payloads := 0
		for w := owner0; w < filler; w++ {
			if w.of(at.stored) {
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

// rogueAt says that an owner has sent by itself at n: that is seen by the counts, and
// PROTECT.
func (s state) rogueAt(n int8) bool {
	return s.owners[0].rogue && s.owners[0].nonce == n || s.owners[1].rogue && s.owners[1].nonce == n
}

// ended says that the chain has consumed every nonce handed out, and nothing waits.
func (s state) ended() bool {
	for n := range s.next {
		if s.seats[n].mined == nobody {
			return false
		}
	}
	return !s.queued[0] && !s.queued[1]
}

// acknowledged says that a node has bytes for n, or the chain.
func (s state) acknowledged(n int8) bool {
	return s.seats[n].mined != nobody || s.seats[n].sent&s.seats[n].stored != 0
}

// lowest is the lowest nonce that is not consumed.
func (s state) lowest() int8 {
	for n := range s.next {
		if s.seats[n].mined == nobody {
			return n
		}
	}
	return s.next
}

// seat is where the next nonce comes from: the lowest that was given back, with all
// below it at a node; else the cursor, with all below that.
func (s state) seat() (n int8, from who, ok bool) {
	for n := range s.next {
		if s.acknowledged(n) {
			continue
		}
		h := s.seats[n].holder
		if h <= owner1 && s.owners[h].res == recyclable && !s.owners[h].over && !s.seats[n].ordered {
			return n, h, true
		}
		return 0, nobody, false
	}
	return s.next, nobody, s.next < nonces && s.next-s.lowest() < s.left.Window
}
