// Package payroll is a business for the tests: its handlers make correct and faulty transactions.
package payroll

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"os"
	"time"

	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// Wage is the input of every handler.
type Wage struct {
	Wei int64  `json:"wei"`
	How string `json:"how"` // "": a correct payment; otherwise one of the cases of wage

	// Slip is a file into which a signing handler writes the call that it was given; "": none.
	Slip string `json:"slip"`
}

// Employee is the recipient of wages.
var Employee = eip155.Address([20]byte{17: 0x0e, 18: 0x3b, 19: 0x10})

// Handlers returns the business' handlers by name.
func Handlers() map[string]txmanager.Handler { return map[string]txmanager.Handler{"wage": wage} }

func wage(ctx context.Context, n txmanager.NonceContext) (txmanager.Transaction, error) {
	var w Wage
	if err := json.Unmarshal(n.Input, &w); err != nil {
		return txmanager.Transaction{}, err
	}
	call := txmanager.Call{To: &Employee, Value: big.NewInt(w.Wei)}
	switch w.How {
	case "fails":
		return txmanager.Transaction{}, errors.New("the ledger of wages is closed")
	case "panics":
		panic("no such employee")
	case "hangs": // it ignores its context
		time.Sleep(time.Hour)
	case "reverts":
		call.To, call.Data = nil, []byte{0xfe} // INVALID: the creation fails
	case "starves":
		call.Gas, call.Data = 21_000, make([]byte, 100) // less gas than the data cost on every node
	case "drivels":
		call.Data = make([]byte, 200<<10) // more data than any node accepts
	case "signs", "signs twice", "signs and fails", "signs and hangs":
		return w.signed(ctx, n, call)
	}
	return txmanager.Transaction{Call: call}, nil
}

// signed signs the wage in the handler, as a business does that needs the bytes before they are sent.
func (w Wage) signed(ctx context.Context, n txmanager.NonceContext, call txmanager.Call) (txmanager.Transaction, error) {
	s, err := n.Signer.Sign(ctx, call)
	if err != nil {
		return txmanager.Transaction{}, err
	}
	if w.Slip != "" {
		if err := os.WriteFile(w.Slip, s.Raw, 0o600); err != nil {
			return txmanager.Transaction{}, err
		}
	}
	switch w.How {
	case "signs twice":
		again, err := n.Signer.Sign(ctx, call)
		if err != nil || again.Hash != s.Hash {
			return txmanager.Transaction{}, fmt.Errorf("the same again was signed as %s: %w", again.Hash, err)
		}
		call.Value = new(big.Int).Add(call.Value, big.NewInt(1))
		if _, err := n.Signer.Sign(ctx, call); !errors.Is(err, txmanager.ErrSignedOther) {
			return txmanager.Transaction{}, fmt.Errorf("a raise was signed beside it: %w", err)
		}
	case "signs and fails":
		return txmanager.Transaction{}, errors.New("the employee has left")
	case "signs and hangs":
		time.Sleep(time.Hour)
	}
	return txmanager.Transaction{Signed: s.Raw}, nil
}
