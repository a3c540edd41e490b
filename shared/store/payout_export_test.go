package store

// PayoutStatements are those whose cost must not grow with what is finished.
var PayoutStatements = map[string]string{
	"findPayout": findPayout, "insertTombstone": insertTombstone, "confirmedPayouts": confirmedPayouts,
	"insertStatement": insertStatement, "withdrawStatement": withdrawStatement, "insertProof": insertProof, "payoutStatements": payoutStatements,
}
