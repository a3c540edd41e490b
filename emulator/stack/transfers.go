package stack

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"time"

	"github.com/fencepost/fencepost/emulator/fake/issuer"
	"github.com/fencepost/fencepost/emulator/stack/steps"
	"github.com/fencepost/fencepost/shared/lease"
	"github.com/fencepost/fencepost/shared/ledger/funding"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/transfers"
	"github.com/fencepost/fencepost/shared/transfer"
)

// UsersAudience is the audience of the users' tokens.
const UsersAudience = "https://exchange.fencepost.example"

// The first assets of a stack with transfers. Any positive amount can be transferred.
var (
	USDT = transfer.Asset{ID: 1, Name: "USDT", Precision: 6, MinUnits: 1, MaxUnits: 1_000_000_000_000_000, Active: true, Enabled: true}
	BTC  = transfer.Asset{ID: 2, Name: "BTC", Precision: 8, MinUnits: 1, MaxUnits: 2_100_000_000_000_000, Active: true, Enabled: true}
	JPY  = transfer.Asset{ID: 3, Name: "JPY", Precision: 0, MinUnits: 1, MaxUnits: 10_000_000_000, Active: true, Enabled: true}
)

// transferService serves transfers, and has the queue of their steps.
const transferService = "transfer"

// conservationJob is the schedule's name of the conservation check.
const conservationJob = "conservation"

// startTransfers starts the core, the issuer of users' tokens, and the store of transfers.
func (s *Stack) startTransfers(ctx context.Context) {
	if !s.options.Transfers {
		return
	}
	steps.OK(s.startCore(ctx), "start the trading core")
	s.Users = steps.Value(issuer.Start(issuer.Options{Algorithm: "ES256", Span: s.options.TokenSpan}))
	s.OnClose(s.Users.Close)
	s.tables = steps.Value(store.Open(ctx, store.Options{
		URL: s.Database, MaxConns: 8, Lease: lease.Rules{Duration: 10 * time.Second, RenewBelow: 5 * time.Second, ClockSkewAllowance: time.Second},
		StatementTimeout: time.Minute, LockTimeout: 30 * time.Second, IdleInTransactionTimeout: time.Minute,
	}))
	s.OnClose(func() error { s.tables.Close(); return nil })
	core := s.Core.Proxy.URL()
	if s.options.Core.Direct {
		core = "http://" + s.Core.Process().Addr()
	}
	maps.Copy(s.settings, map[string]string{
		"FENCEPOST_TRADING_URL":         core,
		"FENCEPOST_TRADING_SECRET":      s.Core.Secret,
		"FENCEPOST_AUTH_USERS_ISSUER":   s.Users.URL(),
		"FENCEPOST_AUTH_USERS_JWKS_URL": s.Users.JWKSURL(),
		"FENCEPOST_AUTH_USERS_AUDIENCE": UsersAudience,
	})
	s.Funding, s.Transfers = funding.New(s.tables.Pool()), transfers.New(s.tables)
	assets := []transfer.Asset{USDT, BTC, JPY}
	if s.options.Payouts {
		assets = s.payable(ctx)
	}
	if s.options.Unset {
		assets = nil
	}
	for _, a := range assets {
		steps.OK(s.AddAsset(ctx, a))
	}
}

// AddAsset adds an asset to both ledgers, or changes its terms.
func (s *Stack) AddAsset(ctx context.Context, a transfer.Asset) (err error) {
	defer steps.Return(&err)
	steps.OK(s.Transfers.PutAsset(ctx, a))
	name := fmt.Sprintf("asset-%d", a.ID)
	outcome := s.Core.Ledger().AddAsset(ctx, name, a.ID, uint8(a.Precision), assetsSince)
	return applied("make asset "+a.Name+" known to the core", outcome)
}

// assetsSince is the creation time of every asset: the same at each attempt, and within each horizon of the
// core.
var assetsSince = time.Now().Truncate(time.Microsecond)

// Deposit books units of the asset from outside into the user's account on that side. It creates the
// account if there is none.
func (s *Stack) Deposit(ctx context.Context, side transfer.AccountType, userID int64, assetID int32, units uint64) error {
	return applied(fmt.Sprintf("deposit for user %d", userID), s.Outside(ctx, side, transfer.OutsideDeposit, userID, assetID, units))
}

// Outside makes the side's ledger apply OutsideDeposit or OutsideWithdrawal under a new id.
func (s *Stack) Outside(ctx context.Context, side transfer.AccountType, op transfer.Op, userID int64, assetID int32, units uint64) transfer.Outcome {
	return s.OutsideCall(ctx, side, op, transfer.Call{
		ReqID: "outside-" + rand.Text(), UserID: userID, AssetID: assetID, Units: units, CreatedAt: time.Now().Truncate(time.Microsecond),
	})
}

// OutsideCall is [Stack.Outside] with the call given.
func (s *Stack) OutsideCall(ctx context.Context, side transfer.AccountType, op transfer.Op, call transfer.Call) transfer.Outcome {
	deposit, withdraw := s.Funding.OutsideDeposit, s.Funding.OutsideWithdrawal
	if side == transfer.Spot {
		core := s.Core.Ledger()
		deposit, withdraw = core.OutsideDeposit, core.OutsideWithdrawal
	}
	if op == transfer.OutsideWithdrawal {
		return withdraw(ctx, call)
	}
	return deposit(ctx, call)
}

// SetStatus makes the user's account on that side ACTIVE, FROZEN or DISABLED.
func (s *Stack) SetStatus(ctx context.Context, side transfer.AccountType, userID int64, assetID int32, status string) error {
	if side == transfer.Funding {
		tag, err := s.tables.Pool().Exec(ctx, `update balances_tb set status = $3 where user_id = $1 and asset_id = $2`, userID, assetID, status)
		if err == nil && tag.RowsAffected() == 0 {
			err = fmt.Errorf("set a status in Funding: user %d has no account in asset %d", userID, assetID)
		}
		return err
	}
	call := transfer.Call{ReqID: "status-" + rand.Text(), UserID: userID, AssetID: assetID, CreatedAt: time.Now().Truncate(time.Microsecond)}
	return applied("set a status in the core", s.Core.Ledger().SetStatus(ctx, call, status))
}

func applied(what string, o transfer.Outcome) error {
	if o.Verdict == transfer.Success {
		return nil
	}
	return fmt.Errorf("%s: %s %s %w", what, o.Verdict, o.Reason, o.Err)
}

// CallAsUser makes one request of the public API with the user's token.
func (s *Stack) CallAsUser(ctx context.Context, userID int64, method, path string, body any) (status int, answer []byte, err error) {
	defer steps.Return(&err)
	return CallWith(ctx, steps.Value(s.Users.UserToken(userID, UsersAudience)), method, s.URLMap.PublicURL()+path, body)
}

// CallWith makes one request with a bearer token; "": without one. A body other than nil is sent as JSON.
func CallWith(ctx context.Context, token, method, url string, body any) (status int, answer []byte, err error) {
	defer steps.Return(&err)
	var reader io.Reader
	if body != nil {
		reader = bytes.NewReader(steps.Value(json.Marshal(body)))
	}
	req := steps.Value(http.NewRequestWithContext(ctx, method, url, reader))
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	if reader != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp := steps.Value(http.DefaultClient.Do(req))
	defer resp.Body.Close()
	answer, err = io.ReadAll(resp.Body)
	return resp.StatusCode, answer, err
}

// RunConservation runs one check of conservation now and returns its error.
func (s *Stack) RunConservation(ctx context.Context) error {
	return s.scheduler.RunNow(ctx, conservationJob)
}
