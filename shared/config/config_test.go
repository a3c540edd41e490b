package config_test

import (
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/config"
	"github.com/fencepost/fencepost/shared/conservation"
	"github.com/fencepost/fencepost/shared/transfer"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/rules"
)

const databaseURL = "postgres://fencepost:hunter2@db.example/fencepost"

// with is the least environment that is right, and more.
func with(more ...string) []string {
	return append([]string{"FENCEPOST_CHAIN_ID=1", "FENCEPOST_DATABASE_URL=" + databaseURL}, more...)
}

func mustLoad(t *testing.T, more ...string) config.Config {
	t.Helper()
	return check.Value(config.LoadForTests(with(more...)))(t)
}

var revealed = cmp.Comparer(func(a, b config.Secret) bool { return a.Reveal() == b.Reveal() })

func defaults() config.Config {
	return config.Config{
		Lease:        config.Lease{Duration: 10 * time.Second, RenewInterval: 3 * time.Second, ClockSkewAllowance: time.Second},
		Nonce:        config.Nonce{StartFrom: 0, Strict: true, MaxInFlight: 1, Placeholder: config.PlaceholderAuto, PlaceholderMaxFee: 650_000_000_000, DeferAfter: time.Minute},
		Hooks:        config.Hooks{Enabled: false, ReservationTimeout: time.Minute},
		Intents:      config.Intents{MaxQueued: 100_000},
		Broadcasting: rules.Broadcasting{Resubmit: true, ResubmitEvery: time.Minute, MaxResubmits: 20, StuckAfter: 30 * time.Minute},
		Finality:     config.Finality{Mode: txmanager.ByConfirmations, Confirmations: 20, ReceiptWorkers: 100, StaleReceiptTimeout: time.Minute, WatchDepth: 100},
		Fees:         config.Fees{MaxFeePerGas: 500_000_000_000, MaxFeePerTx: 750_000_000_000_000_000, MaxTipMultiple: 10, MinTipBound: 1_000_000_000, HistoryBlocks: 20, HistoryPercentile: 50},
		GasBump: config.GasBump{MinInterval: time.Minute, MaxAttempts: 10, Multiplier: 1125, MaxFeePerGas: 500_000_000_000,
			BudgetPerDay: 1_000_000_000},
		Sweep: config.Sweep{Batch: 500, Grace: 5 * time.Second},
		Transfer: config.Transfer{InitTimeout: 15 * time.Minute, CallTimeout: 5 * time.Second, RetryFirst: time.Second, RetryMost: time.Minute,
			RescueAfter: time.Minute, UnusualPerMinute: 60, PayoutFinality: 15 * time.Minute, PayoutMaxGas: 300_000,
			Terms: transfer.Terms{SafetyFactor: 10, Addresses: transfer.AddressTerms{Delay: 24 * time.Hour}}},
		Conservation: config.Conservation{Halt: conservation.HaltAll, ChainBlocks: 1000, ChainHistory: 24 * time.Hour},
		RPC:          config.RPC{MaxLag: 5, LeaveOut: 30 * time.Second, Timeout: 10 * time.Second, MaxInFlight: 100, MaxBatch: 100},
		Chain:        config.Chain{ID: 1, BlockTime: 12 * time.Second, FeeKind: config.FeeKindEIP1559, FinalizedTag: true},
		Signer:       config.Signer{Timeout: 5 * time.Second, Parallel: 8},
		Handlers:     config.Handlers{Timeout: 5 * time.Second, Patience: 2 * time.Minute},
		Events:       config.Events{Mode: config.EventsPoll, Keep: 720 * time.Hour, Timeout: 5 * time.Second},
		Database: config.Database{URL: config.NewSecret(databaseURL), MaxConns: 8, StatementTimeout: 5 * time.Second,
			LockTimeout: 3 * time.Second, IdleInTransactionTimeout: time.Second},
		Tasks:     config.Tasks{QueuePrefix: "fencepost", DispatchDeadline: time.Minute, QueueShards: 1},
		Auth:      config.Auth{OpenIssuer: true},
		Approvals: config.Approvals{ValidFor: 24 * time.Hour},
		Console:   config.Console{Mode: config.ConsoleOff, IAPIssuer: "https://cloud.google.com/iap", IAPJWKSURL: "https://www.gstatic.com/iap/verify/public_key-jwk"},
		HTTP:      config.HTTP{MaxBodyBytes: 262_144, MaxRequestsPerCaller: 32, MaxBytesPerCaller: 4 << 20, BodyTimeout: 20 * time.Second},
		LogLevel:  slog.LevelInfo,
		Telemetry: config.Telemetry{FlushEvery: 10 * time.Second, TraceOneIn: 100},
		Platform:  config.Platform{Port: 8080},
	}
}

// A setting that is not given has the default of the specification.
func TestDefaultsAreTheSpecifications(t *testing.T) {
	t.Parallel()
	check.Same(t, "defaults", mustLoad(t), defaults(), revealed)
	// A variable set to nothing counts as not set. Variables without the prefix are not read.
	got := mustLoad(t, "FENCEPOST_LEASE_DURATION=", "PORT=", "PATH=/bin", "fencepost_x=1", "=odd", "odd")
	check.Same(t, "with empty and foreign variables", got, defaults(), revealed)
}

// Secrets of handlers: 24 and 64 bytes.
var wageSecret, refundSecret = "whsec_" + strings.Repeat("QUJD", 8), "whsec_" + strings.Repeat("QUJD", 21) + "QQ=="

// chainsText has one chain with everything and one with as little as there may be.
const chainsText = `[{"id": 8453, "urls": ["https://a.example/k", "https://b.example"], "blockTime": "2s", "feeKind": "eip1559", "finality": "confirmations", "finalizedTag": true, "confirmations": 0, "quorum": 2}, {"id": 10, "urls": ["https://c"]}]`

// everything gives each setting a value other than its default. The exceptions are the page of
// metrics, which Cloud Run does not offer, and the history of tips, which a legacy chain does
// not have. See [TestContradictionsAreRefused].
var everything = []string{
	"FENCEPOST_LEASE_DURATION=20s", "FENCEPOST_LEASE_RENEW_INTERVAL=9999ms", "FENCEPOST_CLOCK_SKEW_ALLOWANCE=2s", "FENCEPOST_ADVANCE_BATCH_WAIT=10ms",
	"FENCEPOST_NONCE_START_FROM=9223372036854775807", "FENCEPOST_NONCE_STRICT_ENABLED=false", "FENCEPOST_NONCE_MAX_IN_FLIGHT=2000", "FENCEPOST_NONCE_DEFER_AFTER=0s",
	"FENCEPOST_NONCE_PLACEHOLDER=ask", "FENCEPOST_NONCE_PLACEHOLDER_MAX_FEE_PER_GAS=98",
	"FENCEPOST_HOOKS_ENABLED=true", "FENCEPOST_HOOKS_RESERVATION_TIMEOUT=2m",
	"FENCEPOST_QUEUE_MAX_PER_SUBMITTER=7", "FENCEPOST_RESUBMIT_ENABLED=false", "FENCEPOST_RESUBMIT_INTERVAL=1h",
	"FENCEPOST_RESUBMIT_MAX_ATTEMPTS=8", "FENCEPOST_STUCK_AFTER=45m", "FENCEPOST_CONFIRMATIONS_REQUIRED=1",
	"FENCEPOST_CONFIRMATIONS_RECEIPT_WORKERS=11", "FENCEPOST_CONFIRMATIONS_STALE_RECEIPT_TIMEOUT=90s", "FENCEPOST_FINALITY_MODE=safe", "FENCEPOST_REORG_WATCH_DEPTH=64",
	"FENCEPOST_FEES_MAX_FEE_PER_TX=100000", "FENCEPOST_FEES_MAX_TIP_MULTIPLE=11", "FENCEPOST_FEES_MIN_TIP_BOUND=12",
	"FENCEPOST_FEES_MAX_FEE_PER_GAS=77", "FENCEPOST_FEES_HISTORY_ENABLED=false", "FENCEPOST_FEES_HISTORY_BLOCKS=30", "FENCEPOST_FEES_HISTORY_PERCENTILE=90",
	"FENCEPOST_CHAIN_FEE_KIND=legacy", "FENCEPOST_CHAIN_FINALIZED_TAG=false", "FENCEPOST_TELEMETRY_BALANCES=3", "FENCEPOST_MEMPOOL_DIAGNOSE_ENABLED=true",
	"FENCEPOST_GASBUMP_ENABLED=true", "FENCEPOST_GASBUMP_MIN_INTERVAL=30s", "FENCEPOST_GASBUMP_MAX_ATTEMPTS=5", "FENCEPOST_GASBUMP_MULTIPLIER=1.3",
	"FENCEPOST_GASBUMP_MAX_FEE_PER_GAS=78", "FENCEPOST_GASBUMP_BUDGET_PER_DAY=80",
	"FENCEPOST_RPC_MAX_BATCH=50",
	"FENCEPOST_SWEEP_BATCH=12", "FENCEPOST_SWEEP_GRACE=3s",
	"FENCEPOST_TRANSFER_INIT_TIMEOUT=14m", "FENCEPOST_TRANSFER_CALL_TIMEOUT=4s", "FENCEPOST_TRANSFER_RETRY_FIRST=2s", "FENCEPOST_TRANSFER_RETRY_MOST=50s",
	"FENCEPOST_TRANSFER_RESCUE_AFTER=45s", "FENCEPOST_TRANSFER_SAFETY_FACTOR=11", "FENCEPOST_TRANSFER_LIMITS_PER_SECOND=9",
	"FENCEPOST_TRANSFER_LIMITS_PER_DAY=99", "FENCEPOST_TRANSFER_UNUSUAL_PER_MINUTE=59", "FENCEPOST_TRANSFER_PAYOUT_FINALITY=16m", "FENCEPOST_TRANSFER_PAYOUT_MAX_GAS=99000",
	"FENCEPOST_TRANSFER_PAYOUT_ADDRESSES_REQUIRED=true", "FENCEPOST_TRANSFER_PAYOUT_ADDRESSES_DELAY=48h",
	"FENCEPOST_TRADING_URL=http://127.0.0.1:8090/", "FENCEPOST_TRADING_SECRET=0123456789abcdef", "FENCEPOST_CONSERVATION_HALT=graded",
	"FENCEPOST_CONSERVATION_CHAIN_BLOCKS=500", "FENCEPOST_CONSERVATION_CHAIN_HISTORY=1h",
	"FENCEPOST_RPC_URLS=https://node.example/v2/key", "FENCEPOST_RPC_TIMEOUT=20s", "FENCEPOST_RPC_MAX_IN_FLIGHT=13", "FENCEPOST_RPC_QUORUM=1", "FENCEPOST_RPC_MAX_LAG=9", "FENCEPOST_RPC_LEAVE_OUT=1m",
	"FENCEPOST_CHAINS=" + chainsText,
	"FENCEPOST_INTENTS_MAC_KEYS=" + macKey + ", " + kmsMACKey,
	"FENCEPOST_CHAIN_ID=1337", "FENCEPOST_CHAIN_BLOCK_TIME=1s", "FENCEPOST_SIGNER_LOCAL_KEYS_FILE=/keys/local keys.json",
	"FENCEPOST_SIGNER_LOCAL_KEYSTORE=/keys/store", "FENCEPOST_SIGNER_LOCAL_PASSWORD_FILE=/keys/password", "FENCEPOST_SIGNER_KMS_ENDPOINT=127.0.0.1:8124",
	"FENCEPOST_SIGNER_REMOTES_FILE=/keys/remotes.json", "FENCEPOST_SIGNER_TIMEOUT=6s", "FENCEPOST_SIGNER_PARALLEL=3",
	"FENCEPOST_HANDLERS_URLS=wage=https://payroll.example/wages, refund=http://127.0.0.1:9/", "FENCEPOST_HANDLERS_TIMEOUT=4s", "FENCEPOST_HANDLERS_PATIENCE=0s",
	"FENCEPOST_HANDLERS_SECRETS=wage=" + wageSecret + ", refund=" + refundSecret + ",wage=" + refundSecret,
	"FENCEPOST_MARK_BUCKET=marks", "FENCEPOST_MARK_ENDPOINT=http://127.0.0.1:8126/storage/v1/",
	"FENCEPOST_EVENTS_MODE=webhook", "FENCEPOST_EVENTS_KEEP=48h", "FENCEPOST_EVENTS_PUBSUB_TOPIC=projects/proj-1/topics/events", "FENCEPOST_EVENTS_PUBSUB_ENDPOINT=127.0.0.1:8125",
	"FENCEPOST_EVENTS_WEBHOOK_URLS=shop=https://shop.example/hook, books=http://127.0.0.1:9/", "FENCEPOST_EVENTS_WEBHOOK_TIMEOUT=4s",
	"FENCEPOST_EVENTS_WEBHOOK_SECRETS=shop=" + wageSecret + ",books=" + refundSecret, "FENCEPOST_EVENTS_WEBHOOK_CALLERS=shop=shop@proj-1.iam,shop=handler:wage",
	"FENCEPOST_DATABASE_URL=user=advance@proj.iam dbname=fencepost", "FENCEPOST_DATABASE_INSTANCE=proj:europe-west1:main", "FENCEPOST_DATABASE_MAX_CONNS=5",
	"FENCEPOST_DATABASE_STATEMENT_TIMEOUT=4s", "FENCEPOST_DATABASE_LOCK_TIMEOUT=2500ms", "FENCEPOST_DATABASE_IDLE_IN_TRANSACTION_TIMEOUT=2s",
	"FENCEPOST_TASKS_PROJECT=proj-1", "FENCEPOST_TASKS_LOCATION=europe-west1", "FENCEPOST_TASKS_ENDPOINT=127.0.0.1:8123",
	"FENCEPOST_TASKS_QUEUE_PREFIX=blue", "FENCEPOST_TASKS_TARGET_URL=http://localhost:8080/", "FENCEPOST_TASKS_SERVICE_ACCOUNT=tasks@proj-1.iam",
	"FENCEPOST_TASKS_DISPATCH_DEADLINE=2m", "FENCEPOST_TASKS_QUEUE_SHARDS=3",
	"FENCEPOST_OIDC_ISSUER=https://issuer.example/", "FENCEPOST_OIDC_JWKS_URL=http://[::1]:9/jwks",
	"FENCEPOST_AUTH_PUBLIC_AUDIENCE=public", "FENCEPOST_AUTH_INTERNAL_AUDIENCE=internal",
	"FENCEPOST_AUTH_INTERNAL_ACCOUNTS=tasks@proj-1.iam, cron@proj-1.iam", "FENCEPOST_AUTH_OPERATORS=ann@example.com, sub:10341,email:bob@example.com", "FENCEPOST_AUTH_DEPOSIT_SERVICE=bank@example.com", "FENCEPOST_AUTH_OPEN_ISSUER=false",
	"FENCEPOST_AUTH_VIEWERS=eve@example.com,sub:10342",
	"FENCEPOST_CONSOLE_MODE=oidc", "FENCEPOST_CONSOLE_AUDIENCE=console-client", "FENCEPOST_CONSOLE_OIDC_ISSUER=https://people.example", "FENCEPOST_CONSOLE_OIDC_JWKS_URL=https://people.example/jwks",
	"FENCEPOST_CONSOLE_OIDC_CLIENT_SECRET=hunter3", "FENCEPOST_CONSOLE_IAP_ISSUER=https://iap.example", "FENCEPOST_CONSOLE_IAP_JWKS_URL=https://iap.example/jwks",
	"FENCEPOST_CONSOLE_SESSION_KEYS=" + macKey + "," + otherKey, "FENCEPOST_CONSOLE_ADMIN_URL=https://admin.example/", "FENCEPOST_CONSOLE_HOSTS=console.example, localhost:8080,[::1]:80",
	"FENCEPOST_CONSOLE_TRACE_URL=https://traces.example/t/{traceId}", "FENCEPOST_CONSOLE_LOG_URL=https://logs.example/?q=txId%3D%22{txId}%22&p=1",
	"FENCEPOST_APPROVALS_REQUIRED=signer, policy", "FENCEPOST_APPROVALS_VALID_FOR=2h",
	"FENCEPOST_AUTH_USERS_ISSUER=https://users.example", "FENCEPOST_AUTH_USERS_JWKS_URL=https://users.example/jwks", "FENCEPOST_AUTH_USERS_AUDIENCE=wallet",
	"FENCEPOST_HTTP_MAX_BODY_BYTES=1024", "FENCEPOST_HTTP_MAX_REQUESTS_PER_CALLER=7", "FENCEPOST_HTTP_MAX_BYTES_PER_CALLER=2048", "FENCEPOST_HTTP_BODY_TIMEOUT=21s", "FENCEPOST_LOG_LEVEL=warn",
	"FENCEPOST_TELEMETRY_OTLP_ENDPOINT=127.0.0.1:4317", "FENCEPOST_TELEMETRY_PROMETHEUS=false", "FENCEPOST_TELEMETRY_FLUSH_EVERY=9s", "FENCEPOST_TELEMETRY_TRACE_ONE_IN=7",
	"PORT=9000", "FUNCTION_TARGET=advance", "K_SERVICE=fencepost-advance", "K_REVISION=fencepost-advance-00001", "CLOUD_RUN_TIMEOUT_SECONDS=90",
}

// Keys of the MACs of intents and of the console's sessions.
const (
	otherKey  = "b3RoZXIga2V5IG90aGVyIGtleSBvdGhlciBrZXkgb3RoZXI="
	macKey    = "bWFjIGtleSBtYWMga2V5IG1hYyBrZXkgbWFjIGtleSE="
	kmsMACKey = "gcpkms:projects/p/locations/l/keyRings/r/cryptoKeys/k/cryptoKeyVersions/1"
)

func everythingLoaded() config.Config {
	return config.Config{
		Lease:        config.Lease{Duration: 20 * time.Second, RenewInterval: 9999 * time.Millisecond, ClockSkewAllowance: 2 * time.Second, BatchWait: 10 * time.Millisecond},
		Nonce:        config.Nonce{StartFrom: 1<<63 - 1, Strict: false, MaxInFlight: 2000, Placeholder: config.PlaceholderAsk, PlaceholderMaxFee: 98, DeferAfter: 0},
		Hooks:        config.Hooks{Enabled: true, ReservationTimeout: 2 * time.Minute},
		Intents:      config.Intents{MaxQueued: 7, MACKeys: []config.Secret{config.NewSecret(macKey), config.NewSecret(kmsMACKey)}, Diagnose: true},
		Broadcasting: rules.Broadcasting{Resubmit: false, ResubmitEvery: time.Hour, MaxResubmits: 8, StuckAfter: 45 * time.Minute},
		Finality:     config.Finality{Mode: txmanager.BySafe, Confirmations: 1, ReceiptWorkers: 11, StaleReceiptTimeout: 90 * time.Second, WatchDepth: 64},
		Fees:         config.Fees{MaxFeePerGas: 77, MaxFeePerTx: 100_000, MaxTipMultiple: 11, MinTipBound: 12, HistoryBlocks: 30, HistoryPercentile: 90},
		GasBump: config.GasBump{Enabled: true, MinInterval: 30 * time.Second, MaxAttempts: 5, Multiplier: 1300, MaxFeePerGas: 78,
			BudgetPerDay: 80},
		Sweep: config.Sweep{Batch: 12, Grace: 3 * time.Second},
		Transfer: config.Transfer{InitTimeout: 14 * time.Minute, CallTimeout: 4 * time.Second, RetryFirst: 2 * time.Second, RetryMost: 50 * time.Second,
			RescueAfter: 45 * time.Second, UnusualPerMinute: 59, PayoutFinality: 16 * time.Minute, PayoutMaxGas: 99_000,
			Terms: transfer.Terms{SafetyFactor: 11, Limits: transfer.Limits{PerSecond: 9, PerDay: 99}, Addresses: transfer.AddressTerms{Required: true, Delay: 48 * time.Hour}}},
		Trading:      config.Trading{URL: "http://127.0.0.1:8090", Secret: config.NewSecret("0123456789abcdef")},
		Conservation: config.Conservation{Halt: conservation.HaltGraded, ChainBlocks: 500, ChainHistory: time.Hour},
		RPC:          config.RPC{URLs: []config.Secret{config.NewSecret("https://node.example/v2/key")}, Quorum: 1, MaxLag: 9, LeaveOut: time.Minute, Timeout: 20 * time.Second, MaxInFlight: 13, MaxBatch: 50},
		Chain:        config.Chain{ID: 1337, BlockTime: time.Second, FeeKind: config.FeeKindLegacy},
		Chains: []config.ChainEntry{
			{ID: 8453, URLs: []config.Secret{config.NewSecret("https://a.example/k"), config.NewSecret("https://b.example")}, BlockTime: 2 * time.Second, FeeKind: config.FeeKindEIP1559,
				Finality: txmanager.ByConfirmations, Confirmations: new(0), Quorum: 2, FinalizedTag: new(true)},
			{ID: 10, URLs: []config.Secret{config.NewSecret("https://c")}},
		},
		Signer: config.Signer{LocalKeysFile: "/keys/local keys.json", LocalKeystore: "/keys/store", LocalPasswordFile: "/keys/password",
			KMSEndpoint: "127.0.0.1:8124", RemotesFile: "/keys/remotes.json", Timeout: 6 * time.Second, Parallel: 3},
		Handlers: config.Handlers{URLs: map[string]string{"wage": "https://payroll.example/wages", "refund": "http://127.0.0.1:9/"},
			Secrets: map[string][]config.Secret{"wage": {config.NewSecret(wageSecret), config.NewSecret(refundSecret)}, "refund": {config.NewSecret(refundSecret)}},
			Timeout: 4 * time.Second},
		Mark: config.Mark{Bucket: "marks", Endpoint: "http://127.0.0.1:8126/storage/v1/"},
		Events: config.Events{Mode: config.EventsWebhook, Keep: 48 * time.Hour, Topic: "projects/proj-1/topics/events", PubSubEndpoint: "127.0.0.1:8125",
			URLs:    map[string]string{"shop": "https://shop.example/hook", "books": "http://127.0.0.1:9/"},
			Secrets: map[string][]config.Secret{"shop": {config.NewSecret(wageSecret)}, "books": {config.NewSecret(refundSecret)}},
			Callers: map[string][]string{"shop": {"shop@proj-1.iam", "handler:wage"}}, Timeout: 4 * time.Second},
		Database: config.Database{URL: config.NewSecret("user=advance@proj.iam dbname=fencepost"), Instance: "proj:europe-west1:main", MaxConns: 5,
			StatementTimeout: 4 * time.Second, LockTimeout: 2500 * time.Millisecond, IdleInTransactionTimeout: 2 * time.Second},
		Tasks: config.Tasks{Project: "proj-1", Location: "europe-west1", Endpoint: "127.0.0.1:8123", QueuePrefix: "blue",
			TargetURL: "http://localhost:8080", ServiceAccount: "tasks@proj-1.iam", DispatchDeadline: 2 * time.Minute, QueueShards: 3},
		Auth: config.Auth{Issuer: "https://issuer.example/", JWKSURL: "http://[::1]:9/jwks", PublicAudience: "public", InternalAudience: "internal",
			InternalAccounts: []string{"tasks@proj-1.iam", "cron@proj-1.iam"}, Operators: []string{"email:ann@example.com", "sub:10341", "email:bob@example.com"}, Viewers: []string{"email:eve@example.com", "sub:10342"}, DepositService: []string{"email:bank@example.com"},
			UsersIssuer: "https://users.example", UsersJWKSURL: "https://users.example/jwks", UsersAudience: "wallet"},
		Approvals: config.Approvals{Required: []string{"policy", "signer"}, ValidFor: 2 * time.Hour},
		Console: config.Console{Mode: config.ConsoleOIDC, Audience: "console-client", OIDCIssuer: "https://people.example", OIDCJWKSURL: "https://people.example/jwks",
			ClientSecret: config.NewSecret("hunter3"), IAPIssuer: "https://iap.example", IAPJWKSURL: "https://iap.example/jwks",
			SessionKeys: []config.Secret{config.NewSecret(macKey), config.NewSecret(otherKey)}, AdminURL: "https://admin.example", Hosts: []string{"console.example", "localhost:8080", "[::1]:80"},
			TraceURL: "https://traces.example/t/{traceId}", LogURL: "https://logs.example/?q=txId%3D%22{txId}%22&p=1"},
		HTTP:      config.HTTP{MaxBodyBytes: 1024, MaxRequestsPerCaller: 7, MaxBytesPerCaller: 2048, BodyTimeout: 21 * time.Second},
		LogLevel:  slog.LevelWarn,
		Telemetry: config.Telemetry{OTLPEndpoint: "127.0.0.1:4317", FlushEvery: 9 * time.Second, TraceOneIn: 7, Balances: 3},
		Platform: config.Platform{Port: 9000, FunctionTarget: "advance", Service: "fencepost-advance",
			Revision: "fencepost-advance-00001", Timeout: 90 * time.Second},
	}
}

// Every setting reaches its own field, and the test covers every setting.
func TestEverySettingIsRead(t *testing.T) {
	t.Parallel()
	check.Same(t, "settings", mustLoad(t, everything...), everythingLoaded(), revealed)
	if got, want := strings.Count(config.Help(), "\n")/3, len(everything)-config.Constants(); got != want {
		t.Errorf("settings: got %d in Help, want the %d that this test gives", got, want)
	}
}

// A value that is not right is named with its variable and what would be right.
func TestWrongValuesAreRefused(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ given, want string }{
		{"FENCEPOST_LEASE_DURATION=10", `FENCEPOST_LEASE_DURATION="10": want a duration from 2s to 5m`},
		{"FENCEPOST_LEASE_DURATION=1999ms", `FENCEPOST_LEASE_DURATION="1999ms": want a duration from 2s to 5m`},
		{"FENCEPOST_LEASE_DURATION=301s", `FENCEPOST_LEASE_DURATION="301s": want a duration from 2s to 5m`},
		{"FENCEPOST_STUCK_AFTER=never", `FENCEPOST_STUCK_AFTER="never": want a duration from 1s to 720h`},
		{"FENCEPOST_DATABASE_LOCK_TIMEOUT=0s", `FENCEPOST_DATABASE_LOCK_TIMEOUT="0s": want a duration from 100ms to 1m`},
		{"FENCEPOST_NONCE_STRICT_ENABLED=yes", `FENCEPOST_NONCE_STRICT_ENABLED="yes": want true or false`},
		{"FENCEPOST_NONCE_START_FROM=-1", `FENCEPOST_NONCE_START_FROM="-1": want a nonce from 0 to 9223372036854775807`},
		{"FENCEPOST_DATABASE_INSTANCE=main", `FENCEPOST_DATABASE_INSTANCE="main": want project:region:instance`},
		{"FENCEPOST_DATABASE_MAX_CONNS=4294967300", `FENCEPOST_DATABASE_MAX_CONNS="4294967300": want a number of connections from 1 to 100`},
		{"FENCEPOST_APPROVALS_REQUIRED=policy,all", `FENCEPOST_APPROVALS_REQUIRED="policy,all": want any of policy, callers, signer, register, release, accept, adjustments, webhooks, separated by commas`},
		{"FENCEPOST_APPROVALS_REQUIRED=policy,policy", `FENCEPOST_APPROVALS_REQUIRED="policy,policy": want any of policy, callers`},
		{"FENCEPOST_HTTP_MAX_BODY_BYTES=1e6", `FENCEPOST_HTTP_MAX_BODY_BYTES="1e6": want a number of bytes from 1024 to 33554432`},
		{"FENCEPOST_CONSOLE_MODE=on", `FENCEPOST_CONSOLE_MODE="on": want one of off, iap, oidc, local`},
		{"FENCEPOST_CONSOLE_SESSION_KEYS=hunter2", `FENCEPOST_CONSOLE_SESSION_KEYS=[redacted]: want 1 or 2 keys separated by a comma, each the base64 of 32 to 64 random bytes`},
		{"FENCEPOST_CONSOLE_TRACE_URL=http://traces.example/{traceId}", `FENCEPOST_CONSOLE_TRACE_URL="http://traces.example/{traceId}": want an https URL that has {traceId} once`},
		{"FENCEPOST_CONSOLE_TRACE_URL=https://traces.example/{txId}", `FENCEPOST_CONSOLE_TRACE_URL="https://traces.example/{txId}": want an https URL`},
		{"FENCEPOST_CONSOLE_TRACE_URL=https://{traceId}.example/", `FENCEPOST_CONSOLE_TRACE_URL="https://{traceId}.example/": want an https URL`},
		{"FENCEPOST_CONSOLE_LOG_URL=https://logs.example/{txId}/{txId}", `FENCEPOST_CONSOLE_LOG_URL="https://logs.example/{txId}/{txId}": want an https URL that has {txId} once`},
		{"FENCEPOST_CONSOLE_LOG_URL=javascript:alert({txId})", `FENCEPOST_CONSOLE_LOG_URL="javascript:alert({txId})": want an https URL`},
		{"FENCEPOST_CONSOLE_HOSTS=https://console.example", `FENCEPOST_CONSOLE_HOSTS="https://console.example": want host names in lower case`},
		{"FENCEPOST_FINALITY_MODE=latest", `FENCEPOST_FINALITY_MODE="latest": want one of confirmations, safe, finalized`},
		{"FENCEPOST_LOG_LEVEL=info+1", `FENCEPOST_LOG_LEVEL="info+1": want one of debug, info, warn, error`},
		{"FENCEPOST_SIGNER_KMS_ENDPOINT=kms.example:443", `FENCEPOST_SIGNER_KMS_ENDPOINT="kms.example:443": want host:port on this machine (localhost, 127.0.0.1, [::1])`},
		{"FENCEPOST_TASKS_ENDPOINT=tasks.example:443", `FENCEPOST_TASKS_ENDPOINT="tasks.example:443": want host:port on this machine (localhost, 127.0.0.1, [::1])`},
		{"FENCEPOST_EVENTS_PUBSUB_ENDPOINT=10.0.0.7:8085", `FENCEPOST_EVENTS_PUBSUB_ENDPOINT="10.0.0.7:8085": want host:port on this machine (localhost, 127.0.0.1, [::1])`},
		{"FENCEPOST_MARK_ENDPOINT=http://storage.example:80/storage/v1/", `FENCEPOST_MARK_ENDPOINT="http://storage.example:80/storage/v1/": want http://host:port/storage/v1/ on this machine`},
		{"FENCEPOST_RPC_URLS=http://node.example/hunter2", `FENCEPOST_RPC_URLS=[redacted]: want 1 to 9 https URLs, each once, separated by commas (http only for this machine`},
		{"FENCEPOST_RPC_URLS=https://node.example,http://10.0.0.7:8545", `FENCEPOST_RPC_URLS=[redacted]: want 1 to 9 https URLs`},
		{"FENCEPOST_TASKS_ENDPOINT=localhost", `FENCEPOST_TASKS_ENDPOINT="localhost": want host:port`},
		{"FENCEPOST_TASKS_QUEUE_PREFIX=a_b", `FENCEPOST_TASKS_QUEUE_PREFIX="a_b": want 1 to 50 letters, digits and hyphens`},
		{"FENCEPOST_OIDC_JWKS_URL=http://issuer.example/jwks", `FENCEPOST_OIDC_JWKS_URL="http://issuer.example/jwks": want an https URL`},
		{"FENCEPOST_OIDC_ISSUER=https://", `FENCEPOST_OIDC_ISSUER="https://": want an https URL`},
		{"FENCEPOST_TASKS_TARGET_URL=https://x.example/?a=b", `FENCEPOST_TASKS_TARGET_URL="https://x.example/?a=b": want an https URL`},
		{"FENCEPOST_AUTH_OPERATORS=ann@example.com,,", `FENCEPOST_AUTH_OPERATORS="ann@example.com,,": want email:<e-mail address> or sub:<subject>, separated by commas`},
		{"FENCEPOST_AUTH_OPERATORS=ann", `FENCEPOST_AUTH_OPERATORS="ann": want email:<e-mail address> or sub:<subject>, separated by commas`},
		{"FENCEPOST_AUTH_OPERATORS=email:ann", `FENCEPOST_AUTH_OPERATORS="email:ann": want email:<e-mail address> or sub:<subject>, separated by commas`},
		{"FENCEPOST_AUTH_OPERATORS=handler:wage", `FENCEPOST_AUTH_OPERATORS="handler:wage": want email:<e-mail address> or sub:<subject>, separated by commas`},
		{"FENCEPOST_TRADING_URL=http://core.example", `FENCEPOST_TRADING_URL="http://core.example": want an https URL without path`},
		{"FENCEPOST_TRADING_URL=https://core.example/v1", `FENCEPOST_TRADING_URL="https://core.example/v1": want an https URL without path`},
		{"FENCEPOST_TRADING_SECRET=0123456789abcde", `FENCEPOST_TRADING_SECRET=[redacted]: want at least 16 bytes`},
		{"FENCEPOST_TRANSFER_SAFETY_FACTOR=0", `FENCEPOST_TRANSFER_SAFETY_FACTOR="0": want a factor from 1`},
		{"FENCEPOST_CONSERVATION_HALT=none", `FENCEPOST_CONSERVATION_HALT="none": want one of all, graded`},
		{"FENCEPOST_CHAIN_ID=0", `FENCEPOST_CHAIN_ID="0": want an EIP-155 chain id from 1`},
		{"FENCEPOST_CHAIN_ID=", `FENCEPOST_CHAIN_ID is not set: want an EIP-155 chain id from 1`},
		{"FENCEPOST_TELEMETRY_OTLP_ENDPOINT=https://collector:4317", `FENCEPOST_TELEMETRY_OTLP_ENDPOINT="https://collector:4317": want host:port`},
		{"FENCEPOST_TELEMETRY_TRACE_ONE_IN=0", `FENCEPOST_TELEMETRY_TRACE_ONE_IN="0": want a number of intents from 1`},
		{"FENCEPOST_GASBUMP_MULTIPLIER=1.099", `FENCEPOST_GASBUMP_MULTIPLIER="1.099": want a factor from 1.1 to 10, with at most three decimals`},
		{"FENCEPOST_GASBUMP_MULTIPLIER=10.001", `FENCEPOST_GASBUMP_MULTIPLIER="10.001": want a factor`},
		{"FENCEPOST_GASBUMP_MULTIPLIER=1.1255", `FENCEPOST_GASBUMP_MULTIPLIER="1.1255": want a factor`},
		{"FENCEPOST_GASBUMP_MULTIPLIER=1,2", `FENCEPOST_GASBUMP_MULTIPLIER="1,2": want a factor`},
		{"FENCEPOST_GASBUMP_MIN_INTERVAL=999ms", `FENCEPOST_GASBUMP_MIN_INTERVAL="999ms": want a duration from 1s to 24h`},
		{"FENCEPOST_GASBUMP_MAX_ATTEMPTS=0", `FENCEPOST_GASBUMP_MAX_ATTEMPTS="0": want a number of replacements from 1`},
		{"FENCEPOST_GASBUMP_MAX_FEE_PER_GAS=0", `FENCEPOST_GASBUMP_MAX_FEE_PER_GAS="0": want an amount in wei per gas from 1`},
		{"FENCEPOST_GASBUMP_BUDGET_PER_DAY=0", `FENCEPOST_GASBUMP_BUDGET_PER_DAY="0": want an amount in gwei from 1`},
		{"FENCEPOST_CHAIN_FEE_KIND=london", `FENCEPOST_CHAIN_FEE_KIND="london": want one of eip1559, legacy`},
		{"FENCEPOST_FEES_HISTORY_PERCENTILE=0", `FENCEPOST_FEES_HISTORY_PERCENTILE="0": want a percentile from 1 to 100`},
		{"FENCEPOST_FEES_HISTORY_BLOCKS=101", `FENCEPOST_FEES_HISTORY_BLOCKS="101": want a number of blocks from 1 to 100`},
		{"FENCEPOST_MEMPOOL_DIAGNOSE_ENABLED=on", `FENCEPOST_MEMPOOL_DIAGNOSE_ENABLED="on": want true or false`},
		{"FENCEPOST_TELEMETRY_BALANCES=1001", `FENCEPOST_TELEMETRY_BALANCES="1001": want a number of submitters from 0 to 1000`},
		{"PORT=http", `PORT="http": want a port from 1 to 65535`},
		{"CLOUD_RUN_TIMEOUT_SECONDS=60s", `CLOUD_RUN_TIMEOUT_SECONDS="60s": want a number of seconds from 15 to 3600`},
	} {
		t.Run(tt.given, func(t *testing.T) {
			t.Parallel()
			wantProblem(t, with(tt.given), tt.want)
		})
	}
}

// wantProblem wants exactly one problem, which begins with want.
func wantProblem(t *testing.T, environ []string, want string) {
	t.Helper()
	_, err := config.LoadForTests(environ)
	if err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "\n") {
		t.Errorf("got %v, want the one problem %s…", err, want)
	}
}

// An unknown FENCEPOST_ variable is refused with the nearest name, and without its value.
func TestUnknownVariablesAreRefused(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ given, nearest string }{
		{"FENCEPOST_LEASE_RENEWINTERVAL=1s", "FENCEPOST_LEASE_RENEW_INTERVAL"},
		{"FENCEPOST_DATABSE_URL=hunter2", "FENCEPOST_DATABASE_URL"},
		{"FENCEPOST_RPC_URL=hunter2", "FENCEPOST_RPC_URLS"},
		{"FENCEPOST_STUCK=", "FENCEPOST_STUCK_AFTER"},
		{"FENCEPOST_PORT=1", "FENCEPOST_RPC_URLS"},
	} {
		name, _, _ := strings.Cut(tt.given, "=")
		_, err := config.LoadForTests(with(tt.given))
		if want := name + " is no setting: the nearest is " + tt.nearest; err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", tt.given, err, want)
		}
	}
}

// localConsole is the console of the local environment.
var localConsole = []string{
	"FENCEPOST_CONSOLE_MODE=local", "FENCEPOST_CONSOLE_AUDIENCE=console", "FENCEPOST_CONSOLE_OIDC_ISSUER=http://127.0.0.1:9", "FENCEPOST_CONSOLE_OIDC_JWKS_URL=http://127.0.0.1:9/jwks",
	"FENCEPOST_CONSOLE_ADMIN_URL=http://localhost:8080", "FENCEPOST_CONSOLE_HOSTS=127.0.0.1:8080,localhost:8080,[::1]:8080",
}

// The variable of a former setting is refused with what takes its place.
func TestRemovedSettingsNameWhatTakesTheirPlace(t *testing.T) {
	t.Parallel()
	wantProblem(t, with("FENCEPOST_MARK_ENABLED=true"), "FENCEPOST_MARK_ENABLED is no setting any more: remove the variable; the mark is kept exactly if FENCEPOST_MARK_BUCKET is set")
	wantProblem(t, with("FENCEPOST_CONSERVATION_CHAIN=false"), "FENCEPOST_CONSERVATION_CHAIN is no setting any more: remove the variable; to read no chain, set FENCEPOST_CONSERVATION_CHAIN_BLOCKS=0")
	wantProblem(t, with("FENCEPOST_GASBUMP_MAX_FEE_PER_TX=1"), "FENCEPOST_GASBUMP_MAX_FEE_PER_TX is no setting any more: remove the variable; FENCEPOST_FEES_MAX_FEE_PER_TX bounds replacements too")
	check.Equal(t, "no chain is read", mustLoad(t, "FENCEPOST_CONSERVATION_CHAIN_BLOCKS=0").Conservation.ChainBlocks, 0)
}

// A process that serves the console alone needs neither a database nor a chain. Any other needs both.
func TestTheConsoleNeedsNoDatabase(t *testing.T) {
	t.Parallel()
	check.Err(t, "the console alone", nil)(config.Load(append(slices.Clone(localConsole), "FUNCTION_TARGET=console")))
	wantProblem(t, append(slices.Clone(localConsole), "FENCEPOST_CHAIN_ID=1", "FUNCTION_TARGET=admin"), "FENCEPOST_DATABASE_URL is not set")
}

// Settings that are right one by one and contradict each other are refused with
// what to do.
func TestContradictionsAreRefused(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		given []string
		want  string
	}{
		{[]string{"FENCEPOST_LEASE_RENEW_INTERVAL=5s"},
			`FENCEPOST_LEASE_RENEW_INTERVAL="5s", FENCEPOST_LEASE_DURATION="10s": set lease.renewInterval below half`},
		{[]string{"FENCEPOST_CLOCK_SKEW_ALLOWANCE=10s"},
			`FENCEPOST_CLOCK_SKEW_ALLOWANCE="10s", FENCEPOST_LEASE_DURATION="10s": set clockSkewAllowance below lease.duration`},
		{[]string{"FENCEPOST_DATABASE_LOCK_TIMEOUT=10s"},
			`FENCEPOST_DATABASE_LOCK_TIMEOUT="10s", FENCEPOST_LEASE_DURATION="10s": set lease.duration above database.lockTimeout`},
		{[]string{"FENCEPOST_SIGNER_LOCAL_KEYSTORE=/keys/store"},
			`FENCEPOST_SIGNER_LOCAL_KEYSTORE="/keys/store", FENCEPOST_SIGNER_LOCAL_PASSWORD_FILE="": set signer.local.keystore and`},
		{[]string{"FENCEPOST_RPC_TIMEOUT=10001ms"},
			`FENCEPOST_RPC_TIMEOUT="10001ms", FENCEPOST_LEASE_DURATION="10s": set rpc.timeout to at most lease.duration`},
		{[]string{"FENCEPOST_FINALITY_MODE=finalized", "FENCEPOST_CHAIN_FINALIZED_TAG=false"},
			`FENCEPOST_FINALITY_MODE="finalized", FENCEPOST_CHAIN_FINALIZED_TAG="false", FENCEPOST_CHAINS=[redacted]: nothing could ever be final`},
		{[]string{"FENCEPOST_RESUBMIT_INTERVAL=30m"},
			`FENCEPOST_RESUBMIT_INTERVAL="30m", FENCEPOST_STUCK_AFTER="30m", FENCEPOST_RESUBMIT_ENABLED="true": every transaction`},
		{[]string{"FENCEPOST_GASBUMP_ENABLED=true", "FENCEPOST_RESUBMIT_INTERVAL=3s"},
			`FENCEPOST_GASBUMP_MIN_INTERVAL="60s", FENCEPOST_RESUBMIT_INTERVAL="3s", FENCEPOST_RESUBMIT_MAX_ATTEMPTS="20", FENCEPOST_RESUBMIT_ENABLED="true", FENCEPOST_GASBUMP_ENABLED="true": every transaction would have used up`},
		{[]string{"FENCEPOST_HANDLERS_SECRETS=wage=" + wageSecret, "FENCEPOST_HANDLERS_URLS=refund=https://r.example"},
			`FENCEPOST_HANDLERS_URLS="refund=https://r.example", FENCEPOST_HANDLERS_SECRETS=[redacted]: handlers.secrets has secrets of ["wage"]`},
		{[]string{"FENCEPOST_HANDLERS_PATIENCE=30m", "FENCEPOST_HANDLERS_URLS=refund=https://r.example"},
			`FENCEPOST_HANDLERS_PATIENCE="30m", FENCEPOST_STUCK_AFTER="30m": set stuck.after above handlers.patience`},
		{[]string{"FENCEPOST_HANDLERS_TIMEOUT=9s", "FENCEPOST_HANDLERS_URLS=refund=https://r.example"},
			`FENCEPOST_HANDLERS_TIMEOUT="9s", FENCEPOST_LEASE_DURATION="10s": set lease.duration more than a second above handlers.timeout`},
		{[]string{"FENCEPOST_AUTH_USERS_AUDIENCE=api", "FENCEPOST_AUTH_PUBLIC_AUDIENCE=api",
			"FENCEPOST_AUTH_USERS_ISSUER=https://one.example", "FENCEPOST_OIDC_ISSUER=https://one.example"},
			`FENCEPOST_AUTH_USERS_AUDIENCE="api", FENCEPOST_AUTH_PUBLIC_AUDIENCE="api", FENCEPOST_AUTH_INTERNAL_AUDIENCE="", FENCEPOST_AUTH_USERS_ISSUER="https://one.example", FENCEPOST_OIDC_ISSUER="https://one.example": where auth.usersIssuer is`},
		{[]string{"FENCEPOST_AUTH_PUBLIC_AUDIENCE=api", "FENCEPOST_AUTH_INTERNAL_AUDIENCE=api"},
			`FENCEPOST_AUTH_PUBLIC_AUDIENCE="api", FENCEPOST_AUTH_INTERNAL_AUDIENCE="api": a token for public functions would be one`},
		{[]string{"FENCEPOST_AUTH_DEPOSIT_SERVICE=sub:7", "FENCEPOST_AUTH_OPERATORS=ann@example.com,sub:7"},
			`FENCEPOST_AUTH_DEPOSIT_SERVICE="sub:7", FENCEPOST_AUTH_OPERATORS="ann@example.com,sub:7": the deposit service would be an operator`},
		{[]string{"FENCEPOST_APPROVALS_REQUIRED=policy", "FENCEPOST_AUTH_OPERATORS=ann@example.com,email:ann@example.com"},
			`FENCEPOST_APPROVALS_REQUIRED="policy", FENCEPOST_AUTH_OPERATORS="ann@example.com,email:ann@example.com": a second operator has to approve what one proposes: name at least two people`},
		{[]string{"FENCEPOST_APPROVALS_REQUIRED=policy"}, `FENCEPOST_APPROVALS_REQUIRED="policy", FENCEPOST_AUTH_OPERATORS="": a second operator`},
		{[]string{"FENCEPOST_NONCE_PLACEHOLDER_MAX_FEE_PER_GAS=632812499999"},
			`FENCEPOST_NONCE_PLACEHOLDER_MAX_FEE_PER_GAS="632812499999", FENCEPOST_FEES_MAX_FEE_PER_GAS="500000000000": a transaction at the ceiling could not be replaced`},
		{[]string{"FENCEPOST_FEES_MAX_FEE_PER_GAS=9223372036854775807"},
			`FENCEPOST_NONCE_PLACEHOLDER_MAX_FEE_PER_GAS="650000000000", FENCEPOST_FEES_MAX_FEE_PER_GAS="9223372036854775807": a transaction at the ceiling`},
		{[]string{"FENCEPOST_FEES_HISTORY_ENABLED=true", "FENCEPOST_CHAIN_FEE_KIND=legacy"},
			`FENCEPOST_FEES_HISTORY_ENABLED="true", FENCEPOST_CHAIN_FEE_KIND="legacy": a chain without EIP-1559 has no tips to read`},
		{[]string{"FENCEPOST_GASBUMP_MIN_INTERVAL=30m", "FENCEPOST_GASBUMP_ENABLED=true", "FENCEPOST_RESUBMIT_ENABLED=false"},
			`FENCEPOST_GASBUMP_MIN_INTERVAL="30m", FENCEPOST_STUCK_AFTER="30m", FENCEPOST_GASBUMP_ENABLED="true": every transaction`},
		{[]string{"FENCEPOST_TELEMETRY_PROMETHEUS=true", "K_SERVICE=fencepost-create"},
			`FENCEPOST_TELEMETRY_PROMETHEUS="true", K_SERVICE="fencepost-create": where K_SERVICE is set, a public service would show its metrics`},
		{[]string{"FENCEPOST_CONSOLE_MODE=iap"}, `FENCEPOST_CONSOLE_MODE="iap", FENCEPOST_CONSOLE_AUDIENCE="": console.mode is iap: set console.audience`},
		{[]string{"FENCEPOST_CONSOLE_MODE=iap", "FENCEPOST_CONSOLE_AUDIENCE=/projects/1/apps/p"},
			`FENCEPOST_CONSOLE_MODE="iap", FENCEPOST_CONSOLE_AUDIENCE="/projects/1/apps/p": console.mode is iap: set console.audience to /projects/NUMBER/global/backendServices/ID`},
		{[]string{"FENCEPOST_CONSOLE_MODE=oidc", "FENCEPOST_CONSOLE_AUDIENCE=c", "FENCEPOST_CONSOLE_OIDC_ISSUER=https://people.example"},
			`FENCEPOST_CONSOLE_MODE="oidc", FENCEPOST_CONSOLE_OIDC_ISSUER="https://people.example", FENCEPOST_CONSOLE_OIDC_JWKS_URL="": console.mode is oidc: set console.oidc.issuer and`},
		{[]string{"FENCEPOST_CONSOLE_MODE=iap", "FENCEPOST_CONSOLE_AUDIENCE=/projects/1/global/backendServices/2", "FENCEPOST_CONSOLE_OIDC_CLIENT_SECRET=hunter3"},
			`FENCEPOST_CONSOLE_MODE="iap", FENCEPOST_CONSOLE_OIDC_ISSUER="", FENCEPOST_CONSOLE_OIDC_JWKS_URL="", FENCEPOST_CONSOLE_OIDC_CLIENT_SECRET=[redacted]: console.mode is iap, whose issuer is Google`},
		{[]string{"FENCEPOST_CONSOLE_AUDIENCE=api", "FENCEPOST_AUTH_PUBLIC_AUDIENCE=api"},
			`FENCEPOST_CONSOLE_AUDIENCE="api", FENCEPOST_AUTH_PUBLIC_AUDIENCE="api", FENCEPOST_AUTH_INTERNAL_AUDIENCE="", FENCEPOST_AUTH_USERS_AUDIENCE="": a token of the console`},
		{append(slices.Clone(localConsole), "K_SERVICE=fencepost-console"), `FENCEPOST_CONSOLE_MODE="local", K_SERVICE="fencepost-console": K_SERVICE is set, and console.mode is local`},
		{append(slices.Clone(localConsole), "FENCEPOST_CONSOLE_OIDC_ISSUER=https://people.example"),
			`FENCEPOST_CONSOLE_MODE="local", FENCEPOST_CONSOLE_OIDC_ISSUER="https://people.example", FENCEPOST_CONSOLE_ADMIN_URL="http://localhost:8080", FENCEPOST_CONSOLE_HOSTS="127.0.0.1:8080,localhost:8080,[::1]:8080": console.mode is local: console.oidc.issuer`},
		{append(slices.Clone(localConsole), "FENCEPOST_CONSOLE_ADMIN_URL=https://admin.example"),
			`FENCEPOST_CONSOLE_MODE="local", FENCEPOST_CONSOLE_OIDC_ISSUER="http://127.0.0.1:9", FENCEPOST_CONSOLE_ADMIN_URL="https://admin.example", FENCEPOST_CONSOLE_HOSTS="127.0.0.1:8080,localhost:8080,[::1]:8080": console.mode is local: console.oidc.issuer`},
		{append(slices.Clone(localConsole), "FENCEPOST_CONSOLE_HOSTS=localhost:8080,console.example"),
			`FENCEPOST_CONSOLE_MODE="local", FENCEPOST_CONSOLE_OIDC_ISSUER="http://127.0.0.1:9", FENCEPOST_CONSOLE_ADMIN_URL="http://localhost:8080", FENCEPOST_CONSOLE_HOSTS="localhost:8080,console.example": console.mode is local: console.oidc.issuer`},
		{[]string{"FENCEPOST_AUTH_VIEWERS=ann@example.com", "FENCEPOST_AUTH_OPERATORS=email:ann@example.com"},
			`FENCEPOST_AUTH_VIEWERS="ann@example.com", FENCEPOST_AUTH_OPERATORS="email:ann@example.com": a viewer may only read`},
	} {
		t.Run(tt.given[0], func(t *testing.T) {
			t.Parallel()
			wantProblem(t, with(tt.given...), tt.want)
		})
	}
	mustLoad(t, "FENCEPOST_RPC_URLS=http://127.0.0.1:8545,http://localhost:8546/key,http://[::1]:8547")
	mustLoad(t, localConsole...)
	mustLoad(t, "FENCEPOST_NONCE_MAX_IN_FLIGHT=2", "FENCEPOST_NONCE_STRICT_ENABLED=false")
	mustLoad(t, "FENCEPOST_HANDLERS_URLS=refund=https://r.example") // a process that asks nobody
	mustLoad(t, "FENCEPOST_RESUBMIT_INTERVAL=30m", "FENCEPOST_RESUBMIT_ENABLED=false")
	mustLoad(t, "FENCEPOST_GASBUMP_MIN_INTERVAL=30m")
	mustLoad(t, "FENCEPOST_NONCE_PLACEHOLDER_MAX_FEE_PER_GAS=632812500000") // 500 gwei and an eighth, twice
	check.Equal(t, "nonce.strict.enabled beside a window above 1", mustLoad(t, "FENCEPOST_NONCE_MAX_IN_FLIGHT=200").Nonce.Strict, true)
	check.Equal(t, "telemetry.prometheus off Cloud Run", mustLoad(t, "FENCEPOST_TELEMETRY_PROMETHEUS=true").Telemetry.Prometheus, true)
	mustLoad(t, "FENCEPOST_AUTH_USERS_AUDIENCE=api", "FENCEPOST_AUTH_PUBLIC_AUDIENCE=api",
		"FENCEPOST_AUTH_USERS_ISSUER=https://users.example", "FENCEPOST_OIDC_ISSUER=https://one.example")
}

// Load reports all problems at once. An invalid value is not also compared with others.
func TestAllProblemsAreReportedTogether(t *testing.T) {
	t.Parallel()
	c, err := config.LoadForTests([]string{
		"FENCEPOST_LEASE_DURATION=soon", "FENCEPOST_LEASE_RENEW_INTERVAL=1m", "FENCEPOST_RESUBMIT_INTERVAL=30m",
		"FENCEPOST_TYPO=1", "PORT=-1",
	})
	if err == nil {
		t.Fatal("got no error, want six problems")
	}
	var got []string
	for _, line := range strings.Split(err.Error(), "\n") {
		variable := strings.FieldsFunc(line, func(r rune) bool { return r == ' ' || r == '=' })[0]
		got = append(got, variable)
	}
	want := []string{"FENCEPOST_TYPO", "FENCEPOST_LEASE_DURATION", "FENCEPOST_CHAIN_ID", "FENCEPOST_DATABASE_URL", "PORT", "FENCEPOST_RESUBMIT_INTERVAL"}
	check.Same(t, "variables with problems", got, want)
	check.Same(t, "settings beside an error", c, config.Config{}, revealed)
}

// A function says what it needs beyond what everything needs.
func TestRequire(t *testing.T) {
	t.Parallel()
	names := []string{"rpc.urls", "tasks.project", "auth.operators", "lease.duration", "log.level"}
	check.Err(t, "all set", nil)(mustLoad(t, everything...).Require(names...))
	err := mustLoad(t).Require(append(names, "no.such")...)
	var got []string
	for line := range strings.Lines(err.Error()) {
		got = append(got, strings.Fields(line)[0])
	}
	want := []string{"FENCEPOST_RPC_URLS", "FENCEPOST_TASKS_PROJECT", "FENCEPOST_AUTH_OPERATORS", "no.such"}
	check.Same(t, "problems where none is set", got, want)
}

// Cloud Run is where the platform names our service.
func TestOnCloudRun(t *testing.T) {
	t.Parallel()
	check.Equal(t, "without K_SERVICE", mustLoad(t).Platform.OnCloudRun(), false)
	check.Equal(t, "with K_SERVICE", mustLoad(t, "K_SERVICE=x").Platform.OnCloudRun(), true)
}
