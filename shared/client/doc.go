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
// Every method repeats a request that got no definite answer (a broken connection, a
// time-out, 502, 503) or is to come later (429), with growing waits, not before
// Retry-After, until [Options.Within] or ctx is over. That is safe because each
// carries a key by which the other side does it once: requestId, cid, or what it
// says by itself.
//
// Where the deployment demands two operators for an act, the first one's call is an error
// with a [ProposedError]: nothing was carried out.
//
// A refusal is a [Problem]. An error that is [ErrUnknown] is no refusal: what was
// asked may have happened, or may yet happen. Ask for it, or repeat it under the same
// key; never under another.
package client
