package config

import (
	"errors"
	"fmt"
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
	return slices.Concat(c.leaseRules(), c.policyRules(), c.handlerRules(), c.authRules(), c.approvalRules(), c.eventRules(), c.markRules(), c.transferRules(), c.telemetryRules(), c.chainRules())
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
		of:     []string{"database.idleInTransactionTimeout", "database.lockTimeout"},
		broken: c.Database.IdleInTransactionTimeout >= c.Database.LockTimeout,
		say:    "set database.idleInTransactionTimeout below database.lockTimeout, so that an invocation that waits for a frozen holder can continue after Postgres ends its transaction",
	}, {
		of:     []string{"rpc.timeout", "lease.duration"},
		broken: c.RPC.Timeout > lease,
		say:    "set rpc.timeout to at most lease.duration: no call may outlast the lease it is made under",
	}, {
		of:     []string{"http.maxBytesPerCaller", "http.maxBodyBytes"},
		broken: c.HTTP.MaxBytesPerCaller < c.HTTP.MaxBodyBytes,
		say:    "set http.maxBytesPerCaller to at least http.maxBodyBytes: a body of that length could never be sent",
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
		broken: c.Resubmit.Enabled && c.Resubmit.Interval >= c.Stuck.After,
		say:    "every transaction would be stuck before it is sent again: set resubmit.interval below stuck.after, or resubmit.enabled to false",
	}, {
		of:     []string{"fees.history.enabled", "chain.feeKind"},
		broken: c.Fees.History && !slices.ContainsFunc(c.Served(), func(s ServedChain) bool { return s.FeeKind == FeeKindEIP1559 }),
		say:    "a chain without EIP-1559 has no tips to read: set fees.history.enabled to false where chain.feeKind, and that of each of chains, is legacy",
	}, {
		of:     []string{"gasbump.minInterval", "stuck.after", "gasbump.enabled"},
		broken: c.GasBump.Enabled && c.GasBump.MinInterval >= c.Stuck.After,
		say:    "every transaction would be stuck before it is replaced: set gasbump.minInterval below stuck.after, or gasbump.enabled to false",
	}, {
		of:     []string{"gasbump.minInterval", "resubmit.interval", "resubmit.maxAttempts", "resubmit.enabled", "gasbump.enabled"},
		broken: c.GasBump.Enabled && c.Resubmit.Enabled && c.GasBump.MinInterval >= c.Resubmit.Interval*time.Duration(c.Resubmit.MaxAttempts),
		say: "every transaction would have used up resubmit.maxAttempts, and be stuck, before it is replaced: set gasbump.minInterval below " +
			"resubmit.interval times resubmit.maxAttempts, or gasbump.enabled or resubmit.enabled to false",
	}}
}
