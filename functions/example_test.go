package functions_test

import (
	"context"
	"fmt"
	"log"
	"math/big"
	"slices"
	"time"

	"github.com/fencepost/fencepost/functions"
	"github.com/fencepost/fencepost/shared/chain"
	"github.com/fencepost/fencepost/shared/chain/evm"
	"github.com/fencepost/fencepost/shared/chain/memchain"
	"github.com/fencepost/fencepost/shared/signer"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/gas"
	"github.com/fencepost/fencepost/shared/txmanager/rules"
)

// patient rebroadcasts a stuck transaction that its node seems to have lost, and leaves others to
// operators.
type patient struct{}

func (patient) Resolve(t txmanager.Tx) (txmanager.Action, string) {
	if d := t.Diagnosis; d != nil && d.Signal == txmanager.PerhapsLost {
		return txmanager.ActionRebroadcast, "the node does not have it"
	}
	return txmanager.ActionWait, ""
}

func ExampleExtensions_stuckResolution() {
	ext := functions.Extensions{Stuck: patient{}}
	fmt.Println(ext.Stuck.Resolve(txmanager.Tx{Diagnosis: &txmanager.Diagnosis{Signal: txmanager.PerhapsLost}}))
	// Output: REBROADCAST the node does not have it
}

// steps raises both fees by a quarter in the first ten minutes, and doubles them later.
type steps struct{}

func (steps) Propose(r gas.BumpRequest) (gas.ProposedFees, bool) {
	percent := int64(125)
	if r.Age > 10*time.Minute {
		percent = 200
	}
	raise := func(wei *big.Int) *big.Int {
		more := new(big.Int).Mul(wei, big.NewInt(percent))
		return more.Div(more, big.NewInt(100))
	}
	return gas.ProposedFees{FeeWei: raise(r.Last.FeeCapWei), TipWei: raise(r.Last.TipCapWei)}, true
}

func ExampleExtensions_gasBumpPolicy() {
	ext := functions.Extensions{Bump: steps{}}
	last := txmanager.GasParams{FeeCapWei: big.NewInt(40e9), TipCapWei: big.NewInt(2e9)}
	fmt.Println(ext.Bump.Propose(gas.BumpRequest{Age: time.Minute, Last: last}))
	fmt.Println(ext.Bump.Propose(gas.BumpRequest{Age: time.Hour, Last: last}))
	// Output:
	// {50000000000 2500000000} true
	// {80000000000 4000000000} true
}

// unhurried gives the default's signals, and never advises a gas bump.
type unhurried struct{ rules.DefaultInspector }

func (u unhurried) Diagnose(e rules.MempoolEvidence) (txmanager.Signal, txmanager.Advice, bool) {
	e.Underpriced = false
	return u.DefaultInspector.Diagnose(e)
}

func ExampleExtensions_mempoolInspector() {
	ext := functions.Extensions{Mempool: unhurried{}}
	fmt.Println(ext.Mempool.Diagnose(rules.MempoolEvidence{Versions: []txmanager.Answer{txmanager.AnswerFound}, Underpriced: true}))
	// Output: IN_MEMPOOL WAIT true
}

// printed publishes events to the standard output.
type printed struct{}

func (printed) Publish(_ context.Context, events []txmanager.Event) (taken int, err error) {
	for i, e := range events {
		if _, err := fmt.Println(e.Key(), string(e.Body)); err != nil {
			return i, err // this event and the later ones are delivered again
		}
	}
	return len(events), nil
}

func ExampleExtensions_eventPublisher() {
	ext := functions.Extensions{Publishers: map[string]txmanager.DomainEventPublisher{"audit": printed{}}}
	event := txmanager.Event{TxID: "7", Sequence: 1, Type: txmanager.TxAccepted, Body: []byte(`{"txId":"7"}`)}
	fmt.Println(ext.Publishers["audit"].Publish(context.Background(), []txmanager.Event{event}))
	// Output:
	// 7-TxAccepted-1 {"txId":"7"}
	// 1 <nil>
}

// logged is the default connector, which logs the broadcasts.
type logged struct{ chain.Node }

func (l logged) Send(ctx context.Context, raws [][]byte) []txmanager.SendResult {
	results := l.Node.Send(ctx, raws)
	for _, r := range results {
		log.Print(l.Name(), ": ", r.Class)
	}
	return results
}

func ExampleExtensions_families() {
	ext := functions.Extensions{Families: []chain.Family{memchain.Family{Chain: memchain.New(7)}}}
	s, err := chain.NewFamilies(ext.Families...).ParseSubmitter("M9734D509DBEF15AC8E7F463BE2D8D2AC2656183653D5", "mem", 7)
	fmt.Println(s, err)
	// Output: mem:7:m9734d509dbef15ac8e7f463be2d8d2ac2656183653d5 <nil>
}

func ExampleExtensions_chainConnector() {
	ext := functions.Extensions{Connect: func(o evm.Options) (chain.Node, error) {
		if o.ChainID != 1 {
			return nil, nil // the default serves other chains
		}
		node, err := evm.New(o)
		return logged{node}, err
	}}
	node, err := ext.Connect(evm.Options{ChainID: 1, URL: "https://node.example/key"})
	fmt.Println(node.Name(), err)
	// Output: node.example <nil>
}

// safe is a signer whose keys lie in a safe, by account.
type safe struct {
	accounts []txmanager.Submitter
	sign     func(ctx context.Context, s txmanager.Submitter, tx txmanager.Unsigned) (raw []byte, err error)
}

func (v safe) Sign(ctx context.Context, s txmanager.Submitter, tx txmanager.Unsigned) (txmanager.Signed, error) {
	raw, err := v.sign(ctx, s, tx)
	return txmanager.Signed{Raw: raw}, err
}

// InProcess returns false: the safe could leak bytes before they are stored.
func (safe) InProcess(txmanager.Submitter) bool { return false }

func (v safe) Check(_ context.Context, s txmanager.Submitter) error {
	if !slices.Contains(v.accounts, s) {
		return signer.ErrNoKey
	}
	return nil
}

func ExampleExtensions_signer() {
	const account = "eip155:1:0x00000000000000000000000000000000000a11ce"
	open := func(path string) (signer.Service, error) {
		return safe{accounts: []txmanager.Submitter{account}}, nil
	}
	ext := functions.Extensions{Signers: []signer.Kind{{Name: "safe", Key: "<path>", Signer: open}}}
	treasury, err := ext.Signers[0].Signer("treasury")
	fmt.Println(treasury.Check(context.Background(), account), err)
	// Output: <nil> <nil>
}
