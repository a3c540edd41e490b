package rules

import (
	"strings"
	"testing"

	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/txtest"
)

// Each signal and its advice come from one node's answers. A missing answer, or a lagging node,
// changes nothing.
func TestDiagnoses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name            string
		known           []txmanager.Answer // of its two versions
		latest, pending uint64
		change          func(*txmanager.Tx, *txmanager.ChainObservation)
		want            txmanager.Signal
		advice          txmanager.Advice
	}{
		{"the node has the last", []txmanager.Answer{txmanager.AnswerNotFound, txmanager.AnswerFound}, 5, 6, nil, txmanager.InMempool, txmanager.AdviseWait},
		{"the node has the first", []txmanager.Answer{txmanager.AnswerFound, txmanager.AnswerNotFound}, 5, 6, nil, txmanager.InMempool, txmanager.AdviseWait},
		{"and blocks take more", []txmanager.Answer{txmanager.AnswerNotFound, txmanager.AnswerFound}, 5, 6, func(_ *txmanager.Tx, v *txmanager.ChainObservation) { v.Account.BaseFeeWei.SetInt64(99) }, txmanager.InMempool, txmanager.AdviseBump},
		{"of a handler: nobody could bump it", []txmanager.Answer{txmanager.AnswerNotFound, txmanager.AnswerFound}, 5, 6, func(x *txmanager.Tx, v *txmanager.ChainObservation) {
			x.Handler = "wage"
			v.Account.BaseFeeWei.SetInt64(99)
		}, txmanager.InMempool, txmanager.AdviseWait},
		{"none, and the nonce is free", []txmanager.Answer{txmanager.AnswerNotFound, txmanager.AnswerNotFound}, 5, 5, nil, txmanager.PerhapsLost, txmanager.AdviseResubmit},
		{"none, and the pool has something there", []txmanager.Answer{txmanager.AnswerNotFound, txmanager.AnswerNotFound}, 5, 6, nil, txmanager.PerhapsReplaced, txmanager.AdviseWait},
		{"none, and a block has", []txmanager.Answer{txmanager.AnswerNotFound, txmanager.AnswerNotFound}, 6, 6, nil, txmanager.PerhapsReplaced, txmanager.AdviseWait},
		{"one without an answer", []txmanager.Answer{txmanager.AnswerNotFound, txmanager.AnswerUnknown}, 5, 5, nil, "", ""},
		{"the node lags", []txmanager.Answer{txmanager.AnswerNotFound, txmanager.AnswerNotFound}, 4, 5, nil, "", ""},
		{"never signed", nil, 5, 5, nil, "", ""},
		{"included", []txmanager.Answer{txmanager.AnswerNotFound, txmanager.AnswerNotFound}, 5, 5, func(x *txmanager.Tx, _ *txmanager.ChainObservation) { x.Receipt = &txmanager.Receipt{} }, "", ""},
	} {
		tx := txtest.WithVersions(txtest.Pending(5), len(c.known))
		tx.Gas.TipCapWei.SetInt64(2)
		v := txtest.ViewOf(txtest.StateOf(1, 6, tx), txtest.Block('a', 100))
		v.Account.LatestCount, v.Account.PendingCount, v.Known = c.latest, c.pending, map[txmanager.Hash]txmanager.Answer{}
		for i, a := range c.known {
			v.Known[tx.Versions[i]] = a
		}
		if c.change != nil {
			c.change(&tx, &v)
		}
		m := &Inspection{Inspector: DefaultInspector{}}
		got := m.Inspect(tx, 5, v, txtest.Now)
		if d := got.Diagnosis; c.want == "" && d != nil || c.want != "" && (d == nil || d.Signal != c.want || d.Advice != c.advice) {
			t.Errorf("%s: got %+v, want %s, %s", c.name, d, c.want, c.advice)
		}
		before := got
		if again := m.Inspect(got, 5, v, *txtest.In(1)); again.Diagnosis != before.Diagnosis {
			t.Errorf("%s: seen again: got %+v, want the first kept", c.name, again.Diagnosis)
		}
		if got.Diagnosis = nil; txtest.Diff(tx, got) != "" {
			t.Errorf("%s: the diagnosis changed more than itself:\n%s", c.name, txtest.Diff(tx, got))
		}
	}
}

// An evaluation makes the same transitions with and without a diagnosis.
func TestADiagnosisDecidesNothing(t *testing.T) {
	t.Parallel()
	for _, answer := range []txmanager.Answer{txmanager.AnswerUnknown, txmanager.AnswerNotFound, txmanager.AnswerFound} {
		w := txtest.StateOf(3, 7, txtest.Pending(5), txtest.Pending(6))
		for i := range w.Open {
			w.Open[i].NextCheckAt = txtest.Ago(1)
		}
		v := txtest.ViewOf(w, txtest.Block('a', 100))
		v.Known = map[txmanager.Hash]txmanager.Answer{txtest.VersionHash(5, 1): answer, txtest.VersionHash(6, 1): answer}
		with, without := rulesOf(3), rulesOf(3)
		with.Inspection = &Inspection{Inspector: DefaultInspector{}, MaxVersions: 9}
		got, want := with.Evaluate(w, txtest.Asking(w), v), without.Evaluate(w, txtest.Asking(w), v)
		diagnosed := 0
		for i := range got.After {
			if got.After[i].Diagnosis != nil {
				diagnosed++
			}
			got.After[i].Diagnosis = nil
		}
		if txtest.Diff(want.After, got.After) != "" || txtest.Diff(want.Rebroadcasts, got.Rebroadcasts) != "" || len(want.Transitions) != len(got.Transitions) {
			t.Errorf("known %d: (-without +with)\n%s", answer, txtest.Diff(want.After, got.After))
		}
		if answer != txmanager.AnswerUnknown && diagnosed != 2 {
			t.Errorf("known %d: got %d diagnosed, want 2", answer, diagnosed)
		}
	}
}

// A query asks for versions above the lowest nonce only with an inspector, and within its limit.
func TestWhatAnInspectorAsksFor(t *testing.T) {
	t.Parallel()
	w := txtest.StateOf(5, 9, txtest.Pending(5), txtest.Pending(6), txtest.Included(7, txtest.Block('a', 99)), txtest.WithVersions(txtest.Pending(8), 2))
	for i := range w.Open {
		w.Open[i].NextCheckAt = txtest.Ago(1)
	}
	for _, c := range []struct {
		inspector *Inspection
		want      int
	}{{nil, 1}, {&Inspection{}, 1}, {&Inspection{MaxVersions: 2}, 2}, {&Inspection{MaxVersions: 3}, 4}} {
		r := rulesOf(3)
		r.Inspection = c.inspector
		q, _ := r.NextQuery(w, txmanager.KindReceipt, txtest.Reader(nil))
		if len(q.Known) != c.want || q.Known[0] != txtest.VersionHash(5, 1) {
			t.Errorf("%+v: got %d versions asked for, want %d, the lowest first", c.inspector, len(q.Known), c.want)
		}
	}
}

// says is an inspector with one answer. An empty one panics.
type says [2]string

func (s says) Diagnose(MempoolEvidence) (txmanager.Signal, txmanager.Advice, bool) {
	if s == (says{}) {
		panic("no pool")
	}
	return txmanager.Signal(s[0]), txmanager.Advice(s[1]), true
}

// A deployer's inspector gives the diagnosis. An answer that readers do not know, or a panic, is none,
// and is reported.
func TestADeployersInspectorInforms(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		answer   says
		reported string
	}{
		{says{"PERHAPS_LOST", "WAIT"}, ""},
		{says{"IN_PRIVATE_POOL", "WAIT"}, `signal "IN_PRIVATE_POOL"`},
		{says{"PERHAPS_LOST", "PLACEHOLDER"}, `advice "PLACEHOLDER"`},
		{says{}, "panicked: no pool"},
	} {
		reported := ""
		m := &Inspection{Inspector: c.answer, Unused: func(id, problem string) { reported = problem }}
		tx := txtest.Pending(5)
		v := txtest.ViewOf(txtest.StateOf(1, 6, tx), txtest.Block('a', 100))
		d := m.Inspect(tx, 5, v, txtest.Now).Diagnosis
		if used := d != nil; used != (c.reported == "") || used && (string(d.Signal) != c.answer[0] || string(d.Advice) != c.answer[1]) {
			t.Errorf("%v: got %+v", c.answer, d)
		}
		if !strings.Contains(reported, c.reported) {
			t.Errorf("%v: reported %q, want %q", c.answer, reported, c.reported)
		}
	}
}
