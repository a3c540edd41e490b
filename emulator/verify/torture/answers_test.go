package main

import (
	"testing"

	"github.com/fencepost/fencepost/emulator/verify/torture/load"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// Each way in which answers can contradict the chain is found, and consistent ones pass.
func TestContradictingAnswersAreFound(t *testing.T) {
	t.Parallel()
	confirmed, cancelled := load.End{State: txmanager.Confirmed}, load.End{State: txmanager.Failed, Sub: txmanager.Cancelled}
	reverted, placeholder := load.End{State: txmanager.Failed, Sub: txmanager.Reverted}, load.End{State: txmanager.Failed, Sub: txmanager.Placeholder}
	for name, c := range map[string]struct {
		answers             load.Answers
		end                 load.End
		stored              bool
		succeeded, reverted int
		wrong               bool
	}{
		"confirmed":                        {load.Answers{ID: "t", End: &confirmed}, confirmed, true, 1, 0, false},
		"confirmed, not mined":             {load.Answers{ID: "t", End: &confirmed}, confirmed, true, 0, 0, true},
		"confirmed, mined twice":           {load.Answers{ID: "t", End: &confirmed}, confirmed, true, 2, 0, true},
		"confirmed, reverted":              {load.Answers{ID: "t", End: &confirmed}, confirmed, true, 0, 1, true},
		"confirmed, another end":           {load.Answers{ID: "t", End: &confirmed}, placeholder, true, 0, 0, true},
		"nobody heard, not mined":          {load.Answers{ID: "t"}, confirmed, true, 0, 0, true},
		"reverted":                         {load.Answers{ID: "t", End: &reverted}, reverted, true, 0, 1, false},
		"reverted, carried out":            {load.Answers{ID: "t", End: &reverted}, reverted, true, 1, 0, true},
		"cancelled":                        {load.Answers{ID: "t", End: &cancelled, Outcome: "CANCELLED"}, cancelled, true, 0, 0, false},
		"cancelled, carried out":           {load.Answers{ID: "t", Outcome: "CANCELLED"}, confirmed, true, 1, 0, true},
		"placeholder":                      {load.Answers{ID: "t", End: &placeholder}, placeholder, true, 0, 0, false},
		"placeholder, carried out":         {load.Answers{ID: "t", End: &placeholder}, placeholder, true, 1, 0, true},
		"executed":                         {load.Answers{ID: "t", Outcome: "EXECUTED"}, confirmed, true, 1, 0, false},
		"executed, not mined":              {load.Answers{ID: "t", Outcome: "EXECUTED"}, placeholder, true, 0, 0, true},
		"refused":                          {load.Answers{Refused: true}, load.End{}, false, 0, 0, false},
		"refused, carried out":             {load.Answers{Refused: true}, load.End{}, false, 1, 0, true},
		"refused late, stored after all":   {load.Answers{Refused: true}, confirmed, true, 1, 0, false},
		"accepted, and it has not ended":   {load.Answers{ID: "t"}, load.End{State: txmanager.Tracking}, true, 1, 0, false},
		"accepted, and carried out twice":  {load.Answers{ID: "t"}, load.End{State: txmanager.Tracking}, true, 2, 0, true},
		"accepted, and nobody knows of it": {load.Answers{ID: "t"}, load.End{}, false, 1, 0, true},
	} {
		if got := contradicts(c.answers, lastAnswer{stored: c.stored, end: c.end}, mined{c.succeeded, c.reverted}, false); (got != "") != c.wrong {
			t.Errorf("%s: got %q, want a contradiction: %t", name, got, c.wrong)
		}
	}
}
