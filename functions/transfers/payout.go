package transfers

import (
	"context"
	"net/http"

	"github.com/fencepost/fencepost/shared/client"
	"github.com/fencepost/fencepost/shared/ledger/payout"
	"github.com/fencepost/fencepost/shared/transfer"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/web"
)

type payoutRequest struct {
	client.PayoutRequest
	CID    *string `json:"cid"`
	UserID *int64  `json:"user_id"`
}

// postPayout posts a transfer from Funding to an external address.
func (a *Server) postPayout(w http.ResponseWriter, r *http.Request, user int64, body payoutRequest) error {
	req, err := newRequest(r, user, body.UserID, body.CID, body.Asset, body.Amount)
	if err != nil {
		return err
	}
	to, err := payout.ParseAddress(a.Families, body.Address)
	if err != nil {
		return noAddressProblem()
	}
	req.From, req.To = transfer.Funding, transfer.Chain
	var hindrance error
	if req.Payout, hindrance, err = a.preparePayout(r.Context(), req, to); err != nil {
		return err
	}
	return a.submit(w, r, req, hindrance)
}

func noAddressProblem() *web.Problem {
	return addressProblem("is not an address; send 0x and 40 hex digits, with the checksum of EIP-55 if their case is mixed")
}

func addressProblem(say string) *web.Problem {
	p := refusedProblem(transfer.InvalidAddress)
	p.Detail = say
	return p
}

// preparePayout fixes permanently what the payout does. If that is impossible, the returned request is
// never stored, but it still finds the stored one under its cid. The hindrance then says why. A wrong
// asset or amount is no hindrance, as the store checks those.
func (a *Server) preparePayout(ctx context.Context, req transfer.Request, to txmanager.Address) (p *transfer.Payout, hindrance, err error) {
	none := &transfer.Payout{Address: to.String(), BaseUnits: "1", Payload: []byte("{}")}
	if !a.Pays {
		return none, transfer.RefusedError{Reason: transfer.TransferNotAllowed}, nil
	}
	asset, err := a.Store.Asset(ctx, req.Asset)
	if err != nil {
		return nil, nil, err
	}
	if transfer.CheckAsset(asset, transfer.FundingToChain) != "" {
		return none, nil, nil
	}
	units, reason := transfer.CheckAmount(req.Amount, *asset, a.Terms.SafetyFactor)
	if reason != "" {
		return none, nil, nil
	}
	if p, hindrance = payout.Prepare(a.Families, *asset, units, to.String(), a.PayoutMaxGas); hindrance != nil {
		return none, hindrance, nil
	}
	return p, nil, nil
}
