package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// option adds a flag, or a rule about flags, to a command.
type option func(c *cobra.Command)

// flag adds a flag whose value goes to a variable. The variable has the default. The choices complete the value.
func flag(to any, name, usage string, choices ...string) option {
	return func(c *cobra.Command) {
		flags := c.Flags()
		switch p := to.(type) {
		case *string:
			flags.StringVar(p, name, *p, usage)
		case *bool:
			flags.BoolVar(p, name, *p, usage)
		case *int:
			flags.IntVar(p, name, *p, usage)
		case *int64:
			flags.Int64Var(p, name, *p, usage)
		case *uint64:
			flags.Uint64Var(p, name, *p, usage)
		case *time.Duration:
			flags.DurationVar(p, name, *p, usage)
		case *[]string:
			flags.StringArrayVar(p, name, *p, usage)
		case *map[string]string:
			flags.StringToStringVar(p, name, *p, usage)
		case *byNonce:
			flags.Var(p, name, usage)
		default:
			panic(fmt.Sprintf("--%s: no flag has a %T", name, to))
		}
		if choices != nil {
			mustFind(c.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(choices, cobra.ShellCompDirectiveNoFileComp)))
		}
	}
}

// required is [flag] for a flag that must be given.
func required(to any, name, usage string, choices ...string) option {
	return func(c *cobra.Command) {
		flag(to, name, usage, choices...)(c)
		mustFind(c.MarkFlagRequired(name))
	}
}

// mustFind panics if a rule is about a flag that the command does not have. Each test of the command finds such a defect.
func mustFind(err error) {
	if err != nil {
		panic(err)
	}
}

// given is the value of a flag; nil: the flag was not given.
func given[T any](a *app, flag string, value T) *T {
	if !a.hasFlag(flag) {
		return nil
	}
	return &value
}

// reason adds the flag of an act that is kept on record.
func (a *app) reason() option { return required(&a.why, "reason", "why: kept with your name") }

// limited adds the flag of a list.
func (a *app) limited() option {
	return func(c *cobra.Command) {
		a.limit = 100
		flag(&a.limit, "limit", "the most `rows` to print; 0: all")(c)
		c.PreRunE = func(*cobra.Command, []string) error {
			if a.limit < 0 {
				return usagef("--limit %d: want a number of rows, or 0 for all", a.limit)
			}
			return nil
		}
	}
}

// lastArgument completes the last argument by its choices.
func lastArgument(choices ...string) option {
	return func(c *cobra.Command) {
		before := strings.Count(c.Use, " ") - 1
		c.ValidArgsFunction = func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) != before {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return choices, cobra.ShellCompDirectiveNoFileComp
		}
	}
}
