package main

import (
	"testing"

	"github.com/fencepost/fencepost/emulator/verify/torture/load"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// Each way in which answers can contradict the chain is found, and consistent ones pass. An answer from before a
// restore stays true on the chain; only the end's name may change.
func TestContradictingAnswersAreFound(t *testing.T) {
	t.Parallel()
	confirmed, cancelled := load.End{State: txmanager.Confirmed}, load.End{State: txmanager.Failed, Sub: txmanager.Cancelled}
	reverted, placeholder := load.End{State: txmanager.Failed, Sub: txmanager.Reverted}, load.End{State: txmanager.Failed, Sub: txmanager.Placeholder}
	rejected, recorded := load.End{State: txmanager.Failed, Sub: txmanager.Rejected}, load.End{State: txmanager.Confirmed, Sub: "RECORDED"}
	for name, c := range map[string]struct {
		answers             load.Answers
		end                 load.End
		stored, lost        bool
		succeeded, reverted int
		wrong               bool
	}{
		"confirmed":                        {load.Answers{ID: "t", End: &confirmed}, confirmed, true, false, 1, 0, false},
		"confirmed, not mined":             {load.Answers{ID: "t", End: &confirmed}, confirmed, true, false, 0, 0, true},
		"confirmed, mined twice":           {load.Answers{ID: "t", End: &confirmed}, confirmed, true, false, 2, 0, true},
		"confirmed, reverted":              {load.Answers{ID: "t", End: &confirmed}, confirmed, true, false, 0, 1, true},
		"confirmed, another end":           {load.Answers{ID: "t", End: &confirmed}, placeholder, true, false, 0, 0, true},
		"nobody heard, not mined":          {load.Answers{ID: "t"}, confirmed, true, false, 0, 0, true},
		"reverted":                         {load.Answers{ID: "t", End: &reverted}, reverted, true, false, 0, 1, false},
		"reverted, carried out":            {load.Answers{ID: "t", End: &reverted}, reverted, true, false, 1, 0, true},
		"cancelled":                        {load.Answers{ID: "t", End: &cancelled, Outcome: "CANCELLED"}, cancelled, true, false, 0, 0, false},
		"cancelled, carried out":           {load.Answers{ID: "t", Outcome: "CANCELLED"}, confirmed, true, false, 1, 0, true},
		"placeholder":                      {load.Answers{ID: "t", End: &placeholder}, placeholder, true, false, 0, 0, false},
		"placeholder, carried out":         {load.Answers{ID: "t", End: &placeholder}, placeholder, true, false, 1, 0, true},
		"executed":                         {load.Answers{ID: "t", Outcome: "EXECUTED"}, confirmed, true, false, 1, 0, false},
		"executed, not mined":              {load.Answers{ID: "t", Outcome: "EXECUTED"}, placeholder, true, false, 0, 0, true},
		"refused":                          {load.Answers{Refused: true}, load.End{}, false, false, 0, 0, false},
		"refused, carried out":             {load.Answers{Refused: true}, load.End{}, false, false, 1, 0, true},
		"refused late, stored after all":   {load.Answers{Refused: true}, confirmed, true, false, 1, 0, false},
		"accepted, and it has not ended":   {load.Answers{ID: "t"}, load.End{State: txmanager.Tracking}, true, false, 1, 0, false},
		"accepted, and carried out twice":  {load.Answers{ID: "t"}, load.End{State: txmanager.Tracking}, true, false, 2, 0, true},
		"accepted, and nobody knows of it": {load.Answers{ID: "t"}, load.End{}, false, false, 1, 0, true},

		// Told before a restore, which may have lost the record.
		"lost, confirmed, and recorded":           {load.Answers{End: &confirmed}, recorded, true, true, 1, 0, false},
		"lost, confirmed, and twice on the chain": {load.Answers{End: &confirmed}, recorded, true, true, 2, 0, true},
		"lost, confirmed, and not on the chain":   {load.Answers{End: &confirmed}, recorded, true, true, 0, 0, true},
		"lost, confirmed, and on record nowhere":  {load.Answers{End: &confirmed}, load.End{}, false, true, 1, 0, true},
		"lost, confirmed, and cancelled now":      {load.Answers{End: &confirmed}, cancelled, true, true, 1, 0, true},
		"lost, reverted, and reverted":            {load.Answers{End: &reverted}, reverted, true, true, 0, 1, false},
		"lost, rejected, and cancelled now":       {load.Answers{End: &rejected}, cancelled, true, true, 0, 0, false},
		"lost, cancelled, and lost":               {load.Answers{End: &cancelled}, load.End{}, false, true, 0, 0, false},
		"lost, cancelled, and carried out":        {load.Answers{End: &cancelled}, confirmed, true, true, 1, 0, true},
		"lost, cancelled, lost and carried out":   {load.Answers{End: &cancelled}, load.End{}, false, true, 1, 0, true},
		"lost, cancelled, and open":               {load.Answers{End: &cancelled}, load.End{State: txmanager.Queued}, true, true, 0, 0, true},
		"lost, REQUEST_RECORDED":                  {load.Answers{End: &recorded, Recorded: true}, recorded, true, true, 1, 0, false},
		"lost, REQUEST_RECORDED, and done twice":  {load.Answers{End: &recorded, Recorded: true}, recorded, true, true, 2, 0, true},
		"lost, REQUEST_RECORDED, and never done":  {load.Answers{End: &recorded, Recorded: true}, recorded, true, true, 0, 0, true},
	} {
		if got := contradicts(c.answers, lastAnswer{stored: c.stored, end: c.end}, mined{c.succeeded, c.reverted}, c.lost); (got != "") != c.wrong {
			t.Errorf("%s: got %q, want a contradiction: %t", name, got, c.wrong)
		}
	}
}
