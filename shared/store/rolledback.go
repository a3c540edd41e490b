package store

// IsRolledBack reports whether the database refused the whole transaction of several calls because of
// one of them: its values, a constraint, or another session's lock. Nothing was stored. Each call can
// be repeated alone.
func IsRolledBack(err error) bool { return isRolledBack(err) }
