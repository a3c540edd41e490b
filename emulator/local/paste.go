package local

import (
	"context"
	"fmt"
	"io"

	"github.com/fencepost/fencepost/emulator/demo"
	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/emulator/stack/steps"
	"github.com/fencepost/fencepost/shared/client"
	"github.com/fencepost/fencepost/shared/transfer"
)

// receiver is an address without a key, for examples.
const receiver = "0x00000000000000000000000000000000cafe0001"

// Options are those of a running stack for people.
type Options struct {
	Control string                // where the control address is; "": see [Serve]
	Keys    bool                  // shows the accounts' private keys
	Users   int                   // who have money, from id 1 on
	Events  *demo.WebhookEndpoint // prints what it gets; nil: there is none
}

// Wait serves the control address, prints how to use the stack, and returns when ctx ends.
func Wait(ctx context.Context, s *stack.Stack, o Options, out io.Writer) (err error) {
	defer steps.Return(&err)
	control := steps.Value(Serve(s, o.Control, o.Keys))
	defer control.Close()
	welcome(s, control, o, out)
	<-ctx.Done()
	fmt.Fprintln(out, "\nStopping.")
	return nil
}

// welcome prints where the running stack is, and commands to paste into a shell.
func welcome(s *stack.Stack, control *Control, o Options, out io.Writer) {
	if open, err := s.ConsoleURL(stack.OperatorAccount); err == nil {
		fmt.Fprintf(out, `
The console, signed in as an operator (open it within a minute; a new URL: curl -sS -X POST %s/console):

  %s
`, control.URL(), open)
	}
	fmt.Fprintf(out, `
Running until Ctrl-C. Paste this into a shell, and again after an hour, when its tokens have expired:

export CONTROL=%s API=%s SUBMITTER=%s
export TOKEN="$(curl -sS $CONTROL/token/caller)" OPERATOR_TOKEN="$(curl -sS $CONTROL/token/operator)"
export FENCEPOST_API=$API FENCEPOST_TOKEN=$TOKEN FENCEPOST_OPERATOR_TOKEN=$OPERATOR_TOKEN

Post an intent; then read it until its state is CONFIRMED:

%s
curl -sS "$API/api/v1/tx/by-request?submitter=$SUBMITTER&requestId=hello-1" -H "Authorization: Bearer $TOKEN"

Look as an operator:

curl -sS "$API/admin/v1/submitters/$SUBMITTER" -H "Authorization: Bearer $OPERATOR_TOKEN"

The same from a shell, by the program fencepost (go install ./shared/client/cmd/fencepost; docs/cli.md):

fencepost doctor
`, control.URL(), s.URLMap.PublicURL(), s.Submitters()[0],
		post("/api/v1/tx", "$TOKEN", `{"submitter": "'$SUBMITTER'", "requestId": "hello-1", "payload": {"to": "`+receiver+`", "value": "1"}}`))
	if o.Users > 0 {
		fmt.Fprintf(out, `
Users 1 to %d have money in Funding and in the trading core. As user 1, move some, and look:

export USER_TOKEN="$(curl -sS $CONTROL/token/user/1)"
export FENCEPOST_USER_TOKEN=$USER_TOKEN
%s
curl -sS "$API/api/v1/internal_transfer" -H "Authorization: Bearer $USER_TOKEN"
`, o.Users, post("/api/v1/internal_transfer", "$USER_TOKEN", `{"from": "FUNDING", "to": "SPOT", "asset": "USDT", "amount": "12.5", "cid": "move-1"}`))
	}
	if s.Payer != "" {
		fmt.Fprintf(out, `
Pay out on the chain; the same list shows when it is COMMITTED:

%s
`, post("/api/v1/payout", "$USER_TOKEN", `{"asset": "ETH", "amount": "0.1", "address": "`+receiver+`", "cid": "pay-1"}`))
	}
	if o.Events != nil {
		fmt.Fprintf(out, "\nEvents go to the webhook receiver at %s. What it gets is printed here.\n", o.Events.URL())
		o.Events.PrintTo(out)
	}
	fmt.Fprintf(out, `
All calls, each with a command to paste, for a browser: %s/explorer
More: curl -sS $CONTROL/info (the chain's RPC, the database, process ids); go run ./emulator drill --list (exercises for operators).
`, control.URL())
}

// post returns a curl command that posts JSON.
func post(path, token, body string) string {
	return fmt.Sprintf(`curl -sS "$API%s" -H "Authorization: Bearer %s" -H 'Content-Type: application/json' \
  -d '%s'`, path, token, body)
}

// users is the number of users that are given money.
const users = 3

// opening is what each user has in each asset, on each side, as users write it.
const opening = "1000"

// OpenAccounts gives users money of each asset, in Funding and in the trading core, and returns how many.
func OpenAccounts(ctx context.Context, s *stack.Stack) (n int, err error) {
	defer steps.Return(&err)
	for user := int64(1); user <= users; user++ {
		for _, asset := range []transfer.Asset{stack.USDT, stack.BTC, stack.JPY, stack.ETH} {
			for _, side := range []transfer.AccountType{transfer.Funding, transfer.Spot} {
				in := client.Money{ID: fmt.Sprintf("opening-%d-%s-%s", user, asset.Name, side), Amount: opening, Account: string(side), Reason: "money for trying out"}
				steps.OK(s.Book(ctx, user, asset.Name, in))
			}
		}
	}
	return users, nil
}
