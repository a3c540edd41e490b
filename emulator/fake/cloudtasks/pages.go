package cloudtasks

import (
	"encoding/base64"
	"slices"
)

// page cuts one page out of sorted names. The token names the last entry of the
// page before, so entries added or removed between two pages shift nothing. Size
// zero or above largest means largest.
func page(names []string, size, largest int, token string) (cut []string, next string, err error) {
	if size < 0 {
		return nil, "", invalid("page_size cannot be negative.")
	}
	if size == 0 || size > largest {
		size = largest
	}
	if token != "" {
		last, err := base64.RawURLEncoding.DecodeString(token)
		if err != nil {
			return nil, "", invalid("page_token is not one that was returned.")
		}
		at, found := slices.BinarySearch(names, string(last))
		if found {
			at++
		}
		names = names[at:]
	}
	if len(names) <= size {
		return names, "", nil
	}
	cut = names[:size]
	return cut, base64.RawURLEncoding.EncodeToString([]byte(cut[size-1])), nil
}
