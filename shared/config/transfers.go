package config

import (
	"net/url"
	"strings"
	"time"
)

// Transfer configures internal transfers and payouts.
type Transfer struct {
	// InitTimeout is the age at which a transfer that has not begun fails.
	InitTimeout time.Duration
	// CallTimeout is the longest time of one call to a ledger: below RescueAfter.
	CallTimeout time.Duration
	// RetryFirst is the time until the next attempt after an unknown answer; it
	// doubles with each, up to RetryMost.
	RetryFirst, RetryMost time.Duration
	// RescueAfter is how long a transfer without a planned attempt may make no progress before
	// its worker counts as lost.
	RescueAfter time.Duration
	// SafetyFactor is how many times an amount must fit into 64 bits.
	SafetyFactor uint64
	// LimitsPerSecond and LimitsPerDay limit the transfers that one user may request in a
	// second and in 24 hours; 0: no limit.
	LimitsPerSecond, LimitsPerDay int
	// UnusualPerMinute is the number of transfers of one user in a minute above which there is
	// a warning.
	UnusualPerMinute int
	// PayoutFinality is the expected time of a payout on its chain. A person is alerted after
	// twice that, or after twice what its blocks take if that is longer.
	PayoutFinality time.Duration
	// PayoutMaxGas is the largest gas limit of a payout's transaction.
	PayoutMaxGas uint64
	// PayoutAddressesRequired limits payouts to addresses on the user's list.
	// PayoutAddressesDelay is how long a new address waits before it can be paid.
	PayoutAddressesRequired bool
	PayoutAddressesDelay    time.Duration
}

func (t *Transfer) settings() []setting {
	return []setting{
		{name: "transfer.initTimeout", def: "15m",
			meaning: "how old a transfer that has not begun may become; older, it is FAILED/EXPIRED",
			field:   duration(&t.InitTimeout, time.Second, 24*time.Hour)},
		{name: "transfer.callTimeout", def: "5s",
			meaning: "how long one call to a ledger may take; below `transfer.rescueAfter`",
			field:   duration(&t.CallTimeout, 100*time.Millisecond, time.Minute)},
		{name: "transfer.retryFirst", constant: true, def: "1s",
			meaning: "how long after an unknown answer a ledger is asked again; twice that after the next, up to `transfer.retryMost`",
			field:   duration(&t.RetryFirst, 10*time.Millisecond, 30*time.Second)},
		{name: "transfer.retryMost", constant: true, def: "1m",
			meaning: "the longest time between two attempts; of a payout that waits for its chain, 30s at most",
			field:   duration(&t.RetryMost, 10*time.Millisecond, time.Hour)},
		{name: "transfer.rescueAfter", constant: true, def: "1m",
			meaning: "how long a transfer without a planned attempt may stay unchanged before the sweep enqueues it",
			field:   duration(&t.RescueAfter, time.Second, time.Hour)},
		{name: "transfer.safetyFactor", def: "10",
			meaning: "how many times over an amount, in units of its asset's precision, must fit 64 bits; larger ones are answered OVERFLOW",
			field:   number(&t.SafetyFactor, "a factor", 1, 1_000_000)},
		{name: "transfer.limits.perSecond", def: "0",
			meaning: "how many transfers one user may ask for in a second, such as 10; 0: no limit; beyond it 429 RATE_LIMIT_EXCEEDED",
			field:   number(&t.LimitsPerSecond, "a number of transfers", 0, 10_000)},
		{name: "transfer.limits.perDay", def: "0",
			meaning: "how many transfers one user may ask for in 24 hours, such as 100; 0: no limit; beyond it 429 DAILY_LIMIT_EXCEEDED",
			field:   number(&t.LimitsPerDay, "a number of transfers", 0, 1_000_000)},
		{name: "transfer.unusualPerMinute", def: "60",
			meaning: "how many transfers of one user in a minute are usual; beyond it the sweep logs a warning",
			field:   number(&t.UnusualPerMinute, "a number of transfers", 1, 1_000_000)},
		{name: "transfer.payoutFinality", def: "15m",
			meaning: "how long a payout is expected to take until it is final on its chain. After twice that an alert is raised, but not before twice the time that its blocks take by `finality.mode`, `confirmations.required` and `chain.blockTime`",
			field:   duration(&t.PayoutFinality, time.Second, 168*time.Hour)},
		{name: "transfer.payoutMaxGas", def: "300000",
			meaning: "the maximum gas of a payout. Its payer is charged for it, and the recipient's contract can use it. A payout that needs more is refunded as PAYOUT_REJECTED; raise it on chains whose plain transfers need more",
			field:   number(&t.PayoutMaxGas, "an amount of gas", 21_000, 1<<24)},
		{name: "transfer.payoutAddresses.required", def: "false",
			meaning: "whether a payout goes only to an address on its user's list (`POST /api/v1/payout_address`); to any other it is 400 ADDRESS_NOT_LISTED",
			field:   boolean(&t.PayoutAddressesRequired)},
		{name: "transfer.payoutAddresses.delay", def: "24h",
			meaning: "how long after it was added, or after a restored database was accepted, an address can be paid; until then 400 ADDRESS_NOT_YET_USABLE; 0s: at once",
			field:   duration(&t.PayoutAddressesDelay, 0, 30*24*time.Hour)},
	}
}

// Trading configures the trading core. Without it no transfers are offered.
type Trading struct {
	// URL is the core's address, without a path; "" if there is none.
	URL string
	// Secret is the secret that the core requires of its callers.
	Secret Secret
}

func (t *Trading) settings() []setting {
	return []setting{
		{name: "trading.url",
			meaning: "the trading core's URL; not set: no transfers are offered, and their paths are answered 404",
			field:   origin(&t.URL)},
		{name: "trading.secret",
			meaning: "the trading core's bearer token; a secret",
			field:   secretText(&t.Secret, "at least 16 bytes without spaces", func(text string) bool { return len(text) >= 16 && word.MatchString(text) })},
	}
}

// origin parses a trusted URL without a path: callers append one.
func origin(p *string) field {
	f := baseURL(p)
	f.want = "an https URL without path and query (http only for this machine: localhost, 127.0.0.1, [::1])"
	set := f.set
	f.set = func(text string) bool {
		u, err := url.Parse(text)
		return err == nil && strings.Trim(u.Path, "/") == "" && set(text)
	}
	return f
}

// HaltMode selects how much a violation of conservation stops.
type HaltMode string

// Everything at once, or only the scope of the violation.
const (
	HaltAll    HaltMode = "all"
	HaltGraded HaltMode = "graded"
)

// Conservation configures the reaction to money that was created or lost.
type Conservation struct {
	// Halt is one of the two modes.
	Halt HaltMode

	Chain        bool          // payments are read from the chains themselves
	ChainBlocks  int           // in one step
	ChainHistory time.Duration // of a payer that was never read; 0: to its registration
}

func (c *Conservation) settings() []setting {
	return []setting{
		{name: "conservation.halt", def: string(HaltAll),
			meaning: "the transfers that a violation of conservation stops until an operator resumes them: all new transfers, or, graded, those of the user and asset, then of the asset, then all",
			field:   choice(&c.Halt, HaltAll, HaltGraded)},
		{name: "conservation.chain", def: "true",
			meaning: "whether conservation reads the payers' payments from their chains in final blocks, and compares them with the transfers",
			field:   boolean(&c.Chain)},
		{name: "conservation.chainBlocks", def: "1000",
			meaning: "how many blocks conservation asks a node about at once, by `eth_getLogs` too; set it to what the node allows",
			field:   number(&c.ChainBlocks, "a number of blocks", 1, 100_000)},
		{name: "conservation.chainHistory", def: "24h",
			meaning: "how far back conservation begins to read a payer that it has never read, at most to the payer's registration; 0s: to its registration",
			field:   duration(&c.ChainHistory, 0, 10*365*24*time.Hour)},
	}
}

func (c *Config) transferRules() []rule {
	auth := c.Auth
	return []rule{{
		of:     []string{"transfer.retryMost", "transfer.retryFirst"},
		broken: c.Transfer.RetryMost < c.Transfer.RetryFirst,
		say:    "set transfer.retryMost to at least transfer.retryFirst",
	}, {
		of:     []string{"transfer.callTimeout", "transfer.rescueAfter"},
		broken: c.Transfer.CallTimeout >= c.Transfer.RescueAfter,
		say:    "set transfer.callTimeout below transfer.rescueAfter: otherwise the sweep takes a transfer whose call is still running",
	}, {
		of: []string{"auth.usersAudience", "auth.publicAudience", "auth.internalAudience", "auth.usersIssuer", "oidc.issuer"},
		broken: auth.UsersIssuer != "" && auth.UsersIssuer == c.OIDC.Issuer && auth.UsersAudience != "" &&
			(auth.UsersAudience == auth.PublicAudience || auth.UsersAudience == auth.InternalAudience),
		say: "where auth.usersIssuer is oidc.issuer, set auth.usersAudience to another than auth.publicAudience and auth.internalAudience: a user's token must not be valid for callers or tasks",
	}}
}
