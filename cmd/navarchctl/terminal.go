package main

import (
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"navarch.io/navarch/cmd/navarchctl/progress"
	"navarch.io/navarch/store/printable"
)

// guardStderr makes a command and its subcommands escape control characters in all texts for standard error. If
// standard error is a terminal that can erase a line, the commands also report their progress there. Texts on standard
// output stay unchanged here, because other programs read them. Functions that print for people escape their texts
// themselves (show.Printable).
func guardStderr(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		guardStderr(sub)
	}
	run := cmd.RunE
	if run == nil {
		return
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		f, is := cmd.ErrOrStderr().(*os.File)
		cmd.SetErr(printable.Writer(cmd.ErrOrStderr()))
		if !is || os.Getenv("TERM") == "dumb" || !term.IsTerminal(int(f.Fd())) {
			return run(cmd, args)
		}
		ctx, out, errs, stop := progress.Start(cmd.Context(), f, cmd.OutOrStdout(), cmd.ErrOrStderr())
		defer stop()
		cmd.SetContext(ctx)
		cmd.SetOut(out)
		cmd.SetErr(errs)
		return run(cmd, args)
	}
}
