package store

// IsRolledBack reports whether the database refused a statement of several calls, and so their whole
// transaction. Before its commit is acknowledged, nothing was stored, and each call can be repeated
// alone.
func IsRolledBack(err error) bool { return isStatementError(err) }
