package transfers

// HotStatements are those whose cost must not grow with the number of finished transfers.
var HotStatements = map[string]string{
	"lockUser": lockUser, "insertTransfer": insertTransfer, "findCreated": findCreated, "obstacles": obstacles,
	"byReqID": byReqID, "start": start, "postpone": postpone, "cancel": cancel, "due": due, "busy": busy,
	"latePending": transferColumns + latePending + latestFew + "$3", "lateRefunds": transferColumns + lateRefunds + latestFew + "$2",
	"howLatePending": howLate + latePending, "howLateRefunds": howLate + lateRefunds,
	"record": record, "answer": answer, "history": history, "resolutions": resolutions, "acknowledge": acknowledge, "acknowledgements": acknowledgements,
	"findPayoutObstacles": findPayoutObstacles, "addAddress": addAddress, "removeAddress": removeAddress,
	"moveTransfer": moveTransfer, "listOf": listOf, "inList": inList,
}

// moveTransfer is the statement in move_transfer.
const moveTransfer = `
update transfers_tb set state = $2, updated_at = clock_timestamp()
 where req_id = $1 and state = $3 and ($4 > 2 or (select is_accepted_database()))`
