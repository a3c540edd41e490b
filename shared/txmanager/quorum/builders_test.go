package quorum

import "github.com/fencepost/fencepost/shared/txmanager/session/sessiontest"

var rulesOf, testTiming = sessiontest.Rules, sessiontest.Timing
