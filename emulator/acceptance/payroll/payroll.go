// Package payroll is a business of the tests: handlers that make transactions,
// well or badly.
package payroll

import (
	"context"
	"encoding/json"
	"errors"
	"math/big"
	"time"

	"github.com/fencepost/fencepost/shared/nonce"
)

// Wage is the input of every handler.
type Wage struct {
	Wei int64  `json:"wei"`
	How string `json:"how"` // "": pays; or fails, panics, hangs, reverts
}

// Employee is who is paid.
var Employee = nonce.Address{17: 0x0e, 18: 0x3b, 19: 0x10}

// Handlers are the business' handlers, by name.
func Handlers() map[string]nonce.Handler { return map[string]nonce.Handler{"wage": wage} }

func wage(_ context.Context, n nonce.NonceContext) (nonce.Call, error) {
	var w Wage
	if err := json.Unmarshal(n.Input, &w); err != nil {
		return nonce.Call{}, err
	}
	call := nonce.Call{To: &Employee, Value: big.NewInt(w.Wei)}
	switch w.How {
	case "fails":
		return call, errors.New("the ledger of wages is closed")
	case "panics":
		panic("no such employee")
	case "hangs": // deaf to its context
		time.Sleep(time.Hour)
	case "reverts":
		call.To, call.Data = nil, []byte{0xfe} // INVALID: no contract comes of it
	}
	return call, nil
}
