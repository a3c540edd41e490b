package config

import (
	"regexp"
	"strings"
	"time"
)

func (c *Config) handlerSettings() []setting {
	return []setting{
		{name: "handlers.urls",
			meaning: "the business services that make transactions of intents, by name; the functions call no other address and follow no redirect",
			field:   handlerURLs(&c.Handlers.URLs)},
		{name: "handlers.secrets",
			meaning: "the keys that sign the calls to each of `handlers.urls`, needed by a process that calls them; a secret. While a key is changed, give the old and the new one of that name",
			field:   handlerSecrets(&c.Handlers.Secrets)},
		{name: "handlers.timeout", constant: true, def: "5s",
			meaning: "how long a handler's service may take to answer; later, its nonce is filled by a placeholder; more than a second below `lease.duration`",
			field:   duration(&c.Handlers.Timeout, 100*time.Millisecond, time.Minute)},
		{name: "handlers.patience", constant: true, def: "2m",
			meaning: "how long a handler that is unavailable or answers *not now* is called again; then its nonce is filled by a placeholder; below `stuck.after`",
			field:   duration(&c.Handlers.Patience, 0, 24*time.Hour)},
	}
}

func (c *Config) eventSettings() []setting {
	return []setting{
		{name: "events.mode", def: string(EventsPoll),
			meaning: "where changes of transactions are published: nowhere (callers poll), the log, Pub/Sub, or webhook endpoints. In the last two events are kept, and `GET /api/v1/events` reads them. A transaction keeps the mode in which it was accepted",
			field:   choice(&c.Events.Mode, EventsPoll, EventsLog, EventsOutbox, EventsWebhook)},
		{name: "events.keep", def: "720h",
			meaning: "how long events can be read again; events that an endpoint has not accepted by then are not delivered. Raise it if endpoints may be down for longer",
			field:   duration(&c.Events.Keep, time.Hour, 10*365*24*time.Hour)},
		{name: "events.pubsub.topic",
			meaning: "the topic of events with `events.mode=mq_outbox`",
			field:   text(&c.Events.Topic, "projects/P/topics/T", topicName)},
		{name: "events.pubsub.endpoint",
			meaning: "a Pub/Sub other than Google's, reached without TLS and without credentials: the emulator's",
			field:   ownPort(&c.Events.PubSubEndpoint)},
		{name: "events.webhook.urls",
			meaning: "the endpoints to which `events.mode=webhook` delivers; redirects are not followed",
			field:   handlerURLs(&c.Events.URLs)},
		{name: "events.webhook.secrets",
			meaning: "the keys that sign the deliveries to each of `events.webhook.urls`, needed by *publish* only; a secret. While a key is changed, give the old and the new one of that name",
			field:   handlerSecrets(&c.Events.Secrets)},
		{name: "events.webhook.callers",
			meaning: "the callers whose events an endpoint gets; an endpoint that is not named here gets the events of all callers",
			field:   endpointCallers(&c.Events.Callers)},
		{name: "events.webhook.timeout", constant: true, def: "5s",
			meaning: "how long an endpoint may take over one event; more than a second below `lease.duration`",
			field:   duration(&c.Events.Timeout, 100*time.Millisecond, time.Minute)},
	}
}

// databaseSettings are the settings of Postgres and of the mark outside it.
func (c *Config) databaseSettings() []setting {
	return []setting{
		{name: "database.url", required: true,
			meaning: "the connection to Postgres, with user and database; a secret",
			field:   secretText(&c.Database.URL, "postgres://user@host:port/database, or the form user=… dbname=…", postgresAddress)},
		{name: "database.instance",
			meaning: "a Cloud SQL instance, reached by its private address as the service account that the function runs as; then `database.url` names only user and database, with `sslmode=disable`: the connector encrypts",
			field:   text(&c.Database.Instance, "project:region:instance", instanceName)},
		{name: "database.maxConns", def: "8",
			meaning: "how many connections an instance opens at most; times the maximum of instances it must stay below the server's `max_connections`. Terraform sets 4 (`database.pool`) for a process of one function; one that serves all functions needs 8",
			field:   number(&c.Database.MaxConns, "a number of connections", 1, 100)},
		{name: "database.statementTimeout", constant: true, def: "5s",
			meaning: "how long a statement may run",
			field:   duration(&c.Database.StatementTimeout, leastDatabaseTimeout, time.Minute)},
		{name: "database.lockTimeout", constant: true, def: "3s",
			meaning: "how long a statement may wait for a lock; below `lease.duration`",
			field:   duration(&c.Database.LockTimeout, leastDatabaseTimeout, time.Minute)},
		{name: "database.idleInTransactionTimeout", constant: true, def: "1s",
			meaning: "how long a session may be idle in an open transaction; below `database.lockTimeout`, so that an invocation that waits for a frozen holder can continue after Postgres ends its transaction",
			field:   duration(&c.Database.IdleInTransactionTimeout, leastDatabaseTimeout, time.Minute)},
		{name: "mark.enabled", def: "false",
			meaning: "keep a mark outside the database, which shows that a backup or a snapshot was restored",
			field:   boolean(&c.Mark.Enabled)},
		{name: "mark.bucket",
			meaning: "the bucket of Cloud Storage that has the mark, in the object `database-mark`; no other deployment may use it",
			field:   text(&c.Mark.Bucket, "a bucket's name", bucketName)},
		{name: "mark.endpoint",
			meaning: "a Cloud Storage other than Google's, reached without credentials: the emulator's",
			field:   text(&c.Mark.Endpoint, "http://host:port/storage/v1/ on this machine (localhost, 127.0.0.1, [::1])", regexp.MustCompile(`^http://(localhost|127\.0\.0\.1|\[::1\]):[0-9]{1,5}/storage/v1/$`))},
	}
}

func (c *Config) taskSettings() []setting {
	return []setting{
		{name: "tasks.project",
			meaning: "the Google Cloud project of the queues, and of our traces in the log",
			field:   text(&c.Tasks.Project, "a project's id", resource)},
		{name: "tasks.location",
			meaning: "the region of the queues",
			field:   text(&c.Tasks.Location, "a region such as europe-west1", resource)},
		{name: "tasks.endpoint",
			meaning: "a local Cloud Tasks, reached without TLS; not set: Google's",
			field:   ownPort(&c.Tasks.Endpoint)},
		{name: "tasks.queuePrefix", def: "fencepost",
			meaning: "the prefix of each queue's id. Change it where two deployments share a project",
			field:   text(&c.Tasks.QueuePrefix, "1 to 50 letters, digits and hyphens", queue)},
		{name: "tasks.targetUrl",
			meaning: "the base URL of the internal functions, for tasks",
			field:   baseURL(&c.Tasks.TargetURL)},
		{name: "tasks.serviceAccount",
			meaning: "the account that tasks call as",
			field:   text(&c.Tasks.ServiceAccount, "a service account's e-mail address", email)},
		// The bounds are Cloud Tasks' own: google.cloud.tasks.v2.Task, dispatch_deadline.
		{name: "tasks.dispatchDeadline", def: "60s",
			meaning: "how long Cloud Tasks waits for the answer to one task. Set it to the function's own time-out",
			field:   duration(&c.Tasks.DispatchDeadline, 15*time.Second, 30*time.Minute)},
		{name: "tasks.queueShards", def: "1",
			meaning: "the number of queues of each kind of work, among which submitters are spread; one queue dispatches at most 500 tasks a second. Raise it above that rate",
			field:   number(&c.Tasks.QueueShards, "a number of queues", 1, 100)},
	}
}

// authSettings are the settings of tokens, operators and approvals.
func (c *Config) authSettings() []setting {
	return []setting{
		{name: "oidc.issuer",
			meaning: "the issuer whose tokens are accepted; compared letter for letter",
			field:   trusted(&c.OIDC.Issuer)},
		{name: "oidc.jwksUrl",
			meaning: "where the issuer's public keys are",
			field:   trusted(&c.OIDC.JWKSURL)},
		{name: "auth.publicAudience",
			meaning: "the audience that tokens for public functions are made for",
			field:   text(&c.Auth.PublicAudience, "a text without spaces", word)},
		{name: "auth.internalAudience",
			meaning: "the audience that tokens for internal functions are made for",
			field:   text(&c.Auth.InternalAudience, "a text without spaces", word)},
		{name: "auth.internalAccounts",
			meaning: "the accounts that may call internal functions: those of tasks and of the scheduler",
			field:   emails(&c.Auth.InternalAccounts)},
		{name: "auth.operators",
			meaning: "the operators, who may call admin functions: `email:` and a verified e-mail, or `sub:` and a token's subject; an address alone is read as `email:`",
			field:   identities(&c.Auth.Operators)},
		{name: "auth.viewers",
			meaning: "the people who may call the reading admin functions only, in the form of `auth.operators`",
			field:   identities(&c.Auth.Viewers)},
		{name: "auth.depositService",
			meaning: "the names of the service that books deposits from outside, in the form of `auth.operators`; each asset's `dailyServiceDeposits` limits it, and it may call nothing else of an operator's. Not set: only operators book",
			field:   identities(&c.Auth.DepositService)},
		{name: "auth.openIssuer", def: "true",
			meaning: "whether people outside your organization can get tokens of `oidc.issuer` for `auth.publicAudience`, as with Google's; if true, no submitter accepts `*` as its callers. Set it to false for an issuer of your own organisation",
			field:   boolean(&c.Auth.OpenIssuer)},
		{name: "auth.usersIssuer",
			meaning: "the issuer whose tokens of users are accepted; their subject is the user's id; compared letter for letter; required with `trading.url`",
			field:   trusted(&c.Auth.UsersIssuer)},
		{name: "auth.usersJwksUrl",
			meaning: "where the public keys of the users' issuer are; required with `trading.url`",
			field:   trusted(&c.Auth.UsersJWKSURL)},
		{name: "auth.usersAudience",
			meaning: "the audience that users' tokens are made for; required with `trading.url`",
			field:   text(&c.Auth.UsersAudience, "a text without spaces", word)},
		{name: "approvals.required",
			meaning: "the acts that one operator proposes and another has to approve, as docs/approvals.md describes: any of " + strings.Join(ApprovalKinds, ", ") + "; not set: one operator does everything alone",
			field:   kinds(&c.Approvals.Required)},
		{name: "approvals.validFor", def: "24h",
			meaning: "how long a proposal may wait until it is approved and carried out. Raise it if the second operator is seldom there",
			field:   duration(&c.Approvals.ValidFor, time.Minute, 30*24*time.Hour)},
	}
}

func (c *Config) httpSettings() []setting {
	return []setting{
		{name: "http.maxBodyBytes", constant: true, def: "262144",
			meaning: "how long a request's body may be; longer ones are answered 413 BODY_TOO_LARGE",
			field:   number(&c.HTTP.MaxBodyBytes, "a number of bytes", 1024, 32<<20)},
		{name: "http.bodyTimeout", constant: true, def: "20s",
			meaning: "how long a request's body may take to arrive; then the answer is 408 BODY_TIMEOUT, and the connection ends",
			field:   duration(&c.HTTP.BodyTimeout, 10*time.Millisecond, 10*time.Minute)},
		{name: "http.maxRequestsPerCaller", def: "32",
			meaning: "how many requests of one caller, operator or user an instance serves at once; further ones are answered 429 TOO_MANY_REQUESTS. Keep it at least 16 below what an instance serves at once (`concurrency` in Terraform): 16 delayed refusals do not count, and others need room",
			field:   number(&c.HTTP.MaxRequestsPerCaller, "a number of requests", 1, 100_000)},
		{name: "http.maxBytesPerCaller", constant: true, def: "4194304",
			meaning: "how many bytes the bodies of those requests may have together, at least `http.maxBodyBytes`. A body without a Content-Length counts as the longest. Further requests are answered 429 TOO_MANY_REQUESTS",
			field:   number(&c.HTTP.MaxBytesPerCaller, "a number of bytes", 1024, 1<<30)},
	}
}

// telemetrySettings are the settings of logs, metrics and traces.
func (c *Config) telemetrySettings() []setting {
	return []setting{
		{name: "log.level", def: "info",
			meaning: "the lowest severity that is logged. Set debug to see each task while you look for a fault",
			field:   logLevel(&c.Log.Level)},
		{name: "telemetry.otlpEndpoint",
			meaning: "a collector of metrics and traces, by OTLP over gRPC: in plain text on this machine, such as a sidecar, else by TLS",
			field:   hostPort(&c.Telemetry.OTLPEndpoint)},
		{name: "telemetry.prometheus", def: "false",
			meaning: "serve `GET /metrics` without authentication; never on Cloud Run. For one machine that is not public",
			field:   boolean(&c.Telemetry.Prometheus)},
		{name: "telemetry.flushEvery", constant: true, def: "10s",
			meaning: "how long metrics and traces may wait for the collector; then the next request to end delivers them, within a second",
			field:   duration(&c.Telemetry.FlushEvery, 100*time.Millisecond, 10*time.Minute)},
		{name: "telemetry.traceOneIn", def: "100",
			meaning: "one of this many intents, drawn at random, is traced, if a collector is set. The sampled bit of a caller's `traceparent` has no effect; 1: all. Raise it to pay less for traces",
			field:   number(&c.Telemetry.TraceOneIn, "a number of intents", 1, 1_000_000)},
		{name: "telemetry.balances", def: "0",
			meaning: "how many submitters' balances the sweep shows, the first by name, one series each; 0: none. Set it to be warned before an account runs dry",
			field:   number(&c.Telemetry.Balances, "a number of submitters", 0, 1000)},
	}
}

// platformSettings are the settings that Google's platform names.
func (c *Config) platformSettings() []setting {
	return []setting{
		{name: "PORT", google: true, def: "8080",
			meaning: "where to listen; Cloud Run sets it",
			field:   number(&c.Platform.Port, "a port", 1, 65535)},
		{name: "FUNCTION_TARGET", google: true,
			meaning: "the one function to serve, at every path; if not set, all are served, each at its path",
			field:   text(&c.Platform.FunctionTarget, "a function's name", word)},
		{name: "K_SERVICE", google: true,
			meaning: "the service's name; Cloud Run sets it",
			field:   text(&c.Platform.Service, "a name", word)},
		{name: "K_REVISION", google: true,
			meaning: "the revision's name; Cloud Run sets it",
			field:   text(&c.Platform.Revision, "a name", word)},
		{name: "CLOUD_RUN_TIMEOUT_SECONDS", google: true,
			meaning: "the deadline of a request; to be set to the service's own time-out",
			field:   seconds(&c.Platform.Timeout, 1, 3600)},
	}
}
