package engine

import (
	"database/sql"
	"database/sql/driver"
	"fmt"
)

// batchRow is a row of a batch's result.
type batchRow []driver.Value

// Scan copies the values as database/sql would, for the types that are asked for
// here.
func (r batchRow) Scan(dest ...any) error {
	if len(dest) != len(r) {
		return fmt.Errorf("%d values for %d destinations", len(r), len(dest))
	}
	for i, to := range dest {
		if !assign(to, r[i]) {
			return fmt.Errorf("value %d is a %T, wanted for a %T", i, r[i], to)
		}
	}
	return nil
}

func assign(to any, value driver.Value) bool {
	switch to := to.(type) {
	case *any:
		*to = value
		return true
	case *int64:
		n, ok := value.(int64)
		*to = n
		return ok
	case *int:
		n, ok := value.(int64)
		*to = int(n)
		return ok
	case *bool:
		n, ok := value.(int64)
		*to = n != 0
		return ok
	case *[]byte:
		bytes, ok := bytesOf(value)
		*to = bytes
		return ok
	case *sql.RawBytes:
		bytes, ok := bytesOf(value)
		*to = bytes
		return ok
	case *string:
		bytes, ok := bytesOf(value)
		*to = string(bytes)
		return ok
	}
	return false
}

func bytesOf(value driver.Value) ([]byte, bool) {
	switch value := value.(type) {
	case nil:
		return nil, true
	case []byte:
		return value, true
	case string:
		return []byte(value), true
	}
	return nil, false
}
