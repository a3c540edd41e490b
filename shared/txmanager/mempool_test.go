package txmanager

import "testing"

// Each signal and its advice come from one node's answers. A missing answer, or a lagging node,
// changes nothing.
func TestDiagnoses(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		for _, c := range []struct {
			name            string
			known           []Answer // of its two versions
			latest, pending uint64
			change          func(*Tx, *ChainObservation)
			want            Signal
			advice          Advice
		}{
			{"the node has the last", []Answer{AnswerNotFound, AnswerFound}, 5, 6, nil, InMempool, AdviseWait},
			{"the node has the first", []Answer{AnswerFound, AnswerNotFound}, 5, 6, nil, InMempool, AdviseWait},
			{"and blocks take more", []Answer{AnswerNotFound, AnswerFound}, 5, 6, func(_ *Tx, v *ChainObservation) { v.Account.BaseFeeWei.SetInt64(99) }, InMempool, AdviseBump},
			{"of a handler: nobody could bump it", []Answer{AnswerNotFound, AnswerFound}, 5, 6, func(x *Tx, v *ChainObservation) { x.Handler = "wage"; v.Account.BaseFeeWei.SetInt64(99) }, InMempool, AdviseWait},
			{"none, and the nonce is free", []Answer{AnswerNotFound, AnswerNotFound}, 5, 5, nil, PerhapsLost, AdviseResubmit},
			{"none, and the pool has something there", []Answer{AnswerNotFound, AnswerNotFound}, 5, 6, nil, PerhapsReplaced, AdviseWait},
			{"none, and a block has", []Answer{AnswerNotFound, AnswerNotFound}, 6, 6, nil, PerhapsReplaced, AdviseWait},
			{"one without an answer", []Answer{AnswerNotFound, AnswerUnknown}, 5, 5, nil, "", ""},
			{"the node lags", []Answer{AnswerNotFound, AnswerNotFound}, 4, 5, nil, "", ""},
			{"never signed", nil, 5, 5, nil, "", ""},
			{"included", []Answer{AnswerNotFound, AnswerNotFound}, 5, 5, func(x *Tx, _ *ChainObservation) { x.Receipt = &Receipt{} }, "", ""},
		} {
			tx := pending(5).versions(len(c.known))
			tx.Gas.TipCapWei.SetInt64(2)
			v := viewOf(stateOf(1, 6, tx), block('a', 100))
			v.Account.LatestCount, v.Account.PendingCount, v.Known = c.latest, c.pending, map[Hash]Answer{}
			for i, a := range c.known {
				v.Known[tx.Versions[i]] = a
			}
			if c.change != nil {
				c.change(&tx, &v)
			}
			got := new(MempoolInspector).Inspect(tx, 5, v, dbNow)
			if d := got.Diagnosis; c.want == "" && d != nil || c.want != "" && (d == nil || d.Signal != c.want || d.Advice != c.advice) {
				t.Errorf("%s: got %+v, want %s, %s", c.name, d, c.want, c.advice)
			}
			before := got
			if again := new(MempoolInspector).Inspect(got, 5, v, *in(1)); again.Diagnosis != before.Diagnosis {
				t.Errorf("%s: seen again: got %+v, want the first kept", c.name, again.Diagnosis)
			}
			if got.Diagnosis = nil; diff(tx, got) != "" {
				t.Errorf("%s: the diagnosis changed more than itself:\n%s", c.name, diff(tx, got))
			}
		}
	})
}

// An evaluation makes the same transitions with and without a diagnosis.
func TestADiagnosisDecidesNothing(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		for _, answer := range []Answer{AnswerUnknown, AnswerNotFound, AnswerFound} {
			w := stateOf(3, 7, pending(5), pending(6))
			for i := range w.Open {
				w.Open[i].NextCheckAt = ago(1)
			}
			v := viewOf(w, block('a', 100))
			v.Known = map[Hash]Answer{versionHash(5, 1): answer, versionHash(6, 1): answer}
			with, without := rulesOf(3), rulesOf(3)
			with.Inspector = &MempoolInspector{Most: 9}
			got, want := with.evaluate(w, asking(w), v), without.evaluate(w, asking(w), v)
			diagnosed := 0
			for i := range got.after {
				if got.after[i].Diagnosis != nil {
					diagnosed++
				}
				got.after[i].Diagnosis = nil
			}
			if diff(want.after, got.after) != "" || diff(want.rebroadcasts, got.rebroadcasts) != "" || len(want.transitions) != len(got.transitions) {
				t.Errorf("known %d: (-without +with)\n%s", answer, diff(want.after, got.after))
			}
			if answer != AnswerUnknown && diagnosed != 2 {
				t.Errorf("known %d: got %d diagnosed, want 2", answer, diagnosed)
			}
		}
	})
}

// A query asks for versions above the lowest nonce only with an inspector, and within its limit.
func TestWhatAnInspectorAsksFor(t *testing.T) {
	t.Parallel()
	frozen(t, func(t *testing.T) {
		w := stateOf(5, 9, pending(5), pending(6), included(7, block('a', 99)), pending(8).versions(2))
		for i := range w.Open {
			w.Open[i].NextCheckAt = ago(1)
		}
		for _, c := range []struct {
			inspector *MempoolInspector
			want      int
		}{{nil, 1}, {&MempoolInspector{}, 1}, {&MempoolInspector{Most: 2}, 2}, {&MempoolInspector{Most: 3}, 4}} {
			r := rulesOf(3)
			r.Inspector = c.inspector
			q, _ := r.nextQuery(w, KindReceipt, reader(nil))
			if len(q.Known) != c.want || q.Known[0] != versionHash(5, 1) {
				t.Errorf("%+v: got %d versions asked for, want %d, the lowest first", c.inspector, len(q.Known), c.want)
			}
		}
	})
}
