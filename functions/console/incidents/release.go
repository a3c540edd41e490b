package incidents

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/fencepost/fencepost/functions/console/page"
	"github.com/fencepost/fencepost/shared/client"
)

// lostPages bounds the pages of 20 lost nonces that a release form shows.
const lostPages = 5

// The modes of a release.
const (
	resume = "resume"
	resync = "resync"
)

// The answers to the question which request a lost nonce was, beside "none": no request of this deployment.
const (
	otherRequest = "other" // the one of the text field
	chosen       = "id:"   // before the requestId of a candidate
)

// releaseForm is the form of a release, and what a trial of it would do.
type releaseForm struct {
	Submitter client.Submitter
	Mode      string
	Evidence  evidence
	Nonces    lostNonces
	More      bool // the chain has more lost nonces than are shown
	Progress  progress

	IntentsMore bool // other requests may match than those that are shown

	Unknown   int    // queued intents whose calls are not known yet
	Unread    string // why the submitter was not read; "": it was
	LostError string // why the nonces were not read; "": they were
	Incident  string
	Count     string
	Report    *client.ReleaseReport // of a trial; nil: none was made
	Unmatched []uint64              // of a trial: nonces that stay without a request
	Posted    []postedField         // the posted answers: of a trial all, otherwise those of nonces that are not shown
}

// lostNonces are those that a page shows.
type lostNonces []client.LostNonce

// candidate is a request that the foreign transaction may have been.
type candidate struct {
	Value     string // of the form's field
	RequestID string
	TxID      string // "": it has no transaction
	State     string
}

// release shows the evidence, tries a release and carries it out. GET makes up to 6 calls: the submitter, and up to 5
// pages of lost nonces. A trial makes 1 more. A release makes 1, and after a refusal those of GET.
func release(ctx context.Context, call page.Call) (page.View, error) {
	in, wrong := releaseOf(call)
	id := call.PathValue("submitter")
	form := func(ctx context.Context, problem error) (page.View, error) {
		return drawRelease(ctx, call, in, problem), nil
	}
	if step := call.PostFormValue("step"); step == "edit" {
		return form(ctx, nil)
	} else if step == "try" {
		return tryRelease(ctx, call, in, wrong), nil
	}
	return page.ServeForm(ctx, call, page.Path("submitter", id)+"/protect", form, func(ctx context.Context, reason string) error {
		if wrong != nil {
			return wrong
		}
		if in.Mode == resync {
			if err := page.Confirmed(call, page.Confirmation(id)); err != nil {
				return err
			}
		}
		in.Reason = reason
		_, err := call.Admin.Release(ctx, id, in)
		return err
	})
}

// tryRelease draws what the release would do.
func tryRelease(ctx context.Context, call page.Call, in client.Release, wrong error) page.View {
	trial := in
	if trial.Reason = strings.TrimSpace(call.PostFormValue("reason")); trial.Reason == "" {
		wrong = page.Refuse("reason", "Write why you release. A trial is logged with its reason, too.")
	}
	var report client.ReleaseReport
	err := wrong
	if err == nil {
		trial.DryRun = true
		report, err = call.Admin.Release(ctx, call.PathValue("submitter"), trial)
	}
	v := drawRelease(ctx, call, in, err)
	if err != nil {
		v.Problem = err
		return v
	}
	data := v.Data.(*releaseForm)
	data.Report, data.Posted = &report, postedOf(call)
	data.Unmatched = data.unmatched()
	return v
}

// unmatched are the nonces for which the trial names no request. It covers the nonces that were read again and those
// that were answered: a nonce that was not read again still belongs to the trial.
func (f *releaseForm) unmatched() (all []uint64) {
	for _, n := range f.Nonces {
		all = append(all, n.Nonce)
	}
	for _, p := range f.Posted {
		if p.kind == "request" {
			all = append(all, p.nonce)
		}
	}
	slices.Sort(all)
	return slices.DeleteFunc(slices.Compact(all), func(n uint64) bool {
		return slices.ContainsFunc(f.Report.Named, func(one client.Named) bool { return one.Nonce == n })
	})
}

// postedField is a field of the form that answers for one nonce.
type postedField struct {
	Name, Value string
	kind        string // request, other, hash or executed
	nonce       uint64
}

// postedOf are the posted fields that answer for a nonce, in the order of their names. The release sends them again as
// they were tried, whatever the chain's nodes show by then.
func postedOf(call page.Call) (all []postedField) {
	for _, name := range slices.Sorted(maps.Keys(call.PostForm)) {
		kind, number, _ := strings.Cut(name, "-")
		nonce, err := strconv.ParseUint(number, 10, 64)
		if err == nil && slices.Contains([]string{"request", "other", "hash", "executed"}, kind) {
			all = append(all, postedField{name, call.PostFormValue(name), kind, nonce})
		}
	}
	return all
}

// hidden are the posted answers of nonces that could not be read again, so that no field shows them.
func (f *releaseForm) hidden(call page.Call) []postedField {
	if f.LostError == "" {
		return nil
	}
	return slices.DeleteFunc(postedOf(call), func(p postedField) bool {
		return slices.ContainsFunc(f.Nonces, func(n client.LostNonce) bool { return n.Nonce == p.nonce })
	})
}

// releaseOf reads the form's fields. The error names the field that is wrong.
func releaseOf(call page.Call) (in client.Release, err error) {
	in.Mode = resync
	if call.FormValue("mode") == resume {
		in.Mode = resume
	}
	if call.Method != http.MethodPost {
		return in, nil
	}
	if in.Incident, err = strconv.Atoi(call.PostFormValue("incident")); err != nil {
		return in, page.Refuse("incident", "The form has no incident. Open the incident's page again.")
	}
	if in.Mode == resume {
		return in, nil
	}
	count, err := strconv.ParseUint(call.PostFormValue("count"), 10, 64)
	if err != nil {
		return in, page.Refuse("count", "Give the finalized count of the account, which this page shows.")
	}
	in.Count = &count
	if call.PostFormValue("others") == "matching" {
		in.Others = "matching"
	}
	if text := call.PostFormValue("fill"); text != "" {
		if in.Fill, err = strconv.Atoi(text); err != nil || in.Fill < 1 {
			return in, page.Refuse("fill", "Give a whole number above 0, or leave it empty.")
		}
	}
	return in, answersOf(call, &in)
}

// answersOf reads what the operator said of each nonce.
func answersOf(call page.Call, in *client.Release) error {
	in.Requests, in.Hashes, in.Executed = map[uint64]string{}, map[uint64]string{}, map[uint64]string{}
	for _, p := range postedOf(call) {
		text := strings.TrimSpace(p.Value)
		if text == "" {
			continue
		}
		switch p.kind {
		case "request":
			other := fmt.Sprint("other-", p.nonce)
			if text == otherRequest {
				text = chosen + strings.TrimSpace(call.PostFormValue(other))
			}
			in.Requests[p.nonce] = strings.TrimPrefix(text, chosen)
			if in.Requests[p.nonce] == "" {
				return page.Refuse(other, fmt.Sprintf("Write the requestId that nonce %d was, or choose another answer.", p.nonce))
			}
		case "hash":
			in.Hashes[p.nonce] = text
		case "executed":
			in.Executed[p.nonce] = text
		}
	}
	return nil
}

// drawRelease draws the form with the evidence as it is now and the entered values.
func drawRelease(ctx context.Context, call page.Call, in client.Release, problem error) page.View {
	ctx, cancel := page.Redraw(ctx, call)
	defer cancel()
	f := &releaseForm{Mode: in.Mode}
	id := call.PathValue("submitter")
	var err, lostErr error
	var reads sync.WaitGroup
	reads.Go(func() { f.Submitter, err = call.Admin.Submitter(ctx, id) })
	if in.Mode == resync {
		reads.Go(func() { f.Nonces, lostErr = f.readLost(ctx, call, id) })
	}
	reads.Wait()
	if err != nil {
		f.Submitter.Submitter = id
	}
	f.Unread, f.LostError = page.WhyUnread(err), page.WhyUnread(lostErr)
	if p := f.Submitter.Protect; p != nil {
		f.Evidence, f.Incident = evidenceOf(p.Evidence), strconv.Itoa(p.Incident)
	}
	f.Count = call.PostFormValue("count")
	if p := page.RefusalOf(problem); f.Count == "" && f.Progress.Known || p.Code == "INVALID_FIELD" && p.Field == "count" {
		f.Count = strconv.FormatUint(f.Progress.Final, 10)
	}
	f.Posted = f.hidden(call)
	return page.View{Title: "Release " + nameOf(f.Submitter) + " from PROTECT", Body: "incidents/release", Data: f, WayOn: wayOn(problem)}
}

// readLost reads up to lostPages pages of lost nonces, and how far they are final.
func (f *releaseForm) readLost(ctx context.Context, call page.Call, id string) (all []client.LostNonce, err error) {
	ctx, cancel := context.WithTimeout(ctx, lostPages*patience)
	defer cancel()
	token := ""
	for range lostPages {
		one, err := call.Admin.Lost(ctx, id, token)
		if err != nil {
			return all, err
		}
		all = append(all, one.Nonces...)
		f.Progress, f.Unknown, f.IntentsMore = progressOf(one), one.UnknownCalls, f.IntentsMore || one.IntentsMore
		if token = one.NextPageToken; token == "" {
			return all, nil
		}
	}
	f.More = true
	return all, nil
}

// Candidates are the requests that want what the foreign transaction of the nonce did. A payout has its req_id as
// requestId. The form chooses none beforehand: the operator decides about each nonce.
func (lostNonces) Candidates(n client.LostNonce) (all []candidate) {
	for _, m := range n.Intents {
		all = append(all, candidate{chosen + m.RequestID, m.RequestID, m.TxID, strings.TrimSpace(string(m.State) + " " + m.SubState)})
	}
	for _, reqID := range n.Payouts {
		if !slices.ContainsFunc(all, func(c candidate) bool { return c.RequestID == reqID }) {
			all = append(all, candidate{chosen + reqID, reqID, "", "an open payout"})
		}
	}
	return all
}

// Outcome is the end of the foreign transaction of the nonce; "": it was not read at finality yet.
func (lostNonces) Outcome(n client.LostNonce) string {
	switch {
	case n.Succeeded == nil:
		return ""
	case *n.Succeeded:
		return "succeeded"
	}
	return "reverted"
}
