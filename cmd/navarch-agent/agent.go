package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	caagent "navarch.io/navarch/ca/agent"
	"navarch.io/navarch/cmd/navarch-agent/dns"
	"navarch.io/navarch/cmd/navarch-agent/status"
	"navarch.io/navarch/shard/relay"
	"navarch.io/navarch/store/durable"
	"navarch.io/navarch/store/loop"
	"navarch.io/navarch/store/obs"
	"navarch.io/navarch/store/socket"
)

// agent runs one Envoy and the services that Envoy or its Pod needs: the relay of xDS, certificates, DNS, the status
// ports and the debug page.
type agent struct {
	cfg      *options
	id       *identity
	log      *slog.Logger
	relay    *relay.Relay
	up       *upstream
	identity *caagent.Agent // nil with a plaintext control plane: there is no CA
	dns      *dns.Server    // nil: DNS of the Pod is not captured
	envoy    *supervisor
	admin    *admin
	status   *status.Server
	app      *status.Application // nil: the proxy's configuration has no readiness probe
	draining atomic.Bool
	// configured identifies the newest Envoy process that is known to have accepted its first configuration. It is the
	// value of envoyState.Starts after the start of that process; 0: no such process.
	configured atomic.Int64
	readiness  readinessCache
	warming    warming            // limits the wait for listeners and clusters that a gateway's Envoy warms or refused
	quit       context.CancelFunc // ends the agent as SIGTERM does
}

func (o *options) bootstrapFile() string { return filepath.Join(o.configPath, "envoy-rev.json") }

// newAgent validates the options, creates the socket folder and assembles the agent. It starts nothing. Errors: no
// Envoy program, no usable folder or address, or an invalid identity, DNS setting, status setting or probe.
func newAgent(o *options, id *identity, log *slog.Logger) (*agent, error) {
	path, err := exec.LookPath(o.envoyPath)
	if err != nil {
		return nil, fmt.Errorf("no Envoy to run (--envoy-path): %w", err)
	}
	shared, err := o.makeSockets()
	if err != nil {
		return nil, err
	}
	strangers := obs.NewSampled(log)
	up := &upstream{
		target: o.discovery, plaintext: o.plaintext, rootCert: o.rootCert, san: o.san, token: o.tokenFile, headers: id.headers,
	}
	if !o.plaintext {
		if up.identity, err = newIdentity(o, id, refusedAt(strangers, "SDS"), log); err != nil {
			return nil, err
		}
		id.claim()
	}
	if o.bootstrapPatches {
		id.claimBootstrap()
	}
	var own []relay.Subscription
	if up.identity != nil {
		own = append(own, followTrust(up.identity))
	}
	names, err := o.newDNS(id, strangers)
	if err != nil {
		return nil, err
	}
	if names != nil {
		own = append(own, followNames(names))
	}
	access := socket.Access{Group: shared, Refused: refusedAt(strangers, "XDS")}
	r, err := relay.New(relay.Config{
		Socket: o.socket(), Access: access, Target: o.discovery, Credentials: up.credentials, Metadata: up.metadata,
		Own: own, Follow: true, Log: log,
	})
	if err != nil {
		return nil, err
	}
	a := &agent{
		cfg: o, id: id, log: log, relay: r, up: up, identity: up.identity, dns: names, admin: newAdmin(o.adminAddr),
		envoy: &supervisor{path: path, args: o.envoyArgs(), out: os.Stderr, log: log},
	}
	if a.status, err = a.newStatus(log); err != nil {
		return nil, err
	}
	if probe := id.proxy.GetReadinessProbe(); probe != nil {
		if a.app, err = status.NewApplication(probe, a.ready); err != nil {
			return nil, fmt.Errorf("readinessProbe of the proxy's configuration: %w", err)
		}
	}
	return a, nil
}

// envoyArgs returns the arguments of the Envoy process.
func (o *options) envoyArgs() []string {
	args := []string{
		"-c", o.bootstrapFile(), "--disable-hot-restart", "--drain-strategy", "immediate",
		"--file-flush-interval-msec", "1000", // of access logs, as in Istio's agent; Envoy's own default is 10 s
		"--drain-time-s", strconv.Itoa(int(o.drain.Round(time.Second) / time.Second)), "-l", o.envoyLogLevel,
	}
	if o.envoyComponentLog != "" {
		args = append(args, "--component-log-level", o.envoyComponentLog)
	}
	if o.concurrency > 0 {
		args = append(args, "--concurrency", strconv.Itoa(o.concurrency))
	}
	return args
}

// Run writes the bootstrap and runs all tasks until ctx ends. After that it drains and stops Envoy, and stops the other
// tasks. Errors: the bootstrap cannot be made or written, a port cannot be bound, or a task fails. Run returns nil
// after a stop, and when Envoy exits by itself with code 0. Run may be called once.
func (a *agent) Run(ctx context.Context) error {
	ctx, a.quit = context.WithCancel(ctx)
	defer a.quit()
	if err := a.writeBootstrap(); err != nil {
		return err
	}
	// The services that Envoy uses run until Envoy has ended, even after the end of ctx. A draining Envoy may still
	// receive configuration.
	base, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	tasks, err := a.listen()
	if err != nil {
		return err
	}
	if a.identity != nil {
		tasks = append(tasks, loop.Task{Name: "identity", Run: a.identity.Run})
	}
	if a.app != nil {
		tasks = append(tasks, loop.Task{Name: "probe", Run: func(ctx context.Context) error { return a.app.Run(ctx, a.reportHealth) }})
	}
	tasks = append(tasks,
		loop.Task{Name: "relay", Run: a.relay.Run},
		loop.Task{Name: "signals", Run: a.forwardSignals},
		loop.Task{Name: "envoy", Run: func(inner context.Context) error {
			defer end()
			return a.runEnvoy(ctx, inner)
		}})
	a.log.Info("agent started", "node", a.id.node.Id, "control plane", a.cfg.discovery, "plaintext", a.cfg.plaintext)
	return loop.Run(base, tasks...)
}

// runEnvoy runs Envoy until the process exits by itself with code 0, or until the context `inner` ends. When the
// context `serving` ends, Envoy is drained first and then stopped.
func (a *agent) runEnvoy(serving, inner context.Context) error {
	ctx, stop := context.WithCancel(inner)
	defer stop()
	release := context.AfterFunc(serving, func() {
		a.draining.Store(true)
		a.drainEnvoy(ctx)
		stop()
	})
	defer release()
	if a.cfg.bootstrapPatches {
		a.patchBootstrap(serving)
	}
	return a.envoy.Run(ctx)
}

// writeBootstrap renders the bootstrap, creates the folder and writes the file. For a gateway it also writes the file
// by which the agent makes Envoy end idle connections (idlePressure).
func (a *agent) writeBootstrap() error {
	js, err := bootstrap(a.id, a.cfg.bootstrapAddresses())
	if err != nil {
		return err
	}
	if err := os.MkdirAll(a.cfg.configPath, 0o755); err != nil {
		return err
	}
	if file := a.cfg.idlePressure(); file != "" {
		if err := durable.ReplaceUnsynced(file, 0o644, []byte("0")); err != nil {
			return err
		}
	}
	return os.WriteFile(a.cfg.bootstrapFile(), js, 0o644)
}

// listen binds all ports before any task runs, so that a port in use fails the start. It returns the tasks that serve
// the ports. The error names the purpose and the address of the port.
func (a *agent) listen() ([]loop.Task, error) {
	var tasks []loop.Task
	clients := obs.NewSampled(a.log)
	for _, s := range []struct {
		name, addr string
		handler    http.Handler
	}{
		{"status", a.cfg.statusAddr, a.status.Health()}, {"statistics", a.cfg.statsAddr, a.status.Handler()},
		{"debug", a.cfg.debugAddr, a.debugHandler()},
	} {
		if s.addr == "" {
			continue
		}
		l, err := net.Listen("tcp", s.addr)
		if err != nil {
			return nil, fmt.Errorf("%s address: %w", s.name, err)
		}
		serve := func(ctx context.Context) error { return status.Serve(ctx, l, s.handler, clients) }
		tasks = append(tasks, loop.Task{Name: s.name, Run: serve})
	}
	if a.dns != nil {
		if err := a.dns.Listen(); err != nil {
			return nil, err
		}
		tasks = append(tasks, loop.Task{Name: "dns", Run: a.dns.Run})
	}
	return tasks, nil
}

// forwardSignals passes SIGUSR1, SIGUSR2 and SIGHUP on to Envoy until ctx ends. SIGUSR1 makes Envoy reopen its access
// logs.
func (a *agent) forwardSignals(ctx context.Context) error {
	ch := make(chan os.Signal, 4)
	signal.Notify(ch, syscall.SIGUSR1, syscall.SIGHUP, syscall.SIGUSR2)
	defer signal.Stop(ch)
	for {
		select {
		case <-ctx.Done():
			return nil
		case s := <-ch:
			a.envoy.Signal(s)
		}
	}
}
