package functions_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/fencepost/fencepost/functions"
	"github.com/fencepost/fencepost/shared/chain/devchain"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/config"
	"github.com/fencepost/fencepost/shared/ledger/funding"
	"github.com/fencepost/fencepost/shared/ledger/trading"
	"github.com/fencepost/fencepost/shared/store/storetest"
	"github.com/fencepost/fencepost/shared/store/transfers"
	"github.com/fencepost/fencepost/shared/telemetry"
	"github.com/fencepost/fencepost/shared/transfer"
)

// alice and bob are users; USDT is asset 1, HELD is suspended, SHUT may not be
// transferred.
const (
	alice = 7
	bob   = 8
)

const payer = "eip155:1337:0x00000000000000000000000000000000000a11ce"

var assets = []transfer.Asset{
	{ID: 1, Name: "USDT", Precision: 6, MinUnits: 100, MaxUnits: 1_000_000_000_000, Active: true, Enabled: true,
		Payout: &transfer.PayoutTerms{Submitter: payer, ChainID: 1337, Decimals: 18}},
	{ID: 2, Name: "HELD", Precision: 6, MinUnits: 1, MaxUnits: 1_000_000_000_000, Enabled: true},
	{ID: 3, Name: "SHUT", Precision: 6, MinUnits: 1, MaxUnits: 1_000_000_000_000, Active: true},
	{ID: 4, Name: "HUGE", Precision: 8, MinUnits: 1, MaxUnits: 1<<64 - 1, Active: true, Enabled: true},
}

// deployment is one process' functions with a database, a trading core, a token issuer and a task
// service of one test.
type deployment struct {
	storetest.Bundle
	t       *testing.T
	core    core
	cloud   *cloud
	issuer  issuer
	funding *funding.Ledger
	trading *trading.Ledger
	table   *transfers.Store
	log     *lines
	left    *atomic.Bool // a caller disconnected before its answer
	url     string
}

// build returns a deployment with additional settings, in which alice and bob have 1,000 USDT in
// Funding.
func build(t *testing.T, settings ...string) deployment {
	t.Helper()
	return buildOn(t, startCore(t), settings...)
}

// buildWithShop is [build] with the shop's account, whose window is one.
func buildWithShop(t *testing.T, settings ...string) deployment {
	t.Helper()
	h := build(t, settings...)
	h.Register(t, shopAccount, 1)
	return h
}

// buildWithPolicy is [buildWithShop] with a policy that allows 5 wei for one transaction.
func buildWithPolicy(t *testing.T, settings ...string) deployment {
	t.Helper()
	h := buildWithShop(t, settings...)
	h.run(`insert into submitter_policy (submitter, max_value_wei) values ($1, 5)`, shopAccount)
	return h
}

// buildWithPayer is [build] with the account that pays USDT out.
func buildWithPayer(t *testing.T, settings ...string) deployment {
	t.Helper()
	h := build(t, settings...)
	h.registerPayer()
	return h
}

// buildOn is [build] with that trading core.
func buildOn(t *testing.T, core core, settings ...string) deployment {
	t.Helper()
	h := bare(t)
	h.core, h.funding, h.table = core, funding.New(h.DB), transfers.New(h.Store)
	h.trading = check.Value(trading.New(trading.Options{URL: core.url, Secret: coreSecret}))(t)
	t.Cleanup(h.trading.Close)
	h.url = h.serve(append(h.transferSettings(), settings...)...)
	for _, a := range assets {
		check.OK(t)(h.table.PutAsset(t.Context(), a))
		h.must(h.trading.AddAsset(t.Context(), "asset-"+a.Name, a.ID, uint8(a.Precision), time.Now()))
	}
	for _, user := range []int64{alice, bob} {
		h.must(h.funding.OutsideDeposit(t.Context(), transfer.Call{ReqID: fmt.Sprint("funds-of-", user), UserID: user, AssetID: 1, Units: 1_000_000_000}))
	}
	return h
}

// bare returns a deployment without users and a trading core, which serves nothing yet.
func bare(t *testing.T) deployment {
	t.Helper()
	return deployment{Bundle: storetest.New(t), t: t, cloud: startCloud(t), issuer: startIssuer(t), log: &lines{}, left: new(atomic.Bool)}
}

func (h deployment) must(o transfer.Outcome) {
	h.t.Helper()
	if o.Verdict != transfer.Success {
		h.t.Fatalf("got %+v, want Success", o)
	}
}

func (h deployment) transferSettings() []string {
	return []string{
		"FENCEPOST_TRADING_URL=" + h.core.url, "FENCEPOST_TRADING_SECRET=" + coreSecret,
		"FENCEPOST_AUTH_USERS_ISSUER=" + h.issuer.url, "FENCEPOST_AUTH_USERS_JWKS_URL=" + h.issuer.url, "FENCEPOST_AUTH_USERS_AUDIENCE=users",
	}
}

// settings returns the environment of a function process. A later entry overrides an earlier one.
func (h deployment) settings(more ...string) []string {
	all := append([]string{
		"FENCEPOST_DATABASE_URL=" + h.URL, "FENCEPOST_RPC_URLS=http://127.0.0.1:1", "FENCEPOST_CHAIN_ID=1337", "FENCEPOST_RPC_TIMEOUT=1s",
		"FENCEPOST_CONFIRMATIONS_REQUIRED=1", "FENCEPOST_DATABASE_MAX_CONNS=8",
		"FENCEPOST_TASKS_PROJECT=p", "FENCEPOST_TASKS_LOCATION=l", "FENCEPOST_TASKS_ENDPOINT=" + h.cloud.address,
		"FENCEPOST_TASKS_TARGET_URL=http://127.0.0.1:1", "FENCEPOST_TASKS_SERVICE_ACCOUNT=tasks@fencepost.example",
		"FENCEPOST_OIDC_ISSUER=" + h.issuer.url, "FENCEPOST_OIDC_JWKS_URL=" + h.issuer.url,
		"FENCEPOST_AUTH_PUBLIC_AUDIENCE=public", "FENCEPOST_AUTH_INTERNAL_AUDIENCE=internal",
		"FENCEPOST_AUTH_INTERNAL_ACCOUNTS=tasks@fencepost.example", "FENCEPOST_AUTH_OPERATORS=email:ann@fencepost.example", "FENCEPOST_AUTH_OPEN_ISSUER=false",
		"FENCEPOST_INTENTS_MAC_KEYS=" + base64.StdEncoding.EncodeToString(make([]byte, 32)),
	}, more...)
	given := map[string]string{}
	for _, entry := range all {
		name, value, _ := strings.Cut(entry, "=")
		given[name] = value
	}
	list := []string{}
	for name, value := range given {
		list = append(list, name+"="+value)
	}
	return list
}

// appWith returns the functions with a business' code and these settings.
func (h deployment) appWith(ext functions.Extensions, settings ...string) (*functions.App, error) {
	h.t.Helper()
	c := check.Value(config.LoadForTests(h.settings(settings...)))(h.t)
	return functions.New(h.t.Context(), c, telemetry.NewLogger(h.log, slog.LevelDebug, ""), "node", ext)
}

// startError returns the error with which a process of the code and the settings does not start; "": it starts.
func (h deployment) startError(ext functions.Extensions, settings ...string) string {
	h.t.Helper()
	app, err := h.appWith(ext, settings...)
	if err != nil {
		return err.Error()
	}
	_ = app.Close(context.WithoutCancel(h.t.Context()))
	return ""
}

// opened returns the functions with these settings, which close when the test ends.
func (h deployment) opened(settings ...string) *functions.App {
	h.t.Helper()
	return h.openedWith(functions.Extensions{}, settings...)
}

// openedWith is [deployment.opened] with a business' code.
func (h deployment) openedWith(ext functions.Extensions, settings ...string) *functions.App {
	h.t.Helper()
	app := check.Value(h.appWith(ext, settings...))(h.t)
	h.t.Cleanup(func() { _ = app.Close(context.WithoutCancel(h.t.Context())) })
	return app
}

// listen serves the target until the test ends.
func (h deployment) listen(app *functions.App, target string) (url string) {
	server := httptest.NewServer(app.Handlers()[target])
	h.t.Cleanup(server.Close)
	return server.URL
}

// onChain returns a bare deployment and its chain.
func onChain(t *testing.T) (deployment, *devchain.Chain) {
	t.Helper()
	chain := check.Value(devchain.Start(t.Context(), devchain.Options{}))(t)
	t.Cleanup(func() { _ = chain.Close() })
	return bare(t), chain
}

// serve serves all functions with these settings until the test ends, each with its own database role.
// A statement without the right that it needs fails.
func (h deployment) serve(settings ...string) (url string) {
	h.t.Helper()
	served := h.rolePerPath(settings...)
	handler := apiOf(h.t).Handler(served.paths, func(err error) { h.t.Error(err) })
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer context.AfterFunc(r.Context(), func() { h.left.Store(true) })()
		handler.ServeHTTP(w, r)
	}))
	h.t.Cleanup(func() {
		server.Close()
		served.close(context.WithoutCancel(h.t.Context()))
	})
	return server.URL
}

// userToken returns the user's token.
func (h deployment) userToken(user int64) string {
	return h.issuer.token(h.t, "users", jwt.MapClaims{"sub": fmt.Sprint(user)})
}

// as calls an admin or internal function as the account.
func (h deployment) as(account, method, path string, body any) answer {
	h.t.Helper()
	audience := "public"
	if strings.HasPrefix(path, "/internal/") {
		audience = "internal"
	}
	token := h.issuer.token(h.t, audience, jwt.MapClaims{"sub": "1", "email": account + "@fencepost.example", "email_verified": true})
	return call(h.t, h.t.Context(), token, method, h.url+path, body)
}

// asUser calls a function as the user.
func (h deployment) asUser(user int64, method, path string, body any) answer {
	h.t.Helper()
	return call(h.t, h.t.Context(), h.userToken(user), method, h.url+path, body)
}

// order returns a transfer's body: 1.5 USDT from Funding to Spot, with the given changes.
func order(differs members) members {
	return with(members{"from": "FUNDING", "to": "SPOT", "asset": "USDT", "amount": "1.5"}, differs)
}

// post posts a transfer of the user.
func (h deployment) post(user int64, differs members) answer {
	h.t.Helper()
	return h.asUser(user, "POST", "/api/v1/internal_transfer", order(differs))
}

// spotUnits returns the user's units of USDT in the trading core.
func (h deployment) spotUnits(user int64) uint64 {
	h.t.Helper()
	b, _, err := h.trading.Balance(h.t.Context(), user, 1)
	check.OK(h.t)(err)
	return b.Units
}

// createTx posts an intent of the shop's and returns its txId.
func (h deployment) createTx(requestID string) (txID string) {
	h.t.Helper()
	a := h.as("shop", "POST", "/api/v1/tx", intentOf(requestID))
	a.wants(h.t, 202, "intent %s", requestID)
	return fmt.Sprint(a.body["txId"])
}

// allRows reads a list of an operator by pages of this size, of which all but the last must be full. The query is "" or
// begins with &.
func (h deployment) allRows(list, path, query string, size int) (all []members) {
	h.t.Helper()
	for token := ""; ; {
		a := h.as("ann", "GET", fmt.Sprint(path, "?pageSize=", size, query, token), nil)
		a.wants(h.t, 200, "%s%s", path, query)
		rows := a.rows(list)
		all = append(all, rows...)
		next, more := a.body["nextPageToken"].(string)
		if len(rows) > size || more && len(rows) < size {
			h.t.Errorf("%s%s: got a page of %d rows, more %t, want %d a page", path, query, len(rows), more, size)
		}
		if !more {
			return all
		}
		token = "&pageToken=" + next
	}
}

// column returns a member of all rows as text.
func column(rows []members, member string) string {
	var all []string
	for _, row := range rows {
		all = append(all, fmt.Sprint(row[member]))
	}
	return strings.Join(all, " ")
}

// one reads one value.
func (h deployment) one(query string, args ...any) (text string) {
	h.t.Helper()
	if err := h.DB.QueryRow(h.t.Context(), `select coalesce((`+query+`)::text, 'null')`, args...).Scan(&text); err != nil {
		h.t.Fatalf("%s: %v", query, err)
	}
	return text
}

// with returns the members with some changed; nil removes one.
func with[M ~map[string]any](all, differs M) M {
	all = maps.Clone(all)
	for name, value := range differs {
		if all[name] = value; value == nil {
			delete(all, name)
		}
	}
	return all
}

// run changes rows without the functions.
func (h deployment) run(statement string, args ...any) {
	h.t.Helper()
	tag, err := h.DB.Exec(h.t.Context(), statement, args...)
	if err != nil || tag.RowsAffected() == 0 && !strings.HasPrefix(statement, "alter ") {
		h.t.Fatalf("%s: got %v, error %v; want rows changed", statement, tag, err)
	}
}

// await polls until the condition holds.
func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.After(2 * time.Minute)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-deadline:
			t.Fatalf("still not so: %s", what)
		case <-tick.C:
		}
	}
}
