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

// shutdown contains the settings of Envoy's drain. Their environment variables are those of Istio's agents.
type shutdown struct {
	// wait is the duration of the drain. Envoy still serves during this time, because clients learn with a delay that
	// this endpoint ends.
	wait time.Duration
	// whenIdle (EXIT_ON_ZERO_ACTIVE_CONNECTIONS) makes the drain end with the last connection. The drain then ignores
	// the field wait and has no time limit. The sender of SIGTERM may kill the agent earlier. The field least
	// (MINIMUM_DRAIN_DURATION) is the time before connections are first counted.
	whenIdle bool
	least    time.Duration
	// gateway is set if the node is a router (see gatewayDrain). fullTime is set if EXIT_ON_ZERO_ACTIVE_CONNECTIONS of
	// a router is explicitly false. The router's drain then lasts for the whole duration in the field wait.
	gateway, fullTime bool
}

// complete sets the settings that the command line does not set. Their values come from the environment, the proxy's
// configuration or defaults. The error names the variable that cannot be parsed, or the flag with a negative duration.
func (f *shutdown) complete(id *identity) error {
	f.gateway = id.isRouter()
	if f.wait == 0 {
		standard := defaultWait
		if f.gateway {
			standard = gatewayWait
		}
		f.wait = firstDuration(id.proxy.GetTerminationDrainDuration().AsDuration(), standard)
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
		f.fullTime = f.gateway && !f.whenIdle
	}
	if f.wait < 0 {
		return errors.New("--termination-drain-duration cannot be negative")
	}
	if f.gateway {
		f.completeGateway(id.lookup("MINIMUM_DRAIN_DURATION"))
	}
	return nil
}

// drainListeners sends a POST request with a path from drainPath to Envoy's admin port. Listeners then close client
// connections gracefully, but still serve. Outbound listeners of a sidecar are not drained, because the application may
// need them while it ends. drainListeners returns an error if the admin port does not answer with status 200.
func (a *admin) drainListeners(ctx context.Context, path string) error {
	code, body, err := a.do(ctx, http.MethodPost, path)
	if err == nil && code != http.StatusOK {
		err = fmt.Errorf("status %d: %.200s", code, body)
	}
	return err
}

// drain drains the Envoy of a sidecar and returns when Envoy may be stopped, or when ctx ends.
func (a *admin) drain(ctx context.Context, f shutdown, log *slog.Logger) {
	if err := a.drainListeners(ctx, f.drainPath()); err != nil {
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
			log.Warn("cannot read the number of Envoy's connections: Envoy is stopped", "error", err)
			return
		case err == nil && n == 0:
			log.Info("drained, no connection is left")
			return
		}
		pause(ctx, drainPoll)
	}
}

// pause waits for d or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
