// Package wire starts each of our commands: signals, the log, flags that the environment may set.
//
// Owns: nothing. Reads: the environment, signals. Never: depends on the command.
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
)

// dumpableEnv allows processes of the same user (profilers, debuggers) to read the memory of this one. It also allows
// the kernel to write core dumps, up to this process's own limit.
const dumpableEnv = "NAVARCH_DUMPABLE"

// Main runs cmd under a context that SIGINT and SIGTERM end; the second of these signals kills the process at once. It
// prints the command's error once and exits: 0 for success, 1 for failure, or the ExitCode of the error. Unless
// NAVARCH_DUMPABLE=true, it keeps other processes from reading its memory, and its children's memory from core dumps.
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
		fmt.Fprintln(os.Stderr, cmd.Name()+":", err)
		var exit interface{ ExitCode() int }
		if errors.As(err, &exit) {
			os.Exit(exit.ExitCode())
		}
		os.Exit(1)
	}
}

// Logger returns a logger that writes records of level (obs.Level) and above to w, as text or json. It warns about
// parts of the level that have no effect. The error names a level or format that does not exist.
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
	warnUnknown(log, "there is one level for all log lines: levels of other scopes than default have no effect", scopes)
	return log, nil
}

// ScopedLogger returns a logger that writes text to w, and the levels of its scopes, which may change while the process
// runs. It warns about scopes that do not exist. The error names a level that does not exist.
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

// FromEnv sets flags that were not given on the command line from the environment: names maps a flag to its variable.
// An empty variable counts as unset. The error names every variable whose value its flag refuses.
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
