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

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"navarch.io/navarch/ca/denials"
	"navarch.io/navarch/ca/keyring"
	"navarch.io/navarch/ca/vault"
	"navarch.io/navarch/cmd/internal/web"
	"navarch.io/navarch/cmd/navarchd/callers"
	"navarch.io/navarch/cmd/navarchd/debug"
	"navarch.io/navarch/cmd/navarchd/debug/authz"
	"navarch.io/navarch/push/access"
	"navarch.io/navarch/push/budget"
	"navarch.io/navarch/push/fanout"
	"navarch.io/navarch/push/identities"
	"navarch.io/navarch/push/join"
	"navarch.io/navarch/push/plan"
	"navarch.io/navarch/push/pool"
	"navarch.io/navarch/push/problems"
	"navarch.io/navarch/push/quarantine"
	"navarch.io/navarch/push/quarantine/share"
	"navarch.io/navarch/push/serve"
	"navarch.io/navarch/push/trust"
	"navarch.io/navarch/shard/fleet"
	"navarch.io/navarch/store/crash"
	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/loop"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/obs"
	"navarch.io/navarch/store/tenants"
)

// process is everything that one navarchd runs; what its roles do not need is nil.
type process struct {
	config   *config
	log      *slog.Logger
	store    *kv.Store
	ingester *ingester
	mirror   *mirror.Mirror
	pool     *pool.Pool
	planner  *plan.Loop
	server   *serve.Server
	ca       *authority // nil: it does not follow the keyring
	callers  *callers.Callers
	vault    *vault.Vault
	trust    *trust.Trust
	tenants  *tenants.Tenants
	fleet    *fleet.Fleet
	tracer   *obs.Tracer // nil: nothing is traced
	health   *health
	commits  commits
	written  written
	changes  *changeLog
	crashes  *crash.Log
	pages    *debug.Pages
	space    space
	limiters []listenerLimits
}

// run is navarchd: it returns when the context ends, or when a loop cannot go on.
func run(ctx context.Context, c *config, log *slog.Logger) error {
	err := within(ctx, c.shutdown, func() error { return serveAll(ctx, c, log) })
	if err == nil {
		log.Info("navarchd stopped")
	}
	return err
}

// within runs f, and waits for it no longer than grace once the context has ended.
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

// serveAll opens the store and runs the loops of all roles, until asked ends and this process has taken its leave.
func serveAll(asked context.Context, c *config, log *slog.Logger) (err error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(asked))
	defer cancel()
	began := time.Now()
	log.Info("navarchd starts", obs.KeyVersion, obs.Version, obs.KeyName, c.processName(), obs.KeyRoles, strings.Join(c.roles, ","), obs.KeyMesh, c.mesh, obs.KeyStore, c.storeNamed())
	store, err := openStore(c, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	p := &process{config: c, log: log, store: store, tenants: tenants.New(), changes: newChangeLog(log), crashes: crash.New(log), trust: trust.New(c.dataDir)}
	p.health = newHealth(p.ready)
	p.pages = debug.New(debug.Pages{ID: c.processName(), Rules: &authz.Authorizer{Open: !c.env.debugAuth, Hosts: c.debugNames(), System: c.env.podNamespace,
		Domain: c.trustDomain, Tenant: p.tenants.Of}, Store: p.space.problems})
	p.space.size, p.space.quota, p.space.log = store.Size, c.etcdQuota, log
	if p.tracer, err = newTracer(ctx, c, log); err != nil {
		return err
	}
	tasks := []loop.Task{{Name: "etcd", Run: store.Run},
		{Name: "tenants", Run: func(ctx context.Context) error { return p.tenants.Follow(ctx, store, log) }}}
	if p.tracer != nil {
		tasks = append(tasks, tracing(p.tracer, store))
	}
	roles, err := p.roles()
	if err != nil {
		return err
	}
	addresses, err := p.addresses()
	if err != nil {
		return err
	}
	pages, err := p.listenHTTP()
	if err != nil {
		return err
	}
	tasks = slices.Concat(tasks, roles, addresses, pages)
	tasks = append(tasks, loop.Task{Name: "gauges", Run: p.gauges}, loop.Task{Name: "health", Run: p.health.run}, loop.Task{Name: "space", Run: p.space.run}, loop.Task{Name: "changes", Run: p.changes.run},
		p.announceReady(began), loop.Task{Name: "stop", Run: func(running context.Context) error {
			select {
			case <-asked.Done():
				p.log.Info("navarchd is asked to stop", obs.KeyAtMost, p.config.shutdown)
				p.leave(running)
				cancel()
			case <-running.Done():
			}
			return running.Err()
		}})
	return loop.Run(ctx, tasks...)
}

// roles makes what the roles need, and returns their loops.
func (p *process) roles() (tasks []loop.Task, err error) {
	c, log, store := p.config, p.log, p.store
	sealer, err := newSealer(c, store)
	if err != nil {
		return nil, err
	}
	if p.vault, err = newVault(c, sealer, store); err != nil {
		return nil, err
	}
	if c.has(roleIngest) {
		if p.ingester, err = newIngester(c, store, sealerOf(p.vault), p.read, log, p.written.hook(p.tracer, p.changes)); err != nil {
			return nil, err
		}
		p.ingester.notify = func(ctx context.Context, epoch kv.Epoch) { p.tenants.Lead(ctx, store, epoch, p.ingester.loop, log) }
		p.pages.Objects = &debug.Objects{Sources: p.ingester.sourceProblems, Loop: p.ingester.loop.Problems, Found: p.ingester.found,
			Held: p.ingester.heldProblem, Commits: p.written.list}
		tasks = append(append(tasks, p.ingester.tasks()...), loop.Task{Name: "problems", Run: p.logProblems})
	}
	if c.hasKeyring() {
		if p.ca, err = newAuthority(c, store, sealer, p.snapshot, log); err != nil {
			return nil, err
		}
		p.pages.Rules.Revoked = func(id spiffeid.ID) bool { return p.ca.ring.State().RevokedIdentity(id) }
		p.callers, tasks = p.ca.callers, append(tasks, p.ca.tasks()...)
	} else if p.callers, err = callers.New(c.callersConfig(p.snapshot, nil, log)); err != nil {
		return nil, err
	}
	p.pages.Rules.Tokens = p.callers.Tokens()
	tasks = append(tasks, p.callers.Tasks()...)
	if c.has(roleXDS) {
		replica, err := p.replica()
		if err != nil {
			return nil, err
		}
		tasks = append(tasks, replica...)
	}
	if p.ca != nil {
		tasks = append(tasks, loop.Task{Name: "trust", Run: p.followKeyring})
	}
	return append(append(tasks, p.denials()...), loop.Task{Name: "credentials", Run: p.expire}), nil
}

// followKeyring has agents, streams and root-cert.pem follow the keyring.
func (p *process) followKeyring(ctx context.Context) error {
	if p.server == nil {
		return p.trust.Run(ctx, p.ca.ring, nil)
	}
	return p.trust.Run(ctx, p.ca.ring, p.server)
}

// denials have the ingester know which identities are revoked; nil where there is no ingester, or nobody to ask.
func (p *process) denials() []loop.Task {
	if p.ingester == nil {
		return nil
	}
	p.ingester.loop.Emit(denials.Unknown())
	if p.ca == nil {
		p.log.Warn("proxies are not told to refuse identities that the CA revokes while this process leads: it cannot read the keyring (--kek)")
		return nil
	}
	d := denials.Source{Denied: func(now time.Time) ([]keyring.Denial, bool) { return p.ca.ring.State().Denied(now) }, Changed: p.ca.ring.Changed, Emit: p.ingester.loop.Emit, Log: p.log}
	return []loop.Task{{Name: "denials", Run: d.Run}}
}

// expire ends the streams whose credentials have ended.
func (p *process) expire(ctx context.Context) error {
	return p.callers.Expiry().Run(ctx, p.issues, func() {
		if p.server != nil {
			p.server.Recheck()
		}
	})
}

// issues says whether certificates can be had, as far as this process knows: the keyring signs, and etcd answers, which has
// the journal.
func (p *process) issues() bool {
	return p.ca != nil && p.ca.ring.State().Active != nil && p.mirror != nil && p.mirror.Status().Away == nil
}

// leave hands over to the other replicas while everything still runs.
func (p *process) leave(ctx context.Context) {
	if p.fleet != nil {
		p.fleet.Depart(ctx)
	}
}

// snapshot is what this process knows of the configuration; nil where it does not follow it, or has not read it yet.
func (p *process) snapshot() *mirror.Snapshot {
	if p.mirror == nil {
		return nil
	}
	return p.mirror.Current()
}

// read is how far this process has read the chain of heads; the zero Place where it does not follow the configuration.
func (p *process) read() kv.Place {
	if p.mirror == nil {
		return kv.Place{}
	}
	return p.mirror.Status().Place
}

// replica is the role xds: mirror, plan, serve.
func (p *process) replica() ([]loop.Task, error) {
	var err error
	if p.mirror, err = newMirror(p.config, p.store, p.log, &p.commits, p.changes, p.tracer); err != nil {
		return nil, err
	}
	p.pool = &pool.Pool{}
	p.changes.serves(p.pool, func() bool { return p.server.Waiting(fanout.Endpoints)+p.server.Waiting(fanout.Config) > 0 })
	p.planner, err = plan.NewLoop(plan.Config{
		Source: p.mirror, Pool: p.pool, Opener: openerOf(p.vault), Logger: p.log, Crashes: p.crashes, CheckEvery: time.Minute,
		Authoriser: access.Snapshots{Current: p.mirror.Current}, Access: access.Settings{Away: p.config.rightsAway},
		DebounceAfter: p.config.env.debounce, DebounceMax: p.config.env.debounceMax, DebounceEndpoints: p.config.env.edsDebounce,
		Planned: tracePlans(p.tracer, p.changes),
	})
	if err != nil {
		return nil, err
	}
	if p.fleet, err = fleet.New(p.config.fleetConfig(p.store, p.mirror, p.log)); err != nil {
		return nil, err
	}
	names, err := nameTable()
	if err != nil {
		return nil, err
	}
	shared := share.New(p.config.processName(), p.log)
	withheld := quarantine.New(quarantine.Config{Settings: quarantine.Settings{Pause: p.config.retryAfter}, Log: p.log, Share: shared.Add})
	found := problems.New(problems.Config{Name: p.config.processName(), Find: p.planner.Problems, Revision: p.planner.Revision, Log: p.log})
	shown := &debug.Proxies{Planner: p.planner, Mirror: p.mirror, Cluster: p.config.cluster, Fleet: p.fleet.Page}
	p.pages.Proxies = shown
	clients := obs.NewSampled(p.log)
	p.server = serve.New(serve.Config{
		Quarantine:   withheld,
		Authenticate: p.callers.Authenticate,
		Refused:      p.callers.Refused,
		MayHaveKeys:  p.callers.MayHaveKeys,
		AgentTypes:   append(p.trust.AgentTypes(), p.fleet.AgentType(), names),
		Answers:      p.pages.Answers(),
		Identifier:   debug.Identifier(p.config.processName()),
		Store:        func() string { return join.StoreName(p.mirror.Status().Seen.Cluster) },
		AckDeadline:  p.config.ackDeadline,
		Callers:      budget.New(budget.Config{Workloads: identities.Workloads(p.mirror.Current)}),
		Planner: join.Planner{Plans: p.planner, Mirror: p.mirror, Fleet: p.fleet, Clients: clients, Checked: p.config.env.identityCheck, TrustDomain: p.config.trustDomain,
			Scopes: &join.Scopes{Cluster: p.config.cluster, Domain: "svc." + p.config.domain, Snapshot: p.mirror.Current, Now: time.Now, Clients: clients}},
		Budget:  fanout.Budget{Streams: p.config.env.pushThrottle},
		Hooks:   hooks(&p.commits, p.changes, p.tracer),
		Blame:   shown.Blame,
		Log:     p.log,
		Crashes: p.crashes,
	})
	p.fleet.Serves(p.server)
	shown.Server = p.server
	return append([]loop.Task{
		{Name: "mirror", Run: p.mirror.Run},
		{Name: "plan", Run: p.planner.Run},
		{Name: "push", Run: p.server.Run},
		{Name: "memory", Run: p.giveBack},
		{Name: "quarantine", Run: func(ctx context.Context) error { return shared.Run(ctx, p.store, withheld) }},
		{Name: "problems", Run: func(ctx context.Context) error { return found.Run(ctx, p.store) }},
	}, p.fleet.Tasks(p.mirror, p.planner)...), nil
}

// fleetConfig is this replica among the others.
func (c *config) fleetConfig(store *kv.Store, m *mirror.Mirror, log *slog.Logger) fleet.Config {
	address, secure := c.advertised()
	return fleet.Config{Store: store, Name: c.processName(), Address: address, Secure: secure, Embedded: c.dataDir != "", Zone: c.zone,
		Revision: func() int64 { return m.Status().Revision }, Lease: c.replicaLease, Ramp: c.ramp, DrainAfter: c.drainAfter, Grace: c.shutdown,
		MostJoins: c.env.maxRequests, Contained: c.contained, Log: log}
}

// listenHTTP opens the HTTP addresses.
func (p *process) listenHTTP() ([]loop.Task, error) {
	pages, err := net.Listen("tcp", p.config.httpAddr)
	if err != nil {
		return nil, fmt.Errorf("--http-addr: %w", err)
	}
	metrics, err := net.Listen("tcp", p.config.monitoringAddr)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("--monitoring-addr: %w", err), pages.Close())
	}
	p.log.Info("listening", obs.KeyListener, "http", obs.KeyAddress, pages.Addr().String())
	p.log.Info("listening", obs.KeyListener, "monitoring", obs.KeyAddress, metrics.Addr().String())
	clients := obs.NewSampled(p.log)
	var debugPages http.Handler
	if p.config.env.debugOnHTTP {
		debugPages = p.pages.Handler()
	}
	return []loop.Task{
		{Name: "http", Run: func(ctx context.Context) error {
			return web.Serve(ctx, pages, public(p.ready, p.notes, debugPages), web.Limits{}, clients)
		}},
		{Name: "monitoring", Run: func(ctx context.Context) error { return web.Serve(ctx, metrics, monitoring(), web.Limits{}, clients) }},
	}, nil
}

// processName is how this process appears in the election and on debug pages.
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
