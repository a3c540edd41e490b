package functions

import (
	"github.com/fencepost/fencepost/shared/nonce"
	"github.com/fencepost/fencepost/shared/store"
)

// Watched is the book of submitters where what is done by it counts.
func Watched(s *store.Store) nonce.Book { return watchedStore{s} }
