package store

// PayoutStatements are the statements whose cost must not grow with terminal rows.
var PayoutStatements = map[string]string{
	"findPayout": findPayout, "insertTombstone": insertTombstone, "confirmedPayouts": confirmedPayouts,
	"insertStatement": insertStatement, "withdrawStatement": withdrawStatement, "insertProof": insertProof, "payoutStatements": payoutStatements,
}
