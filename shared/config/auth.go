package config

import "time"

// Auth configures who may call.
type Auth struct {
	Issuer           string   // the issuer whose tokens are accepted, letter for letter
	JWKSURL          string   // the URL of its public keys
	PublicAudience   string   // the audience of tokens for public functions
	InternalAudience string   // the audience of tokens for internal functions; tasks are given it
	InternalAccounts []string // the e-mails that may call internal functions
	Operators        []string // the callers of admin functions, each with "email:" or "sub:" in front
	Viewers          []string // people who may read what operators can read, in the form of Operators
	DepositService   []string // the callers that may book deposits, within each asset's daily limit, in the form of Operators
	OpenIssuer       bool     // the issuer also gives tokens to people outside the organisation: no submitter may have "*" as its callers
	// UsersIssuer, UsersJWKSURL and UsersAudience configure the tokens of users, whose subject
	// is the user's id. They are unset if no transfers are offered.
	UsersIssuer, UsersJWKSURL, UsersAudience string
}

// Approvals configures which acts need two operators.
type Approvals struct {
	Required []string      // kinds out of [ApprovalKinds]
	ValidFor time.Duration // how long a proposal may wait to be approved and carried out
}

// ApprovalKinds are all kinds that can be required. docs/approvals.md lists the acts of each.
var ApprovalKinds = []string{"policy", "callers", "signer", "register", "release", "accept", "adjustments", "webhooks"}
