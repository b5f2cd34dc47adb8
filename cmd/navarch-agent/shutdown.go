package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"time"
)

const (
	defaultWait = 5 * time.Second
	drainPoll   = 250 * time.Millisecond
)

// shutdown is how Envoy is stopped, by the settings of stock agents.
type shutdown struct {
	// wait is how long it drains: callers learn only after a while that this endpoint goes, and still come.
	wait time.Duration
	// whenIdle (EXIT_ON_ZERO_ACTIVE_CONNECTIONS) waits for the last connection instead, however long that takes: who sent
	// SIGTERM decides how long. It begins to look after least (MINIMUM_DRAIN_DURATION).
	whenIdle bool
	least    time.Duration
}

// complete fills what the command line left open.
func (f *shutdown) complete(id *identity) error {
	if f.wait == 0 {
		f.wait = firstDuration(id.proxy.GetTerminationDrainDuration().AsDuration(), defaultWait)
		if v := id.lookup("TERMINATION_DRAIN_DURATION_SECONDS"); v != "" {
			seconds, err := strconv.ParseUint(v, 10, 31)
			if err != nil {
				return fmt.Errorf("TERMINATION_DRAIN_DURATION_SECONDS=%q: want a number of seconds", v)
			}
			f.wait = time.Duration(seconds) * time.Second
		}
	}
	f.least = defaultWait
	if v := id.lookup("MINIMUM_DRAIN_DURATION"); v != "" {
		var err error
		if f.least, err = time.ParseDuration(v); err != nil || f.least < 0 {
			return fmt.Errorf("MINIMUM_DRAIN_DURATION=%q: want a duration such as 5s", v)
		}
	}
	if v := id.lookup("EXIT_ON_ZERO_ACTIVE_CONNECTIONS"); v != "" {
		var err error
		if f.whenIdle, err = strconv.ParseBool(v); err != nil {
			return fmt.Errorf("EXIT_ON_ZERO_ACTIVE_CONNECTIONS=%q: want true or false", v)
		}
	}
	if f.wait < 0 {
		return errors.New("--termination-drain-duration cannot be negative")
	}
	return nil
}

// drainListeners asks the inbound listeners to send their clients away while they still serve. Outbound listeners stay:
// the application may need them for its own goodbye.
func (a *admin) drainListeners(ctx context.Context) error {
	code, body, err := a.do(ctx, http.MethodPost, "/drain_listeners?inboundonly&graceful")
	if err == nil && code != http.StatusOK {
		err = fmt.Errorf("status %d: %.200s", code, body)
	}
	return err
}

// drain returns when Envoy may be stopped, at the latest when ctx ends.
func (a *admin) drain(ctx context.Context, f shutdown, log *slog.Logger) {
	if err := a.drainListeners(ctx); err != nil {
		log.Warn("cannot drain Envoy, it is stopped at once", "error", err)
		return
	}
	if !f.whenIdle {
		log.Info("draining", "for", f.wait)
		pause(ctx, f.wait)
		log.Info("drained for the whole time allowed")
		return
	}
	log.Info("draining until no connection is left", "at least", f.least)
	pause(ctx, f.least)
	for ctx.Err() == nil {
		n, err := a.active(ctx)
		switch {
		case err != nil && ctx.Err() == nil:
			log.Warn("cannot read how many connections Envoy has; it is stopped", "error", err)
			return
		case err == nil && n == 0:
			log.Info("drained, no connection is left")
			return
		}
		pause(ctx, drainPoll)
	}
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
