package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// rule is a relation that valid settings must have to each other.
type rule struct {
	of     []string // the settings compared
	broken bool
	say    string // what to do about it
}

// problem names the compared settings with their values, and the remedy.
func (r rule) problem(settings []setting, given map[string]string) error {
	var shown []string
	for _, name := range r.of {
		i := slices.IndexFunc(settings, func(s setting) bool { return s.name == name })
		if i < 0 {
			return fmt.Errorf("a rule is about %s, which is no setting", name)
		}
		shown = append(shown, settings[i].shown(given[settings[i].variable()]))
	}
	return errors.New(strings.Join(shown, ", ") + ": " + r.say)
}

func (c *Config) rules() []rule {
	return slices.Concat(c.leaseRules(), c.policyRules(), c.handlerRules(), c.authRules(), c.consoleRules(), c.eventRules(), c.transferRules(), c.telemetryRules(), c.chainRules())
}

func (c *Config) leaseRules() []rule {
	lease := c.Lease.Duration
	return []rule{{
		of:     []string{"lease.renewInterval", "lease.duration"},
		broken: c.Lease.RenewInterval >= lease-c.Lease.RenewInterval,
		say:    "set lease.renewInterval below half of lease.duration, so that one failed renewal does not lose the lease",
	}, {
		of:     []string{"clockSkewAllowance", "lease.duration"},
		broken: c.Lease.ClockSkewAllowance >= lease,
		say:    "set clockSkewAllowance below lease.duration",
	}, {
		of:     []string{"database.lockTimeout", "lease.duration"},
		broken: c.Database.LockTimeout >= lease,
		say:    "set lease.duration above database.lockTimeout, so that no invocation waits for a lock longer than a lease lasts",
	}, {
		of:     []string{"rpc.timeout", "lease.duration"},
		broken: c.RPC.Timeout > lease,
		say:    "set rpc.timeout to at most lease.duration: no call may outlast the lease it is made under",
	}, {
		of:     []string{"signer.local.keystore", "signer.local.passwordFile"},
		broken: (c.Signer.LocalKeystore == "") != (c.Signer.LocalPasswordFile == ""),
		say:    "set signer.local.keystore and signer.local.passwordFile together, or neither",
	}}
}

// anEighthMore is nine eighths of wei, rounded up. On overflow it is above every setting's
// maximum.
func anEighthMore(wei uint64) uint64 {
	if wei > maxBigint {
		return wei
	}
	return wei + (wei+7)/8
}

func (c *Config) policyRules() []rule {
	return []rule{{
		of:     []string{"nonce.placeholderMaxFeePerGas", "fees.maxFeePerGas"},
		broken: c.Nonce.PlaceholderMaxFee < anEighthMore(anEighthMore(c.Fees.MaxFeePerGas)),
		say: "a transaction at the ceiling could not be replaced, and that by a placeholder, each for an eighth more: set nonce.placeholderMaxFeePerGas to at least 81/64 of " +
			"fees.maxFeePerGas, or lower that",
	}, {
		of:     []string{"resubmit.interval", "stuck.after", "resubmit.enabled"},
		broken: c.Broadcasting.Resubmit && c.Broadcasting.ResubmitEvery >= c.Broadcasting.StuckAfter,
		say:    "every transaction would be stuck before it is sent again: set resubmit.interval below stuck.after, or resubmit.enabled to false",
	}, {
		of:     []string{"fees.history.enabled", "chain.feeKind"},
		broken: c.Fees.History && !slices.ContainsFunc(c.Served(), func(s ServedChain) bool { return s.FeeKind == FeeKindEIP1559 }),
		say:    "a chain without EIP-1559 has no tips to read: set fees.history.enabled to false where chain.feeKind, and that of each of chains, is legacy",
	}, {
		of:     []string{"gasbump.minInterval", "stuck.after", "gasbump.enabled"},
		broken: c.GasBump.Enabled && c.GasBump.MinInterval >= c.Broadcasting.StuckAfter,
		say:    "every transaction would be stuck before it is replaced: set gasbump.minInterval below stuck.after, or gasbump.enabled to false",
	}, {
		of:     []string{"gasbump.minInterval", "resubmit.interval", "resubmit.maxAttempts", "resubmit.enabled", "gasbump.enabled"},
		broken: c.GasBump.Enabled && c.Broadcasting.Resubmit && c.GasBump.MinInterval >= c.Broadcasting.ResubmitEvery*time.Duration(c.Broadcasting.MaxResubmits),
		say: "every transaction would have used up resubmit.maxAttempts, and be stuck, before it is replaced: set gasbump.minInterval below " +
			"resubmit.interval times resubmit.maxAttempts, or gasbump.enabled or resubmit.enabled to false",
	}}
}

func (c *Config) transferRules() []rule {
	auth := c.Auth
	return []rule{{
		of: []string{"auth.usersAudience", "auth.publicAudience", "auth.internalAudience", "auth.usersIssuer", "oidc.issuer"},
		broken: auth.UsersIssuer != "" && auth.UsersIssuer == auth.Issuer && auth.UsersAudience != "" &&
			(auth.UsersAudience == auth.PublicAudience || auth.UsersAudience == auth.InternalAudience),
		say: "where auth.usersIssuer is oidc.issuer, set auth.usersAudience to another than auth.publicAudience and auth.internalAudience: a user's token must not be valid for callers or tasks",
	}}
}

func (c *Config) handlerRules() []rule {
	h := c.Handlers
	stray := slices.DeleteFunc(slices.Sorted(maps.Keys(h.Secrets)), func(name string) bool { return h.URLs[name] != "" })
	return []rule{{
		of:     []string{"handlers.urls", "handlers.secrets"},
		broken: len(stray) > 0,
		say:    fmt.Sprintf("handlers.secrets has secrets of %q, which handlers.urls does not have: name their URLs, or take the secrets away", stray),
	}, {
		of:     []string{"handlers.patience", "stuck.after"},
		broken: h.Patience >= c.Broadcasting.StuckAfter && len(h.URLs) > 0,
		say:    "set stuck.after above handlers.patience: a transaction would be STUCK before its handler is given up",
	}, {
		of:     []string{"handlers.timeout", "lease.duration"},
		broken: h.Timeout+time.Second >= c.Lease.Duration && len(h.URLs) > 0,
		say:    "set lease.duration more than a second above handlers.timeout: a service is called within one lease, which must last until its answer is stored",
	}}
}

func (c *Config) eventRules() []rule {
	e := c.Events
	var stray []string
	for _, names := range [][]string{slices.Collect(maps.Keys(e.Secrets)), slices.Collect(maps.Keys(e.Callers))} {
		for _, name := range names {
			if e.URLs[name] == "" && !slices.Contains(stray, name) {
				stray = append(stray, name)
			}
		}
	}
	slices.Sort(stray)
	return []rule{{
		of:     []string{"events.mode", "events.pubsub.topic"},
		broken: e.Mode == EventsOutbox && e.Topic == "",
		say:    "events.mode is mq_outbox: set events.pubsub.topic, where events are published to",
	}, {
		of:     []string{"events.webhook.urls", "events.webhook.secrets", "events.webhook.callers"},
		broken: len(stray) > 0,
		say:    fmt.Sprintf("events.webhook.secrets or events.webhook.callers names %q, which events.webhook.urls does not have: name their URLs, or take them away", stray),
	}, {
		of:     []string{"events.webhook.timeout", "lease.duration"},
		broken: e.Timeout+time.Second >= c.Lease.Duration && e.Mode == EventsWebhook,
		say:    "set lease.duration more than a second above events.webhook.timeout: an event is delivered within one lease, and the delivery is still to be recorded",
	}}
}

func (c *Config) authRules() []rule {
	return []rule{{
		of:     []string{"auth.publicAudience", "auth.internalAudience"},
		broken: c.Auth.PublicAudience != "" && c.Auth.PublicAudience == c.Auth.InternalAudience,
		say:    "a token for public functions would be one for internal functions: set auth.publicAudience and auth.internalAudience to two audiences",
	}, {
		of:     []string{"auth.depositService", "auth.operators"},
		broken: slices.ContainsFunc(c.Auth.DepositService, func(name string) bool { return slices.Contains(c.Auth.Operators, name) }),
		say:    "the deposit service would be an operator, without its limit: give it in auth.depositService an identity that auth.operators does not have",
	}, {
		of:     []string{"approvals.required", "auth.operators"},
		broken: len(c.Approvals.Required) > 0 && len(slices.Compact(slices.Sorted(slices.Values(c.Auth.Operators)))) < 2,
		say:    "a second operator has to approve what one proposes: name at least two people in auth.operators, or leave approvals.required out",
	}}
}

func (c *Config) telemetryRules() []rule {
	return []rule{{
		of:     []string{"telemetry.prometheus", "K_SERVICE"},
		broken: c.Telemetry.Prometheus && c.Platform.OnCloudRun(),
		say:    "where K_SERVICE is set, a public service would show its metrics to everybody, and each scrape another instance's: set telemetry.prometheus to false, and name a collector in telemetry.otlpEndpoint",
	}}
}
