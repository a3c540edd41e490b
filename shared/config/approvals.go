package config

import (
	"slices"
	"strings"
	"time"
)

// Approvals configures which acts need two operators.
type Approvals struct {
	// Required are kinds out of [ApprovalKinds].
	Required []string
	// ValidFor is how long a proposal may wait to be approved and carried out.
	ValidFor time.Duration
}

// ApprovalKinds are all kinds that can be required. docs/approvals.md lists the acts of each.
var ApprovalKinds = []string{"policy", "callers", "signer", "register", "release", "accept", "adjustments"}

func (c *Config) approvalRules() []rule {
	return []rule{{
		of:     []string{"approvals.required", "auth.operators"},
		broken: len(c.Approvals.Required) > 0 && len(slices.Compact(slices.Sorted(slices.Values(c.Auth.Operators)))) < 2,
		say:    "a second operator has to approve what one proposes: name at least two people in auth.operators, or leave approvals.required out",
	}}
}

func (a *Approvals) settings() []setting {
	return []setting{
		{name: "approvals.required",
			meaning: "what one operator proposes and another has to approve, as docs/approvals.md describes: any of " + strings.Join(ApprovalKinds, ", ") + "; not set: one operator does everything alone",
			field:   kinds(&a.Required)},
		{name: "approvals.validFor", def: "24h",
			meaning: "how long a proposal may wait until it is approved and carried out",
			field:   duration(&a.ValidFor, time.Minute, 30*24*time.Hour)},
	}
}

// kinds parses names of [ApprovalKinds], separated by commas.
func kinds(p *[]string) field {
	return field{
		want: "any of " + strings.Join(ApprovalKinds, ", ") + ", separated by commas",
		set: func(text string) bool {
			all := strings.Split(text, ",")
			for i, k := range all {
				all[i] = strings.TrimSpace(k)
			}
			slices.Sort(all)
			if len(slices.Compact(slices.Clone(all))) != len(all) || slices.ContainsFunc(all, func(k string) bool { return !slices.Contains(ApprovalKinds, k) }) {
				return false
			}
			*p = all
			return true
		},
		unset: func() bool { return len(*p) == 0 },
	}
}
