// Package config declares every setting of a deployment: its name, meaning, values, default
// and contradictions. It is the only reader of the environment.
//
// A setting has the name that the specification gives it, such as lease.renewInterval, and is
// read from FENCEPOST_LEASE_RENEW_INTERVAL: dots and capitals become underscores. Variables of
// Google's own keep their names. A variable that is set to nothing counts as not set.
//
// To add a setting, add a field to its group and a row to the table of settings; [Load], [Help]
// and docs/settings.md follow.
package config

import (
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"

	"github.com/fencepost/fencepost/shared/txmanager/rules"
)

// Config has the settings in force. It holds no reference to the environment and never
// changes. Its secrets do not print.
type Config struct {
	Lease        Lease
	Nonce        Nonce
	Hooks        Hooks
	Fees         Fees
	GasBump      GasBump
	Intents      Intents
	Broadcasting rules.Broadcasting
	Finality     Finality
	Sweep        Sweep
	Transfer     Transfer
	Trading      Trading
	Conservation Conservation
	RPC          RPC
	Chain        Chain
	Chains       []ChainEntry // the chains of the setting: see [Config.Served]
	Signer       Signer
	Handlers     Handlers
	Events       Events
	Database     Database
	Mark         Mark
	Tasks        Tasks
	Auth         Auth
	Approvals    Approvals
	Console      Console
	HTTP         HTTP
	LogLevel     slog.Level // the lowest level that is written
	Telemetry    Telemetry
	Platform     Platform
}

// Load parses the settings in environ, which has the form of [os.Environ].
//
// The error joins all problems: an unknown FENCEPOST_ variable, a required setting that is
// missing, an invalid value, and settings that contradict each other. Each problem names the
// variables and the expected values, and shows no secret.
func Load(environ []string) (Config, error) { return load(environ, constantsSettable) }

// LoadForTests is [Load], and the constants can be set too.
func LoadForTests(environ []string) (Config, error) { return load(environ, true) }

func load(environ []string, constants bool) (Config, error) {
	var c Config
	given := make(map[string]string, len(environ))
	for _, entry := range environ {
		variable, value, _ := strings.Cut(entry, "=")
		given[variable] = value
	}
	settings := c.settings()
	if given["FUNCTION_TARGET"] == ConsoleTarget {
		for i := range settings {
			settings[i].required = false // it has no database and knows no chain
		}
	}
	problems := unknown(environ, settings, constants)
	wrong := make(map[string]bool)
	for _, s := range settings {
		if err := s.load(given[s.variable()]); err != nil {
			problems = append(problems, err)
			wrong[s.name] = true
		}
	}
	for _, r := range c.rules() {
		// A rule is not checked if one of its settings is invalid already.
		if r.broken && !slices.ContainsFunc(r.of, func(name string) bool { return wrong[name] }) {
			problems = append(problems, r.problem(settings, given))
		}
	}
	if len(problems) > 0 {
		return Config{}, errors.Join(problems...)
	}
	return c, nil
}

// settable returns the settings, with the constants or without.
func settable(settings []setting, constants bool) []setting {
	return slices.DeleteFunc(slices.Clone(settings), func(s setting) bool { return s.constant && !constants })
}

// removed are variables of former settings, with what to do instead.
var removed = map[string]string{
	"FENCEPOST_CONSERVATION_CHAIN":     "remove the variable; to read no chain, set FENCEPOST_CONSERVATION_CHAIN_BLOCKS=0",
	"FENCEPOST_GASBUMP_MAX_FEE_PER_TX": "remove the variable; FENCEPOST_FEES_MAX_FEE_PER_TX bounds replacements too, at 81/64",
	"FENCEPOST_MARK_ENABLED":           "remove the variable; the mark is kept exactly if FENCEPOST_MARK_BUCKET is set",
}

// unknown finds FENCEPOST_ variables that are no setting, or a constant unless constants can be set. It
// does not show their values: a misspelt name may hold a secret.
func unknown(environ []string, settings []setting, constants bool) (problems []error) {
	for _, entry := range environ {
		variable, _, _ := strings.Cut(entry, "=")
		if !strings.HasPrefix(variable, prefix) {
			continue
		}
		switch i := slices.IndexFunc(settings, func(s setting) bool { return s.variable() == variable }); {
		case i < 0 && removed[variable] != "":
			problems = append(problems, fmt.Errorf("%s is no setting any more: %s", variable, removed[variable]))
		case i < 0:
			problems = append(problems, fmt.Errorf("%s is no setting: the nearest is %s", variable, nearest(settable(settings, constants), variable)))
		case settings[i].constant && !constants:
			problems = append(problems, fmt.Errorf("%s is no setting: %s is always %s; remove the variable", variable, settings[i].name, settings[i].def))
		}
	}
	return problems
}

// Require checks that the named settings, which have no default, are set. A function calls it
// with the settings that it needs. The error joins one problem for each setting that is not
// set or does not exist.
func (c Config) Require(names ...string) error {
	var problems []error
	settings := c.settings()
	for _, name := range names {
		i := slices.IndexFunc(settings, func(s setting) bool { return s.name == name })
		switch {
		case i < 0:
			problems = append(problems, fmt.Errorf("%s is required, but there is no such setting", name))
		case settings[i].def == "" && reflect.ValueOf(settings[i].field.value()).IsZero():
			problems = append(problems, settings[i].missing())
		}
	}
	return errors.Join(problems...)
}

// Difference is a setting that has another value than its default, or that has none.
type Difference struct {
	Name     string `json:"name"`
	Variable string `json:"variable"`
	Value    string `json:"value"`   // "" of a secret
	Default  string `json:"default"` // "": none
	Secret   bool   `json:"secret"`
}

// Differences lists the settings that differ from their defaults, in the order of docs/settings.md. It
// shows no secret, and of lists of URLs their names only.
func (c Config) Differences() (all []Difference) {
	var none Config
	defaults := none.settings()
	for i, s := range c.settings() {
		_ = defaults[i].load("") // fails for a required setting, which has no default
		if reflect.DeepEqual(s.field.value(), defaults[i].field.value()) {
			continue
		}
		d := Difference{Name: s.name, Variable: s.variable(), Default: s.def, Secret: s.field.secret}
		if !d.Secret {
			d.Value = s.field.show()
		}
		all = append(all, d)
	}
	return all
}

// Help lists every setting as plain text: the variable, the default, its meaning and its
// values.
func Help() string {
	var b strings.Builder
	for _, s := range settable(new(Config).settings(), false) {
		fmt.Fprintf(&b, "%s (%s)\n", s.variable(), s.ifNotSet())
		fmt.Fprintf(&b, "    %s: %s\n    %s\n", s.name, s.meaning, s.field.want)
	}
	return b.String()
}

// ifNotSet is the value in force if the setting is not given.
func (s setting) ifNotSet() string {
	switch {
	case s.required:
		return "required"
	case s.def == "":
		return "no default"
	default:
		return "default " + s.def
	}
}
