package model

import "github.com/fencepost/fencepost/shared/modelcheck"

// PayoutRules are the rules that a payout through the transaction manager depends on (H1).
// [AllPayout] is the protocol.
type PayoutRules struct {
	// SubmitterFixed: every attempt names the submitter of the row. Otherwise it names the one in
	// the current settings.
	SubmitterFixed bool
	// PayloadFixed: every attempt sends the payload of the row. Otherwise it renders the payload
	// again, and another build may render it differently.
	PayloadFixed bool
	// RowDecides: only the managed transaction's row decides, and a refused create is an unknown
	// answer. Otherwise a refused create is a refusal.
	RowDecides bool
	// FinalSuccess and FinalRefusal: only CONFIRMED is a success, only FAILED a refusal.
	// Otherwise a receipt decides before it is final.
	FinalSuccess, FinalRefusal bool
	// Tombstone: a cancel of a missing transaction writes a FAILED row. Otherwise it answers that
	// there is none, and the worker takes that for a refusal.
	Tombstone bool
}

// AllPayout returns all payout rules switched on.
func AllPayout() PayoutRules { return PayoutRules{true, true, true, true, true, true} }

// PayoutBudget bounds a run.
type PayoutBudget struct {
	Workers    uint8 // at most 2
	Crashes    uint8
	Timeouts   uint8
	Duplicates uint8
	Protects   uint8 // PROTECT opens, or closes
	Deploys    uint8 // other settings, another build
	Reorgs     uint8 // shallower than final
	Cancels    uint8 // cancels of the payout
}

// CheckPayout searches every interleaving within b and reports the first violation. It begins in
// TARGET_PENDING: the source has paid.
func CheckPayout(r PayoutRules, b PayoutBudget) modelcheck.Report {
	return explore(&seam{r, b}, payout.describe)
}

// managed is the state of a managed transaction's row.
type managed uint8

const (
	absent managed = iota
	queued
	inFlight
	mined    // its receipt reports success
	reverted // its receipt reports a revert
	replaced // its placeholder has a receipt
	confirmed
	gone // FAILED, in any sub-state
)

func (m managed) String() string {
	return [...]string{"absent", "QUEUED", "IN_FLIGHT", "mined", "reverted", "replaced", "CONFIRMED", "FAILED"}[m]
}

// attempt is the content of a create.
type attempt struct{ submitter, payload uint8 }

// payer is a worker that drives the payout.
type payer struct {
	pc   pc
	said answer
}

// payout is one state of the search.
type payout struct {
	row      row
	tx       [2]managed // indexed by submitter
	sent     [2]uint8   // the payload that each was created with
	ordered  [2]bool    // a cancel was requested after the transaction was sent
	wire     [2][2]uint8
	workers  [2]payer
	protect  bool
	settings uint8 // the submitter that the settings name
	build    uint8 // the build that renders payloads
	left     PayoutBudget
}

func (s payout) canonical() payout {
	if a, b := s.workers[0], s.workers[1]; a.pc > b.pc || a.pc == b.pc && a.said > b.said {
		s.workers[0], s.workers[1] = b, a
	}
	return s
}

func (s payout) describe() string {
	return line("%s; the first submitter's transaction %s, the second's %s", s.row, s.tx[0], s.tx[1])
}

// seam searches the interface between payouts and the transaction manager.
type seam struct {
	Rules  PayoutRules
	Budget PayoutBudget
}

func (m *seam) start() payout             { return payout{row: targetPending, left: m.Budget} }
func (m *seam) ended(s payout) bool       { return s.row.terminal() }
func (m *seam) paid(s payout, i int) bool { return s.tx[i] == confirmed }

func (m *seam) wrong(s payout) string {
	one, other := m.paid(s, 0), m.paid(s, 1)
	switch {
	case one && other:
		return "paid twice"
	case (one || other) && s.row == rolledBack:
		return "paid and given back"
	case s.row == committed && (s.tx[0] == gone || s.tx[0] == absent) && (s.tx[1] == gone || s.tx[1] == absent):
		return "COMMITTED, and not paid"
	}
	return ""
}

func (m *seam) next(s payout, out func(string, payout)) {
	ordered := out
	if m.Budget.Workers > 1 {
		ordered = func(step string, to payout) { out(step, to.canonical()) }
	}
	for i := range m.Budget.Workers {
		m.worker(s, i, ordered)
	}
	m.arrivals(s, ordered)
	for i := range s.tx {
		m.chain(s, i, ordered)
	}
	m.world(s, ordered)
	m.giveUp(s, ordered)
}

// attemptNow returns the content of a create that is sent now.
func (m *seam) attemptNow(s payout) attempt {
	var a attempt
	if !m.Rules.SubmitterFixed {
		a.submitter = s.settings
	}
	if !m.Rules.PayloadFixed {
		a.payload = s.build
	}
	return a
}

func (m *seam) worker(s payout, i uint8, out func(string, payout)) {
	w := &s.workers[i]
	if s.left.Crashes > 0 && w.pc != idle {
		to := s
		to.left.Crashes--
		to.workers[i] = payer{}
		out("a worker dies", to)
	}
	switch w.pc {
	case idle:
		a := m.attemptNow(s)
		if s.row == targetPending && s.wire[a.submitter][a.payload] < maxOnWire {
			s.wire[a.submitter][a.payload]++
			w.pc = wait
			out(line("a worker sends create, submitter %d, payload %d", a.submitter+1, a.payload+1), s)
		}
	case wait:
		if s.left.Timeouts > 0 {
			s.left.Timeouts--
			*w = payer{}
			out("a worker waits no longer", s)
		}
	case got:
		m.record(s, i, out)
	}
}

// record moves the transfer. A refusal refunds at once; the other model covers the refund.
func (m *seam) record(s payout, i uint8, out func(string, payout)) {
	said := s.workers[i].said
	s.workers[i] = payer{}
	if s.row == targetPending && said == success {
		s.row = committed
	}
	if s.row == targetPending && said == refused {
		s.row = rolledBack
	}
	out(line("a worker records: %s", said), s)
}

// arrivals handles the creates that are on the wire.
func (m *seam) arrivals(s payout, out func(string, payout)) {
	for submitter := range uint8(2) {
		for payload := range uint8(2) {
			if s.wire[submitter][payload] == 0 {
				continue
			}
			once := s
			once.wire[submitter][payload]--
			m.create(once, attempt{submitter, payload}, "", out)
			if s.left.Duplicates > 0 {
				twice := s
				twice.left.Duplicates--
				m.create(twice, attempt{submitter, payload}, ", and will arrive again", out)
			}
		}
	}
}

// create handles one create in the manager and returns the adapter's answer to the waiting
// workers.
func (m *seam) create(s payout, a attempt, again string, out func(string, payout)) {
	tx, what := s.tx[a.submitter], ""
	said := m.answerOf(tx)
	switch {
	case tx == absent && s.protect:
		what, said = "refused: PROTECT", m.unlessRowDecides(refused)
	case tx == absent:
		s.tx[a.submitter], s.sent[a.submitter] = queued, a.payload
		what = "queued"
	case s.sent[a.submitter] != a.payload:
		what, said = "another payload is stored: 409", m.unlessRowDecides(refused)
	default:
		what = tx.String()
	}
	step := line("create, submitter %d, payload %d is handled: %s%s", a.submitter+1, a.payload+1, what, again)
	delivered := false
	for i := range m.Budget.Workers {
		if s.workers[i].pc == wait {
			delivered = true
			to := s
			to.workers[i] = payer{got, said}
			out(step, to)
		}
	}
	if !delivered {
		out(step+"; nobody waits for it", s)
	}
}

func (m *seam) unlessRowDecides(a answer) answer {
	if m.Rules.RowDecides {
		return nothing
	}
	return a
}

// answerOf returns the answer that a managed transaction's row gives to the payout.
func (m *seam) answerOf(tx managed) answer {
	switch {
	case tx == confirmed, tx == mined && !m.Rules.FinalSuccess:
		return success
	case tx == gone, tx == reverted && !m.Rules.FinalRefusal:
		return refused
	}
	return nothing
}

// chain advances one managed transaction.
func (m *seam) chain(s payout, i int, out func(string, payout)) {
	become := func(to managed, what string) {
		next := s
		next.tx[i] = to
		out(line("submitter %d: %s", i+1, what), next)
	}
	switch s.tx[i] {
	case queued:
		if !s.protect {
			become(inFlight, "signed and sent")
		}
	case inFlight:
		become(mined, "mined")
		become(reverted, "mined, and reverted")
		if s.ordered[i] {
			become(replaced, "its placeholder is mined")
		}
	case mined:
		become(confirmed, "final: CONFIRMED")
	case reverted, replaced:
		become(gone, "final: FAILED")
	}
	if (s.tx[i] == mined || s.tx[i] == reverted || s.tx[i] == replaced) && s.left.Reorgs > 0 {
		s.left.Reorgs--
		become(inFlight, "a reorg takes it out again")
	}
}

func (m *seam) world(s payout, out func(string, payout)) {
	if s.left.Protects > 0 {
		to := s
		to.left.Protects--
		to.protect = !s.protect
		out(line("PROTECT: %t", to.protect), to)
	}
	if s.left.Deploys > 0 {
		to := s
		to.left.Deploys--
		to.settings = 1 - s.settings
		out("a deploy names another submitter", to)
		to.settings, to.build = s.settings, 1-s.build
		out("a deploy renders payloads otherwise", to)
	}
}

// giveUp cancels by (submitter, request) and returns the adapter's answer to a worker.
func (m *seam) giveUp(s payout, out func(string, payout)) {
	if s.left.Cancels == 0 || s.row != targetPending || s.workers[0].pc != idle {
		return
	}
	s.left.Cancels--
	by := m.attemptNow(s).submitter
	said, what := nothing, "ordered"
	switch s.tx[by] {
	case absent:
		said, what = refused, "there is none"
		if m.Rules.Tombstone {
			s.tx[by], what = gone, "a FAILED row is written"
		}
	case queued:
		s.tx[by], said, what = gone, refused, "it was in the queue"
	case gone, confirmed:
		said, what = m.answerOf(s.tx[by]), "it is final"
	default:
		s.ordered[by] = true
	}
	s.workers[0] = payer{got, said}
	out(line("a cancel, submitter %d: %s", by+1, what), s)
}
