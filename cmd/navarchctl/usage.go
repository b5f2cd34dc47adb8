package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// mistyped changes how a command and all its subcommands handle mistakes on the command line. A command that only
// groups other commands refuses an unknown subcommand. (By default, cobra prints the help text and exits with code 0.)
// Errors about flags and about the number of arguments end with the command's usage line, and with the command line for
// its help.
func mistyped(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		mistyped(sub)
	}
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return fmt.Errorf("%w%s; %s", err, similarFlag(cmd, err), usageOf(cmd))
	})
	if !cmd.Runnable() && cmd.HasParent() {
		cmd.Args, cmd.RunE = unknownSubcommand, func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		cmd.DisableFlagsInUseLine = true
		return
	}
	if accepts := cmd.Args; accepts != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			if err := accepts(cmd, args); err != nil {
				return fmt.Errorf("%w; %s", err, usageOf(cmd))
			}
			return nil
		}
	}
}

// usageOf returns a text with the usage line of a command, and with the command line that prints its help.
func usageOf(cmd *cobra.Command) string {
	return fmt.Sprintf("usage: %s (%s --help)", cmd.UseLine(), cmd.CommandPath())
}

// unknownSubcommand refuses arguments of a command that only groups others. The error suggests subcommands with a
// similar name.
func unknownSubcommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	text := fmt.Sprintf("unknown command %q for %q", args[0], cmd.CommandPath())
	if cmd.SuggestionsMinimumDistance <= 0 {
		cmd.SuggestionsMinimumDistance = suggestionDistance
	}
	if similar := cmd.SuggestionsFor(args[0]); len(similar) > 0 { // SuggestionsFor compares aliases, too
		return fmt.Errorf("%s; did you mean %s?", text, strings.Join(similar, " or "))
	}
	var names []string
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			names = append(names, sub.Name())
		}
	}
	return fmt.Errorf("%s; its commands are %s", text, strings.Join(names, ", "))
}

// suggestionDistance is the maximum edit distance between a typed word and a suggested name. It is cobra's default.
const suggestionDistance = 2

// similarTo returns the names that are similar to a word. It compares like cobra's suggestions for subcommands.
func similarTo(names []string, word string) []string {
	cmd := &cobra.Command{SuggestionsMinimumDistance: suggestionDistance}
	for _, name := range names {
		cmd.AddCommand(&cobra.Command{Use: name, Run: func(*cobra.Command, []string) {}})
	}
	return cmd.SuggestionsFor(word)
}

// similarFlag returns a text with the flags that are similar to the unknown flag of an error. The text is empty for
// other errors, and without a similar flag.
func similarFlag(cmd *cobra.Command, err error) string {
	_, word, unknown := strings.Cut(err.Error(), "unknown flag: --")
	if !unknown {
		return ""
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	similar := similarTo(names, word)
	if len(similar) == 0 {
		return ""
	}
	return "; did you mean --" + strings.Join(similar, " or --") + "?"
}
