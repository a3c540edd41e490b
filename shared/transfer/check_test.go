package transfer

import (
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/shared/check"
)

func TestCheckAccounts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		from, to AccountType
		payout   bool
		want     string
	}{
		{Funding, Spot, false, "1 "},
		{Spot, Funding, false, "2 "},
		{Funding, Chain, true, "3 "},
		{Funding, Funding, false, "0 SAME_ACCOUNT"},
		{Future, Future, false, "0 SAME_ACCOUNT"},
		{Funding, Future, false, "0 UNSUPPORTED_ACCOUNT_TYPE"},
		{Margin, Spot, false, "0 UNSUPPORTED_ACCOUNT_TYPE"},
		{Funding, Chain, false, "0 INVALID_ACCOUNT_TYPE"},
		{Chain, Funding, false, "0 INVALID_ACCOUNT_TYPE"},
		{Spot, Chain, true, "0 INVALID_ACCOUNT_TYPE"},
		{Funding, Spot, true, "0 INVALID_ACCOUNT_TYPE"},
		{"funding", Spot, false, "0 INVALID_ACCOUNT_TYPE"},
		{"WALLET", "WALLET", false, "0 INVALID_ACCOUNT_TYPE"},
		{"", "", false, "0 INVALID_ACCOUNT_TYPE"},
	} {
		kind, reason := CheckAccounts(c.from, c.to, c.payout)
		check.Equal(t, fmt.Sprintf("%s to %s, payout %v", c.from, c.to, c.payout), fmt.Sprintf("%d %s", kind, reason), c.want)
	}
}

// A source that cannot refund can only be paired with a target that never refuses. Today there is
// no such source; a build with one must not start.
func TestRefusingTargetNeedsRefundingSource(t *testing.T) {
	t.Parallel()
	check.Err(t, "the pairs of this build", nil)(checkPairs(pairs, accounts))
	oneWay := account{supported: true, refuses: true}
	for name, c := range map[string]struct {
		of   pair
		with map[AccountType]account
		want string
	}{
		"cannot refund": {pair{"A", "B"}, map[AccountType]account{"A": oneWay, "B": oneWay}, "can refuse a deposit, and A cannot refund it"},
		"never refuses": {pair{"A", "B"}, map[AccountType]account{"A": oneWay, "B": {supported: true}}, ""},
		"not supported": {pair{"A", "B"}, map[AccountType]account{"A": oneWay}, "not both supported"},
		"to itself":     {pair{"A", "A"}, map[AccountType]account{"A": oneWay}, "to itself"},
	} {
		err := checkPairs(map[Type]pair{1: c.of}, c.with)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}

func TestNewRejectsInvalidRulesAndMissingLedgers(t *testing.T) {
	t.Parallel()
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	all := map[AccountType]Ledger{Funding: none{}, Spot: none{}}
	for name, c := range map[string]struct {
		ledgers map[AccountType]Ledger
		change  func(*Rules)
		want    string
	}{
		"as specified":                   {all, func(*Rules) {}, ""},
		"no ledger":                      {map[AccountType]Ledger{Funding: none{}}, func(*Rules) {}, "no ledger for SPOT"},
		"no time":                        {all, func(r *Rules) { r.CallTimeout = 0 }, "CallTimeout is 0s"},
		"a call is rescued":              {all, func(r *Rules) { r.CallTimeout = r.RescueAfter }, "below RescueAfter"},
		"retries end before they begin":  {all, func(r *Rules) { r.RetryMax = r.RetryFirst - 1 }, "at least RetryFirst"},
		"no limit to a payout's waiting": {all, func(r *Rules) { r.PayoutLimit = -time.Second }, "PayoutLimit is -1s"},
	} {
		rules := DefaultRules()
		c.change(&rules)
		_, err := New(nil, nil, c.ledgers, rules, log)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}

type none struct{ Ledger }

func TestParseAmount(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"1": "1 0", "1.50": "1.5 2", "0.00000001": "0.00000001 8", "007.10": "7.1 2", "1.000000000": "1 9",
		"18446744073709551615": "18446744073709551615 0", "100": "100 0", "0.10": "0.1 2",
		"": "no", "0": "no", "0.000": "no", "-1": "no", "+1": "no", "1e3": "no", ".5": "no", "5.": "no", "1.2.3": "no",
		" 1": "no", "1 ": "no", "1,5": "no", "0x10": "no", "NaN": "no", "Infinity": "no", "٣": "no", "1_000": "no",
		strings.Repeat("9", 64): strings.Repeat("9", 64) + " 0", strings.Repeat("9", 65): "no",
	} {
		got := "no"
		if a, ok := ParseAmount(text); ok {
			got = fmt.Sprintf("%s %d", a, a.Decimals())
		}
		check.Equal(t, fmt.Sprintf("%q", text), got, want)
	}
}

// Units are compared with arithmetic on rationals.
func FuzzAmountIsExact(f *testing.F) {
	for _, text := range []string{"1.5", "0.00000001", "184467440737.09551615", "184467440737.09551616", "1.123456789", "00.10"} {
		f.Add(text, 8)
	}
	f.Fuzz(func(t *testing.T, text string, precision int) {
		a, ok := ParseAmount(text)
		if precision < 0 || precision > MaxPrecision || !ok {
			return
		}
		value, known := new(big.Rat).SetString(text)
		if !known || value.Sign() <= 0 {
			t.Fatalf("%q: accepted, but is no number above 0", text)
		}
		units, reason := a.Units(precision)
		exact := new(big.Rat).Mul(value, new(big.Rat).SetInt(timesTenTo(1, precision)))
		fits := exact.IsInt() && exact.Num().IsUint64()
		switch {
		case reason == PrecisionOverflow && a.Decimals() > precision:
		case reason == Overflow && exact.IsInt() && !fits:
		case reason != "" || !fits || exact.Num().Uint64() != units:
			t.Fatalf("%q at %d: got %d %q, want %s", text, precision, units, reason, exact)
		default:
			if back, ok := ParseAmount(FormatUnits(units, precision)); !ok || back.String() != a.String() {
				t.Fatalf("%q at %d: formatted as %q", text, precision, FormatUnits(units, precision))
			}
		}
	})
}

// mustAmount parses the text as an amount.
func mustAmount(t *testing.T, text string) Amount {
	t.Helper()
	a, ok := ParseAmount(text)
	if !ok {
		t.Fatalf("%q is no amount", text)
	}
	return a
}

// The caller gets the first failed check: account type, asset, amount, in this order.
func TestCheckReportsTheFirstFailure(t *testing.T) {
	t.Parallel()
	asset := Asset{ID: 1, Name: "USDT", Precision: 6, MinUnits: 1_000_000, MaxUnits: 1_000_000_000, Active: true, Enabled: true}
	suspended, disabled, payable, unbounded := asset, asset, asset, asset
	suspended.Active, suspended.Enabled, disabled.Enabled = false, false, false
	payable.Enabled, payable.Payout = false, &PayoutTerms{Decimals: 18}
	unbounded.MaxUnits = ^uint64(0)
	to := &Payout{}
	for _, c := range []struct {
		name     string
		from, to AccountType
		payout   *Payout
		asset    *Asset
		amount   string
		want     string
	}{
		{"all right", Funding, Spot, nil, &asset, "1.5", "1 1500000"},
		{"least", Funding, Spot, nil, &asset, "1", "1 1000000"},
		{"most", Funding, Spot, nil, &asset, "1000.000000", "1 1000000000"},
		{"accounts first", Funding, Funding, nil, nil, "0.1", "SAME_ACCOUNT"},
		{"unknown asset", Funding, Spot, nil, nil, "0.1", "INVALID_ASSET"},
		{"suspended before disabled", Funding, Spot, nil, &suspended, "0.1", "ASSET_SUSPENDED"},
		{"asset before amount", Funding, Spot, nil, &disabled, "0.1234567", "TRANSFER_NOT_ALLOWED"},
		{"decimals before the least", Funding, Spot, nil, &asset, "0.1234567", "PRECISION_OVERFLOW"},
		{"zeros are decimals", Funding, Spot, nil, &asset, "1.0000000", "PRECISION_OVERFLOW"},
		{"below the least", Funding, Spot, nil, &asset, "0.999999", "AMOUNT_TOO_SMALL"},
		{"above the most", Funding, Spot, nil, &asset, "1000.000001", "AMOUNT_TOO_LARGE"},
		{"beyond 64 bits", Funding, Spot, nil, &asset, "18446744073709551616", "OVERFLOW"},
		{"a tenth of 64 bits", Funding, Spot, nil, &unbounded, "1844674407370.955161", "1 1844674407370955161"},
		{"beyond a tenth of 64 bits", Funding, Spot, nil, &unbounded, "1844674407370.955162", "OVERFLOW"},
		{"a payout", Funding, Chain, to, &payable, "2", "3 2000000"},
		{"no payouts of it", Funding, Chain, to, &asset, "2", "TRANSFER_NOT_ALLOWED"},
	} {
		r := Request{From: c.from, To: c.to, Payout: c.payout, Amount: mustAmount(t, c.amount)}
		kind, units, reason := r.Check(c.asset, Terms{SafetyFactor: 10})
		got := string(reason)
		if reason == "" {
			got = fmt.Sprintf("%d %d", kind, units)
		}
		check.Equal(t, c.name, got, c.want)
	}
	_, reason := CheckAmount(Amount{}, asset, 10)
	check.Equal(t, "no amount", reason, InvalidAmount)
}

func TestCheckLimits(t *testing.T) {
	t.Parallel()
	limits, most := Limits{PerSecond: 10, PerDay: 100}, ^uint64(0)
	for _, c := range []struct {
		name   string
		units  uint64
		daily  uint64
		limits Limits
		counts Counts
		want   Reason
	}{
		{"no limits", 5, 0, Limits{}, Counts{1000, 1000, most}, ""},
		{"room for one", 5, 0, limits, Counts{9, 99, 0}, ""},
		{"this second", 5, 0, limits, Counts{10, 100, 0}, RateLimitExceeded},
		{"this day", 5, 0, limits, Counts{0, 100, 0}, DailyLimitExceeded},
		{"just the day's amount", 5, 10, limits, Counts{0, 0, 5}, ""},
		{"one more than the day's amount", 6, 10, limits, Counts{0, 0, 5}, DailyAmountExceeded},
		{"more than a day's amount at once", 11, 10, limits, Counts{}, DailyAmountExceeded},
		{"near the end of 64 bits", most, most, limits, Counts{0, 0, 1}, DailyAmountExceeded},
	} {
		check.Equal(t, c.name, CheckLimits(c.units, Asset{DailyUnits: c.daily}, c.limits, c.counts), c.want)
	}
}

// Requests with the same content match in another spelling of the amount, and after a change of
// the settings.
func TestSameComparesTheClientsFields(t *testing.T) {
	t.Parallel()
	stored := Transfer{UserID: 7, Asset: "USDT", Precision: 6, Units: 1_500_000, Type: FundingToSpot}
	paid := Transfer{UserID: 7, Asset: "USDT", Precision: 6, Units: 1_500_000, Type: FundingToChain, Payout: &Payout{Address: "0xa1", Submitter: "then"}}
	for _, c := range []struct {
		name   string
		change func(*Request)
		stored Transfer
		want   bool
	}{
		{"as it was", func(*Request) {}, stored, true},
		{"another spelling", func(r *Request) { r.Amount = mustAmount(t, "01.50") }, stored, true},
		{"another amount", func(r *Request) { r.Amount = mustAmount(t, "1.51") }, stored, false},
		{"another asset", func(r *Request) { r.Asset = "BTC" }, stored, false},
		{"another way", func(r *Request) { r.From, r.To = Spot, Funding }, stored, false},
		{"no way at all", func(r *Request) { r.To = "WALLET" }, stored, false},
		{"another user", func(r *Request) { r.UserID = 8 }, stored, false},
		{"the same payout from another account", func(r *Request) { r.To, r.Payout = Chain, &Payout{Address: "0xa1", Submitter: "now"} }, paid, true},
		{"another address", func(r *Request) { r.To, r.Payout = Chain, &Payout{Address: "0xb2", Submitter: "then"} }, paid, false},
	} {
		r := Request{UserID: 7, From: Funding, To: Spot, Asset: "USDT", Amount: mustAmount(t, "1.5")}
		c.change(&r)
		check.Equal(t, c.name, r.Same(c.stored), c.want)
	}
}

func TestBaseUnitsOfAPayout(t *testing.T) {
	t.Parallel()
	check.Equal(t, "1.5 of 6 decimals on a chain with 18", (PayoutTerms{Decimals: 18}).BaseUnits(1_500_000, 6), "1500000000000000000")
	check.Equal(t, "the most there can be", (PayoutTerms{Decimals: 36}).BaseUnits(^uint64(0), 0), "18446744073709551615"+strings.Repeat("0", 36))
}

func TestNextInFollowsThePlanOrTheRescuePeriod(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	soon, past := now.Add(7*time.Second), now.Add(-time.Second)
	for name, c := range map[string]struct {
		planned *time.Time
		updated time.Time
		want    time.Duration
	}{
		"planned":         {&soon, now.Add(-time.Hour), 7 * time.Second},
		"overdue":         {&past, now, 0},
		"nobody planned":  {nil, now.Add(-20 * time.Second), 40 * time.Second},
		"its worker died": {nil, now.Add(-time.Hour), 0},
	} {
		got := Transfer{NextAttemptAt: c.planned, UpdatedAt: c.updated, Now: now}.NextIn(time.Minute)
		check.Equal(t, name, got, c.want)
	}
}

// A payout can use up its asset's daily limit, and not a unit more.
func TestCheckPayoutDay(t *testing.T) {
	t.Parallel()
	most := ^uint64(0)
	for _, c := range []struct {
		units, day, used, left uint64
		want                   Reason
	}{
		{most, 0, most, 0, ""},
		{5, 10, 5, 5, ""},
		{6, 10, 5, 5, DailyPayoutExceeded},
		{1, 10, 10, 0, DailyPayoutExceeded},
		{1, 10, most, 0, DailyPayoutExceeded},
		{most, most, 0, most, ""},
		{most, most, 1, most - 1, DailyPayoutExceeded},
	} {
		left, reason := CheckPayoutDay(c.units, c.used, Asset{PayoutDay: c.day})
		if left != c.left || reason != c.want {
			t.Errorf("%d of %d with %d used: got %d left, %q; want %d, %q", c.units, c.day, c.used, left, reason, c.left, c.want)
		}
	}
}
