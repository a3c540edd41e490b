package transferload

import (
	"fmt"

	"github.com/fencepost/fencepost/shared/transfer"
)

// Expected returns the balance that each account must have, in units. It adds up outside
// movements and COMMITTED transfers by the answers of users and cashier alone. The result
// unknown describes each missing end. The function now returns the current end of a transfer
// whose final answer a restore may have lost; nil: its row is lost too.
func (l *Ledger) Expected(now func(reqID string) *End) (all map[Account]int64, unknown []string) {
	all, unanswered := l.outside()
	if unanswered > 0 {
		unknown = append(unknown, fmt.Sprintf("%d movements from and to the outside were never answered", unanswered))
	}
	for _, s := range l.Requests() {
		answers := s.Answers()
		if l.EndMayBeLost(answers) {
			if answers.End = now(answers.ID); answers.End == nil {
				continue
			}
		}
		switch {
		case answers.End == nil && !answers.Refused:
			unknown = append(unknown, fmt.Sprintf("user %d never got the end of cid %q, transfer %q", s.UserID, s.CID, answers.ID))
		case answers.End != nil && answers.End.State == transfer.Committed:
			all[Account{s.From, s.UserID, s.Asset.ID}] -= int64(s.Units)
			if s.To != transfer.Chain {
				all[Account{s.To, s.UserID, s.Asset.ID}] += int64(s.Units)
			}
		}
	}
	return all, unknown
}
