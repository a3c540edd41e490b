// Package client calls Fencepost over HTTP, as functions/openapi.yaml describes it.
// It needs the standard library alone.
//
//	c, err := client.New(client.Options{URL: "https://api.fencepost.example", Token: token})
//	…
//	created, err := c.CreateTx(ctx, client.Intent{
//		Submitter: "eip155:1:0x…", RequestID: "order-4711", Payload: client.Payload{To: "0x…", Value: "1"},
//	})
//	…
//	tx, err := c.WaitTx(ctx, created.TxID) // tx.State is CONFIRMED or FAILED
//
// A method repeats a request without a definite answer (a broken connection, a time-out,
// 502, 503) or with a request to retry (429). The waits grow and respect Retry-After, until
// [Options.Within] or ctx is over. That is safe for reads, and where a key lets the server carry
// the request out once: requestId, cid, or its content. An operator's act is not repeated
// without a definite answer, because another operator may have undone it meanwhile. Exceptions are
// what can happen once: deposits, withdrawals, the cancel of a transaction, a registration, and the
// decision about a proposal. Read the state before you act again.
//
// A method that yields rows fetches pages as needed, and ends at the first error. The reason of an operator's act is
// kept with the operator's name.
//
// Where the deployment demands two operators for an act, the first one's call is an error
// with a [ProposedError]: nothing was carried out.
//
// A refusal is a [Problem]. An error that is [ErrUnknown] is no refusal: the
// request may have been carried out, or may still be. Read the state, or repeat the request
// under the same key; never under another.
//
// Most answers of the functions are made of types of this package, so that an answer has one Go
// type. A member that the API may omit has omitempty in its tag for them. To change a tag is to
// change the API.
package client
