package stack

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Settings are settings of the functions from the command line, by variable. The flag can be repeated.
type Settings map[string]string

var _ flag.Value = Settings{}

const settingsPrefix = "FENCEPOST_"

func (s Settings) String() string { return "" }

// Set implements [flag.Value]. A name is one of docs/settings.md or a variable. The functions refuse an
// unknown one.
func (s Settings) Set(text string) error {
	name, value, ok := strings.Cut(text, "=")
	if !ok || name == "" {
		return errors.New("want NAME=VALUE, such as gasbump.enabled=true")
	}
	if strings.ToUpper(name) == name {
		s[name] = value
		return nil
	}
	words := strings.ReplaceAll(capital.ReplaceAllString(name, "_$0"), ".", "_")
	s[settingsPrefix+strings.ToUpper(words)] = value
	return nil
}

// capital matches the beginning of each further word of a part of a name.
var capital = regexp.MustCompile(`\p{Lu}`)

// commandLine matches the variables of the program fencepost, which the emulator prints. They are no settings.
var commandLine = regexp.MustCompile(`^FENCEPOST_(API|((OPERATOR_|USER_)?TOKEN(_FILE)?)|AUDIENCE|IMPERSONATE|WEBHOOK_SECRET)$`)

// AddEnvironment adds the settings of an environment, in the form of [os.Environ], that are not set yet.
func (s Settings) AddEnvironment(environ []string) {
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		if _, set := s[name]; strings.HasPrefix(name, settingsPrefix) && !commandLine.MatchString(name) && value != "" && !set {
			s[name] = value
		}
	}
}

// What to do instead of setting what the emulator itself has to set.
const (
	itsOwn       = "remove it: the emulator has its own, at an address of its own"
	itsAccounts  = "remove it: the emulator has accounts of its own"
	byChains     = "remove it: the emulator runs the chains; see --chains and --nodes"
	byBlockTime  = "give --block-time, which sets the chain's blocks too"
	bySigner     = "give --signer"
	byMark       = "give --mark"
	byTransfers  = "give --transfers, which starts a trading core and an issuer of users' tokens"
	byPubSub     = "give --events mq_outbox: the emulator has its own Pub/Sub"
	byProcesses  = "remove it: the emulator sets it for each process"
	fromTheStart = "remove it: the emulator's accounts are new and begin at 0"
)

// reserved are the variables that the emulator sets by its own parts, with what to do instead. Any other
// value would disconnect the functions from them.
var reserved = map[string]string{
	"FENCEPOST_DATABASE_URL": itsOwn, "FENCEPOST_DATABASE_INSTANCE": itsOwn,
	"FENCEPOST_TASKS_PROJECT": itsOwn, "FENCEPOST_TASKS_LOCATION": itsOwn, "FENCEPOST_TASKS_ENDPOINT": itsOwn,
	"FENCEPOST_TASKS_TARGET_URL": itsOwn, "FENCEPOST_TASKS_SERVICE_ACCOUNT": itsAccounts,
	"FENCEPOST_OIDC_ISSUER": itsOwn, "FENCEPOST_OIDC_JWKS_URL": itsOwn,
	"FENCEPOST_AUTH_PUBLIC_AUDIENCE": itsAccounts, "FENCEPOST_AUTH_INTERNAL_AUDIENCE": itsAccounts,
	"FENCEPOST_AUTH_INTERNAL_ACCOUNTS": itsAccounts, "FENCEPOST_AUTH_OPERATORS": itsAccounts,
	"FENCEPOST_AUTH_VIEWERS": itsAccounts, "FENCEPOST_CONSOLE_MODE": itsOwn, "FENCEPOST_CONSOLE_AUDIENCE": itsOwn, "FENCEPOST_CONSOLE_OIDC_ISSUER": itsOwn,
	"FENCEPOST_CONSOLE_OIDC_JWKS_URL": itsOwn, "FENCEPOST_CONSOLE_OIDC_CLIENT_SECRET": itsOwn, "FENCEPOST_CONSOLE_SESSION_KEYS": itsOwn,
	"FENCEPOST_CONSOLE_IAP_ISSUER": itsOwn, "FENCEPOST_CONSOLE_IAP_JWKS_URL": itsOwn, "FENCEPOST_CONSOLE_ADMIN_URL": itsOwn, "FENCEPOST_CONSOLE_HOSTS": itsOwn,
	"FENCEPOST_CHAIN_ID": byChains, "FENCEPOST_CHAINS": byChains, "FENCEPOST_RPC_URLS": byChains, "FENCEPOST_CHAIN_BLOCK_TIME": byBlockTime,
	"FENCEPOST_NONCE_START_FROM":       fromTheStart,
	"FENCEPOST_SIGNER_LOCAL_KEYS_FILE": bySigner, "FENCEPOST_SIGNER_KMS_ENDPOINT": bySigner, "FENCEPOST_SIGNER_REMOTES_FILE": bySigner,
	"FENCEPOST_MARK_BUCKET": byMark, "FENCEPOST_MARK_ENDPOINT": byMark,
	"FENCEPOST_TRADING_URL": byTransfers, "FENCEPOST_TRADING_SECRET": byTransfers,
	"FENCEPOST_AUTH_USERS_ISSUER": byTransfers, "FENCEPOST_AUTH_USERS_JWKS_URL": byTransfers, "FENCEPOST_AUTH_USERS_AUDIENCE": byTransfers,
	"FENCEPOST_EVENTS_PUBSUB_TOPIC": byPubSub, "FENCEPOST_EVENTS_PUBSUB_ENDPOINT": byPubSub,
	"PORT": byProcesses, "FUNCTION_TARGET": byProcesses, "K_SERVICE": byProcesses, "K_REVISION": byProcesses,
}

// timeout is Google's only variable that can be set.
const timeout = "CLOUD_RUN_TIMEOUT_SECONDS"

// Check refuses settings that the emulator cannot honour. Its error names each with what to do instead.
func (s Settings) Check() error {
	var problems []error
	for _, name := range slices.Sorted(maps.Keys(s)) {
		switch instead, ok := reserved[name]; {
		case ok:
			problems = append(problems, fmt.Errorf("%s: %s", name, instead))
		case !strings.HasPrefix(name, settingsPrefix) && name != timeout:
			problems = append(problems, fmt.Errorf("%s is no setting; docs/settings.md lists them", name))
		}
	}
	return errors.Join(problems...)
}
