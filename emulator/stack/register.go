package stack

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/fencepost/fencepost/emulator/stack/steps"
	"github.com/fencepost/fencepost/shared/client"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// register registers the dev accounts by the admin function.
func (s *Stack) register(ctx context.Context) {
	operator := steps.Value(s.Client(OperatorAccount))
	for _, sub := range slices.Concat(s.Submitters(), s.OnSecond()) {
		s.registerFor(ctx, operator, sub, store.EmailCaller+CallerAccount)
	}
	if s.options.Payouts && !s.options.Unset {
		s.registerFor(ctx, operator, s.Payer, store.PayoutCaller)
	}
}

// registerFor registers the submitter for one caller only.
func (s *Stack) registerFor(ctx context.Context, operator *client.Client, sub txmanager.Submitter, caller string) {
	_, err := operator.RegisterSubmitter(ctx, client.Registration{Submitter: string(sub), Signer: s.signers[sub], Callers: []string{caller}, MaxInFlight: s.options.Window, Unlimited: true})
	steps.OK(s.agreed(ctx, err), "register ", sub)
}

// agreed returns the error of an operator's call. Where the settings demand two operators, the call has proposed
// something, and the second operator approves it.
func (s *Stack) agreed(ctx context.Context, err error) error {
	p := client.ProposedBy(err)
	if p == nil {
		return err
	}
	second, err := s.Client(SecondAccount)
	if err == nil {
		_, err = second.Approve(ctx, p.ProposalID, "the stack is started")
	}
	return err
}

// Book books an amount from outside into a user's account by the operators' calls.
func (s *Stack) Book(ctx context.Context, userID int64, asset string, in client.Money) (err error) {
	defer steps.Return(&err)
	act, err := steps.Value(s.Client(OperatorAccount)).BookDeposit(ctx, userID, asset, in)
	if err == nil && act.State != "DONE" {
		err = fmt.Errorf("%s: %s", act.State, act.WaitsFor)
	}
	steps.OK(s.agreed(ctx, err), "book ", in.Amount, " ", asset, " for user ", userID)
	return nil
}

// Call makes one request of the public API as the account given. A body other than nil is sent as JSON.
func (s *Stack) Call(ctx context.Context, account, method, path string, body any) (status int, answer []byte, err error) {
	defer steps.Return(&err)
	return CallWith(ctx, steps.Value(s.Issuer.Token(ctx, account, PublicAudience)), method, s.URLMap.PublicURL()+path, body)
}

// Info describes a running stack for its users.
type Info struct {
	API         string       `json:"api"`
	Token       string       `json:"token"`
	Operator    string       `json:"operatorToken"`
	RPC         string       `json:"rpc"`
	Database    string       `json:"database"`
	CloudTasks  string       `json:"cloudTasks"`
	Queues      string       `json:"queues"` // the parent of all queues
	Issuer      string       `json:"issuer"`
	ChainID     uint64       `json:"chainId"`
	Submitters  []DevAccount `json:"submitters"`
	Processes   []Instance   `json:"processes"`
	GeneratedAt time.Time    `json:"generatedAt"` // the tokens are valid for an hour from then on
}

// DevAccount is a registered submitter with its key, which has no value elsewhere.
type DevAccount struct {
	Submitter  string `json:"submitter"`
	PrivateKey string `json:"privateKey,omitempty"`
}

// Instance is one function process.
type Instance struct {
	PID  int    `json:"pid"`
	Addr string `json:"addr"`
}

// Info returns the stack's current description, with new tokens.
func (s *Stack) Info(ctx context.Context) (info Info, err error) {
	defer steps.Return(&err)
	info = Info{
		API: s.URLMap.PublicURL(), Token: steps.Value(s.Issuer.Token(ctx, CallerAccount, PublicAudience)),
		Operator: steps.Value(s.Issuer.Token(ctx, OperatorAccount, PublicAudience)), RPC: s.Chain.URL(), Database: s.Database,
		CloudTasks: s.Tasks.Addr(), Queues: parent, Issuer: s.Issuer.URL(), ChainID: s.Chain.ChainID(), GeneratedAt: time.Now().UTC(),
	}
	for i, sub := range s.Submitters() {
		info.Submitters = append(info.Submitters, DevAccount{string(sub), keyOf(s.accounts[i])})
	}
	for _, p := range s.Processes() {
		info.Processes = append(info.Processes, Instance{p.PID(), p.Addr()})
	}
	return info, nil
}
