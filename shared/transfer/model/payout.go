package model

import "github.com/fencepost/fencepost/shared/modelcheck"

// PayoutRules are the sentences that the seam to the transaction manager stands on
// (H1). [AllPayout] is the protocol.
type PayoutRules struct {
	// SubmitterFixed: every attempt names the submitter on the row. Else the one in
	// the settings of the moment.
	SubmitterFixed bool
	// PayloadFixed: every attempt sends the payload on the row. Else it is rendered
	// anew, by another build perhaps differently.
	PayloadFixed bool
	// JudgeByRow: only the managed transaction's row decides; what the manager
	// answers to a create is unknown. Else a create that is refused is a refusal.
	JudgeByRow bool
	// FinalSuccess and FinalRefusal: only CONFIRMED is a success, only FAILED a
	// refusal. Else a receipt is, before it is final.
	FinalSuccess, FinalRefusal bool
	// Tombstone: a cancel writes a FAILED row where there is none. Else it answers
	// that there is none, and that is taken for an end.
	Tombstone bool
}

// AllPayout are the rules of the seam, none left out.
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
	Cancels    uint8 // somebody gives up
}

// CheckPayout walks every interleaving within b and reports the first state that is
// wrong. It begins in TARGET_PENDING: the source has paid.
func CheckPayout(r PayoutRules, b PayoutBudget) modelcheck.Report {
	return explore(&seam{r, b}, payout.plight)
}

// managed is a managed transaction's row.
type managed uint8

const (
	absent managed = iota
	queued
	inFlight
	mined    // a receipt says that it succeeded
	reverted // a receipt says that it did not
	replaced // its placeholder has a receipt
	confirmed
	gone // FAILED, by whatever sub-state
)

func (m managed) String() string {
	return [...]string{"absent", "QUEUED", "IN_FLIGHT", "mined", "reverted", "replaced", "CONFIRMED", "FAILED"}[m]
}

// attempt is what a create says: by whom, and what.
type attempt struct{ submitter, payload uint8 }

// payer drives the payout.
type payer struct {
	pc   pc
	said answer
}

// payout is one state of the seam.
type payout struct {
	row      row
	tx       [2]managed // by submitter
	sent     [2]uint8   // the payload that each was made with
	ordered  [2]bool    // a cancel of what may be mined
	wire     [2][2]uint8
	workers  [2]payer
	protect  bool
	settings uint8 // the submitter that they name
	build    uint8 // which renders payloads so
	left     PayoutBudget
}

func (s payout) canonical() payout {
	if a, b := s.workers[0], s.workers[1]; a.pc > b.pc || a.pc == b.pc && a.said > b.said {
		s.workers[0], s.workers[1] = b, a
	}
	return s
}

func (s payout) plight() string {
	return line("%s; the first submitter's transaction %s, the second's %s", s.row, s.tx[0], s.tx[1])
}

// seam is the machine.
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

// now is what an attempt says at this moment.
func (m *seam) now(s payout) attempt {
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
		a := m.now(s)
		if s.row == targetPending && s.wire[a.submitter][a.payload] < wireMost {
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

// record moves the transfer; a refusal is given back at once, which the other model
// is about.
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

// arrivals are creates that the manager handles.
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

// create is what the manager does with one, and what the adapter makes of it.
func (m *seam) create(s payout, a attempt, again string, out func(string, payout)) {
	tx, what := s.tx[a.submitter], ""
	said := m.judged(tx)
	switch {
	case tx == absent && s.protect:
		what, said = "refused: PROTECT", m.unlessByRow(refused)
	case tx == absent:
		s.tx[a.submitter], s.sent[a.submitter] = queued, a.payload
		what = "queued"
	case s.sent[a.submitter] != a.payload:
		what, said = "another payload is stored: 409", m.unlessByRow(refused)
	default:
		what = tx.String()
	}
	step := line("create, submitter %d, payload %d is handled: %s%s", a.submitter+1, a.payload+1, what, again)
	heard := false
	for i := range m.Budget.Workers {
		if s.workers[i].pc == wait {
			heard = true
			to := s
			to.workers[i] = payer{got, said}
			out(step, to)
		}
	}
	if !heard {
		out(step+"; nobody waits for it", s)
	}
}

func (m *seam) unlessByRow(a answer) answer {
	if m.Rules.JudgeByRow {
		return nothing
	}
	return a
}

// judged is what a managed transaction's row says of the payout.
func (m *seam) judged(tx managed) answer {
	switch {
	case tx == confirmed, tx == mined && !m.Rules.FinalSuccess:
		return success
	case tx == gone, tx == reverted && !m.Rules.FinalRefusal:
		return refused
	}
	return nothing
}

// chain moves one managed transaction on.
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

// giveUp is a cancel by (submitter, request), and what the adapter makes of it.
func (m *seam) giveUp(s payout, out func(string, payout)) {
	if s.left.Cancels == 0 || s.row != targetPending || s.workers[0].pc != idle {
		return
	}
	s.left.Cancels--
	by := m.now(s).submitter
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
		said, what = m.judged(s.tx[by]), "it is final"
	default:
		s.ordered[by] = true
	}
	s.workers[0] = payer{got, said}
	out(line("a cancel, submitter %d: %s", by+1, what), s)
}
