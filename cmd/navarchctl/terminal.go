package main

import (
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"navarch.io/navarch/cmd/navarchctl/progress"
)

// reportProgress makes a command and its subcommands report their progress on standard error. It has no effect unless
// standard error is a terminal that can erase a line.
func reportProgress(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		reportProgress(sub)
	}
	run := cmd.RunE
	if run == nil {
		return
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		f, is := cmd.ErrOrStderr().(*os.File)
		if !is || os.Getenv("TERM") == "dumb" || !term.IsTerminal(int(f.Fd())) {
			return run(cmd, args)
		}
		ctx, out, errs, stop := progress.Start(cmd.Context(), f, cmd.OutOrStdout(), f)
		defer stop()
		cmd.SetContext(ctx)
		cmd.SetOut(out)
		cmd.SetErr(errs)
		return run(cmd, args)
	}
}
