package config

import "time"

// Tasks configures the task queues and the URL that tasks call.
type Tasks struct {
	// Project and Location are the Google Cloud project and region of the
	// queues. The project also names our traces.
	Project, Location string
	// Endpoint is host:port of a local Cloud Tasks without TLS; "" is Google's.
	Endpoint string
	// QueuePrefix begins the id of each queue.
	QueuePrefix string
	// TargetURL is the base URL of the internal functions, without a slash at
	// its end.
	TargetURL string
	// ServiceAccount is the e-mail of the account that tasks call as.
	ServiceAccount string
	// DispatchDeadline is how long Cloud Tasks waits for one answer.
	DispatchDeadline time.Duration
	// QueueShards is the number of queues over which one kind of work is
	// spread by submitter.
	QueueShards int
}

func (t *Tasks) settings() []setting {
	return []setting{
		{name: "tasks.project",
			meaning: "the Google Cloud project of the queues, and of our traces in the log",
			field:   text(&t.Project, "a project's id", resource)},
		{name: "tasks.location",
			meaning: "the region of the queues",
			field:   text(&t.Location, "a region such as europe-west1", resource)},
		{name: "tasks.endpoint",
			meaning: "a local Cloud Tasks, reached without TLS; not set: Google's",
			field:   ownPort(&t.Endpoint)},
		{name: "tasks.queuePrefix", def: "fencepost",
			meaning: "the prefix of each queue's id",
			field:   text(&t.QueuePrefix, "1 to 50 letters, digits and hyphens", queue)},
		{name: "tasks.targetUrl",
			meaning: "the base URL of the internal functions, for tasks",
			field:   baseURL(&t.TargetURL)},
		{name: "tasks.serviceAccount",
			meaning: "the account that tasks call as",
			field:   text(&t.ServiceAccount, "a service account's e-mail address", email)},
		// The bounds are Cloud Tasks' own: google.cloud.tasks.v2.Task, dispatch_deadline.
		{name: "tasks.dispatchDeadline", def: "60s",
			meaning: "how long Cloud Tasks waits for the answer to one task",
			field:   duration(&t.DispatchDeadline, 15*time.Second, 30*time.Minute)},
		{name: "tasks.queueShards", def: "1",
			meaning: "over how many queues each kind of work is spread by submitter; one queue dispatches at most 500 tasks a second",
			field:   number(&t.QueueShards, "a number of queues", 1, 100)},
	}
}

// OIDC is an issuer whose tokens are accepted.
type OIDC struct {
	// Issuer is the token's issuer, letter for letter.
	Issuer string
	// JWKSURL is the URL of its public keys.
	JWKSURL string
}

func (o *OIDC) settings() []setting {
	return []setting{
		{name: "oidc.issuer",
			meaning: "the issuer whose tokens are accepted; compared letter for letter",
			field:   trusted(&o.Issuer)},
		{name: "oidc.jwksUrl",
			meaning: "where the issuer's public keys are",
			field:   trusted(&o.JWKSURL)},
	}
}

// Auth configures who may call.
type Auth struct {
	// PublicAudience is the audience of tokens for public functions.
	PublicAudience string
	// InternalAudience is the audience of tokens for internal functions; tasks
	// are given it.
	InternalAudience string
	// InternalAccounts are the e-mails that may call internal functions.
	InternalAccounts []string
	// Operators are the callers of admin functions, each with "email:" or "sub:" in front.
	Operators []string
	// OpenIssuer is true if the issuer also gives tokens to people outside the operator's
	// organisation. Then no submitter may have "*" as its callers.
	OpenIssuer bool
	// UsersIssuer, UsersJWKSURL and UsersAudience configure the tokens of users, whose subject
	// is the user's id. They are unset if no transfers are offered.
	UsersIssuer, UsersJWKSURL, UsersAudience string
}

func (c *Config) authRules() []rule {
	return []rule{{
		of:     []string{"auth.publicAudience", "auth.internalAudience"},
		broken: c.Auth.PublicAudience != "" && c.Auth.PublicAudience == c.Auth.InternalAudience,
		say:    "a token for public functions would be one for internal functions: set auth.publicAudience and auth.internalAudience to two audiences",
	}}
}

func (a *Auth) settings() []setting {
	return []setting{
		{name: "auth.publicAudience",
			meaning: "the audience that tokens for public functions are made for",
			field:   text(&a.PublicAudience, "a text without spaces", word)},
		{name: "auth.internalAudience",
			meaning: "the audience that tokens for internal functions are made for",
			field:   text(&a.InternalAudience, "a text without spaces", word)},
		{name: "auth.internalAccounts",
			meaning: "the accounts that may call internal functions: those of tasks and of the scheduler",
			field:   emails(&a.InternalAccounts)},
		{name: "auth.operators",
			meaning: "the operators, who may call admin functions: `email:` and a verified e-mail, or `sub:` and a token's subject; an address alone is read as `email:`",
			field:   identities(&a.Operators)},
		{name: "auth.openIssuer", def: "true",
			meaning: "whether people outside your organization can get tokens of `oidc.issuer` for `auth.publicAudience`, as with Google's; if true, no submitter accepts `*` as its callers",
			field:   boolean(&a.OpenIssuer)},
		{name: "auth.usersIssuer",
			meaning: "the issuer whose tokens of users are accepted; their subject is the user's id; compared letter for letter; required with `trading.url`",
			field:   trusted(&a.UsersIssuer)},
		{name: "auth.usersJwksUrl",
			meaning: "where the public keys of the users' issuer are; required with `trading.url`",
			field:   trusted(&a.UsersJWKSURL)},
		{name: "auth.usersAudience",
			meaning: "the audience that users' tokens are made for; required with `trading.url`",
			field:   text(&a.UsersAudience, "a text without spaces", word)},
	}
}
