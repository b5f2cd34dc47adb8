package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"navarch.io/navarch/cmd/internal/web"
	"navarch.io/navarch/cmd/navarchd/controlz"
	"navarch.io/navarch/cmd/navarchd/debug"
	"navarch.io/navarch/store/loop"
	"navarch.io/navarch/store/obs"
)

// run runs navarchd until ctx ends or a task fails.
func run(ctx context.Context, c *config, log *slog.Logger) error {
	err := within(ctx, c.shutdown, func() error { return serveAll(ctx, c, log) })
	if err == nil {
		log.Info("navarchd stopped")
	}
	return err
}

// within runs f and returns its error. After ctx has ended, within waits for f no longer than the duration grace. If f
// still runs after this time, within returns an error of its own.
func within(ctx context.Context, grace time.Duration, f func() error) error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	case <-timer.C:
		return fmt.Errorf("not stopped within %v (--shutdown-duration): giving up", grace)
	}
}

// serveAll opens the store and runs the tasks of all roles. When the caller's context, the parameter asked, ends, this
// process first hands its work over to other processes. Then it ends its tasks.
func serveAll(asked context.Context, c *config, log *slog.Logger) (err error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(asked))
	defer cancel()
	began := time.Now()
	log.Info("navarchd starts", obs.KeyVersion, obs.Version, obs.KeyName,
		c.processName(), obs.KeyRoles, strings.Join(c.roles, ","), obs.KeyMesh, c.mesh, obs.KeyStore, c.storeNamed())
	c.env.warnUnread(os.Environ(), log)
	store, err := openStore(c, obs.Scoped(log, obs.ScopeEtcd))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.closed()) }()
	telemetry, err := newTelemetry(ctx, c, log)
	if err != nil {
		return err
	}
	all, err := assemble(c, store, telemetry, log)
	if err != nil {
		return err
	}
	stop := loop.Task{Name: "stop", Run: func(running context.Context) error {
		select {
		case <-asked.Done():
			log.Info("navarchd is asked to stop", obs.KeyAtMost, c.shutdown)
			all.depart(running)
			cancel()
		case <-running.Done():
		}
		return running.Err()
	}}
	return loop.Run(ctx, slices.Concat(store.server, all.tasks, []loop.Task{announceReady(began, all.missing, log), stop})...)
}

// pageLimits are the limits of the HTTP addresses. Most paths have a smaller limit on the body of a request (bounded).
var pageLimits = web.Limits{Body: debug.MaxPlanBody}

// listenHTTP opens the HTTP addresses, and returns the tasks that serve them. The handler asked serves /debug and
// /api/v1, unless the environment disables them. The functions ready and notes provide the content of /ready. Errors
// name flags.
func listenHTTP(c *config, asked http.Handler, ready func() error, notes func() []string, log *slog.Logger) ([]loop.Task, error) {
	pages, err := net.Listen("tcp", c.httpAddr)
	if err != nil {
		return nil, fmt.Errorf("--http-addr: %w", err)
	}
	metrics, err := net.Listen("tcp", c.monitoringAddr)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("--monitoring-addr: %w", err), pages.Close())
	}
	log.Info("listening", obs.KeyListener, "http", obs.KeyAddress, pages.Addr().String())
	log.Info("listening", obs.KeyListener, "monitoring", obs.KeyAddress, metrics.Addr().String())
	clients := obs.NewSampled(log)
	if !c.env.debugOnHTTP {
		asked = nil
	}
	return []loop.Task{
		{Name: "http", Run: func(ctx context.Context) error {
			return web.Serve(ctx, pages, public(ready, notes, asked), pageLimits, clients)
		}},
		{Name: "monitoring", Run: func(ctx context.Context) error {
			return web.Serve(ctx, metrics, monitoring(asked), pageLimits, clients)
		}},
	}, nil
}

// listenControlZ opens the address for changing log levels, and returns the task that serves it. It returns nil if the
// address is not set or cannot be opened. As with istiod, a failure to open the address is only logged.
func listenControlZ(c *config, log *slog.Logger) []loop.Task {
	if c.ctrlzAddr == "" {
		return nil
	}
	l, err := net.Listen("tcp", c.ctrlzAddr)
	if err != nil {
		log.Warn("the levels of log lines cannot be changed while this process runs: --ctrlz-addr cannot be opened",
			obs.KeyAddress, c.ctrlzAddr, obs.KeyError, err)
		return nil
	}
	return []loop.Task{{Name: "log levels", Run: func(ctx context.Context) error {
		return web.Serve(ctx, l, controlz.Handler(c.levels, log), web.Limits{Connections: 16}, obs.NewSampled(log))
	}}}
}

// processName returns this process's name in the election, in the fleet and on debug pages.
func (c *config) processName() string {
	if c.env.podName != "" {
		return c.env.podName
	}
	host, err := os.Hostname()
	if err != nil {
		host = "navarchd"
	}
	return fmt.Sprintf("%s-%d", host, os.Getpid())
}
