// Command payroll is the functions with a handler for wages; with the arguments
// "pay", a submitter and a requestId it posts a request for one.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"os"

	"github.com/fencepost/fencepost/functions"
	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/config"
	"github.com/fencepost/fencepost/shared/txmanager"
)

var extensions = functions.Extensions{Handlers: map[string]txmanager.Handler{"wage": wage}}

func main() {
	if len(os.Args) != 4 || os.Args[1] != "pay" {
		functions.Main(extensions)
		return
	}
	if err := pay(context.Background(), txmanager.Submitter(os.Args[2]), os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, "payroll:", err)
		os.Exit(1)
	}
}

type wageOf struct {
	To  string `json:"to"`
	Wei string `json:"wei"`
}

// wage pays what the request says, and has it signed at once: the hash is known, and
// the bytes are stored, before anything is sent.
func wage(ctx context.Context, n txmanager.NonceContext) (txmanager.Transaction, error) {
	var w wageOf
	if err := json.Unmarshal(n.Input, &w); err != nil {
		return txmanager.Transaction{}, err
	}
	to, err := eip155.ParseAddress(w.To)
	if err != nil {
		return txmanager.Transaction{}, fmt.Errorf("to is no account that wages can go to: %w", err)
	}
	wei, ok := new(big.Int).SetString(w.Wei, 10)
	if !ok {
		return txmanager.Transaction{}, errors.New("wei is no amount")
	}
	signed, err := n.Signer.Sign(ctx, txmanager.Call{To: &to, Value: wei})
	if err != nil {
		return txmanager.Transaction{}, err
	}
	fmt.Println("the books:", n.RequestID, "will be paid by", signed.Hash)
	return txmanager.Transaction{Signed: signed.Raw}, nil
}

// pay posts one request, and prints its txId. Again it prints the same.
func pay(ctx context.Context, s txmanager.Submitter, requestID string) error {
	c, err := config.Load(os.Environ())
	if err != nil {
		return err
	}
	app, err := functions.New(ctx, c, slog.New(slog.DiscardHandler), "payroll", extensions)
	if err != nil {
		return err
	}
	defer app.Close(ctx)
	txID, err := app.WithNonce(ctx, s, requestID, "wage", wageOf{To: "0x00000000000000000000000000000000000000b0", Wei: "5"})
	if err == nil {
		fmt.Println(txID)
	}
	return err
}
