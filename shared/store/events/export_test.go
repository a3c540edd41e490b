package events

// PageStatements are the statements of [Log.Endpoint], which pages show.
var PageStatements = map[string]string{
	"countLateQueues": countLateQueues, "countLateEvents": countLateEvents, "oldestLate": oldestLate, "endpointState": endpointState, "lastTest": lastTest,
}
