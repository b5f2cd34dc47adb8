// Package wire has the common parts of the start of each command: signals, loggers, memory limits, and flags that the
// environment may set.
//
// Owns: nothing. Reads: the environment, signals. Never: depends on which command runs.
package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"navarch.io/navarch/store/obs"
	"navarch.io/navarch/store/printable"
)

// dumpableEnv is the environment variable whose value true turns off the protection of this process's memory
// (undumpable). Profilers and debuggers of the same user may then read the memory, and the kernel may write core dumps.
const dumpableEnv = "NAVARCH_DUMPABLE"

// Main runs cmd. It returns after success, and exits the process after an error. SIGINT and SIGTERM end the command's
// context; a second such signal kills the process at once. Main prints the command's error to standard error, with
// control characters escaped except line ends and tabs. The exit code is the result of the method ExitCode if the error
// or an error that it wraps has this method, and otherwise 1.
//
// On Linux, other processes of the same user cannot read the process's memory, and neither it nor its children write
// core dumps. If this protection fails, Main exits with the error, without running cmd. NAVARCH_DUMPABLE=true turns off
// the protection.
func Main(cmd *cobra.Command) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	var err error
	if os.Getenv(dumpableEnv) != "true" {
		err = undumpable()
	}
	if err == nil {
		err = cmd.ExecuteContext(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, cmd.Name()+":", printable.Lines(err.Error()))
		var exit interface{ ExitCode() int }
		if errors.As(err, &exit) {
			os.Exit(exit.ExitCode())
		}
		os.Exit(1)
	}
}

// Logger returns a logger that writes records of level and above to w, in the format "text" or "json". level has the
// form of obs.Level. A scope is a named group of log lines. If the argument level states levels for scopes other than
// "default" and "all", Logger logs a warning. The error names the level or format that does not exist. With an error
// the logger is nil.
func Logger(w io.Writer, level, format string) (*slog.Logger, error) {
	l, scopes, err := obs.Level(level)
	if err != nil {
		return nil, err
	}
	opts := &slog.HandlerOptions{Level: l}
	var log *slog.Logger
	switch format {
	case "text":
		log = slog.New(slog.NewTextHandler(w, opts))
	case "json":
		log = slog.New(slog.NewJSONHandler(w, opts))
	default:
		return nil, fmt.Errorf("log format %q: want text or json", format)
	}
	warnUnknown(log, "all log lines have one level: the levels of these scopes have no effect", scopes)
	return log, nil
}

// ScopedLogger returns a logger that writes text to w, and the levels of its scopes, which may change later. level has
// the form of obs.NewLevels. A scope is a named group of log lines. If the argument level states levels for unknown
// scopes, ScopedLogger logs a warning. The error names the level that does not exist. With an error the other results
// are nil.
func ScopedLogger(w io.Writer, level string) (*slog.Logger, *obs.Levels, error) {
	levels, unknown, err := obs.NewLevels(level)
	if err != nil {
		return nil, nil, err
	}
	log := slog.New(levels.Handler(slog.NewTextHandler(w, nil)))
	warnUnknown(log, "log lines do not have these scopes: their levels have no effect", unknown)
	return log, levels, nil
}

func warnUnknown(log *slog.Logger, message string, scopes []string) {
	if len(scopes) > 0 {
		log.Warn(message, "scopes", strings.Join(scopes, ","))
	}
}

// FromEnv sets flags from the environment if they were not set before, for example by the command line. names maps the
// name of each flag, without dashes, to its variable. Blanks around values are removed, and an empty variable counts as
// unset. The error joins the errors of all variables whose flag does not exist or refuses the value. The other flags
// are set.
func FromEnv(flags *pflag.FlagSet, getenv func(string) string, names map[string]string) error {
	var errs []error
	for flag, name := range names {
		f := flags.Lookup(flag)
		if f == nil {
			errs = append(errs, fmt.Errorf("%s: no flag --%s", name, flag))
			continue
		}
		v := strings.TrimSpace(getenv(name))
		if f.Changed || v == "" {
			continue
		}
		if err := flags.Set(flag, v); err != nil {
			errs = append(errs, fmt.Errorf("environment %s=%q: %w", name, v, err))
		}
	}
	return errors.Join(errs...)
}
