package conservation

// PageStatements are the statements of [Book.Last], which pages show.
var PageStatements = map[string]string{"checkedAt": checkedAt, "standing": standing}
