package store

// RecordColumn is a column of the records that Go gives to a statement of another package.
type RecordColumn[Record any] = recordColumn[Record]

// RecordValue is the column with the value of each record.
func RecordValue[Record, Value any](name, pgType string, value func(*Record) Value) RecordColumn[Record] {
	return valueOf(name, pgType, value)
}

// RecordSet is a "from" item: the records as rows, with the place of each from 1 on. Its parameters are
// those of [RecordArrays], and the statement's first.
func RecordSet[Record any](columns []RecordColumn[Record], alias string) string {
	return orderedRecordSet(columns, 0, alias)
}

// RecordArrays are the parameters of a [RecordSet]: one array for each column.
func RecordArrays[Record any](columns []RecordColumn[Record], records []Record) []any {
	return arrays(nil, columns, records)
}
