package main

import (
	"context"
	"log/slog"
	"math"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"navarch.io/navarch/ca/attest/kube"
	"navarch.io/navarch/ca/vault"
	"navarch.io/navarch/cmd/navarchd/callers"
	"navarch.io/navarch/cmd/navarchd/debug"
	"navarch.io/navarch/cmd/navarchd/memory"
	"navarch.io/navarch/push/access"
	"navarch.io/navarch/push/acknowledged"
	"navarch.io/navarch/push/budget"
	"navarch.io/navarch/push/fanout"
	"navarch.io/navarch/push/identities"
	"navarch.io/navarch/push/join"
	"navarch.io/navarch/push/ledger"
	"navarch.io/navarch/push/machines"
	"navarch.io/navarch/push/plan"
	"navarch.io/navarch/push/pool"
	"navarch.io/navarch/push/problems"
	"navarch.io/navarch/push/quarantine"
	"navarch.io/navarch/push/quarantine/share"
	"navarch.io/navarch/push/serve"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/shard/fleet"
	"navarch.io/navarch/store/apiserver"
	"navarch.io/navarch/store/crash"
	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/loop"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/obs"
)

// replicaConfig configures role xds.
type replicaConfig struct {
	config    *config
	log       *slog.Logger
	store     *kv.Store
	mirror    *mirror.Mirror
	vault     *vault.Vault // opens private keys; nil: there is no key encryption key
	callers   *callers.Callers
	api       *apiserver.Client // of the config cluster; nil: no API server is configured
	clusters  *kube.Clusters    // API servers of other clusters; nil: no other cluster is followed
	agents    []serve.AgentType // resource types for agents; newServer adds further types
	answers   []serve.Answer    // responses for tools
	telemetry *telemetry
	crashes   *crash.Log
	tenantOf  func(namespace string) string
	kills     *memory.Kills
	sums      func() []byte // returns encoded sums about the replica's proxies, which the fleet publishes in etcd
}

// replica is role xds: it mirrors etcd, plans configuration, and serves it to proxies.
type replica struct {
	log      *slog.Logger
	store    *kv.Store
	mirror   *mirror.Mirror
	pool     *pool.Pool
	planner  *plan.Loop
	fleet    *fleet.Fleet
	server   *serve.Server
	shown    *debug.Proxies // serves the pages of /debug about proxies
	withheld *quarantine.Quarantine
	shared   *share.Loop
	found    *problems.Loop
	acks     *acknowledged.Loop
	// deliveries counts the acknowledgements of each plan.
	deliveries *ledger.Ledger
	more       part                                   // registration of machines; empty if it is disabled
	refused    atomic.Pointer[[]acknowledged.Refusal] // objects that proxies refused at the last check
}

// newReplica makes role xds. Errors name flags.
func newReplica(c replicaConfig) (*replica, error) {
	if off := c.config.env.loopsOff; len(off) > 0 {
		c.log.Warn("control loops do nothing in this process (NAVARCH_EXPERIMENT_OFF): for measurements only",
			obs.KeyName, strings.Join(off, ","))
	}
	r := &replica{log: c.log, store: c.store, mirror: c.mirror, pool: &pool.Pool{},
		deliveries: ledger.New(), shared: share.New(c.config.processName(), c.log)}
	reported(r.deliveries, c.tenantOf)
	var err error
	r.planner, err = plan.NewLoop(plan.Config{
		Source: c.mirror, Pool: r.pool, Cluster: c.config.cluster,
		Opener: openerOf(c.vault), Logger: c.log, Crashes: c.crashes, CheckEvery: time.Minute,
		Authoriser: authoriserOf(c.api, c.clusters, c.mirror.Current), Access: access.Settings{Away: c.config.rightsAway},
		DebounceAfter: c.config.env.debounce, DebounceMax: c.config.env.debounceMax, DebounceEndpoints: c.config.env.edsDebounce,
		Planned: r.planned(tracePlans(c.telemetry.tracer, c.telemetry.changes)), Publishing: r.publishing, Room: c.kills.Room(),
	})
	if err != nil {
		return nil, err
	}
	place := c.config.fleetConfig(c.store, c.mirror, c.log)
	place.Sums = c.sums
	if r.fleet, err = fleet.New(place); err != nil {
		return nil, err
	}
	r.more.add(part{tasks: []loop.Task{{Name: "kills for memory", Run: func(ctx context.Context) error {
		return c.kills.Run(ctx, func(kib int) { _ = r.planner.Resize(ctx, kib) }) // fails only at the end of the process
	}}}})
	r.withheld = quarantine.New(quarantine.Config{Settings: quarantine.Settings{Pause: c.config.retryAfter}, Log: c.log, Share: r.shared.Add})
	r.found = problems.New(problems.Config{Name: c.config.processName(), Find: r.planner.Problems, Revision: r.planner.Revision, Log: c.log})
	r.acks = r.acknowledges(c.config.processName())
	r.shown = &debug.Proxies{Planner: r.planner, Mirror: c.mirror, Cluster: c.config.cluster, Fleet: r.fleet.Page}
	if r.server, err = r.newServer(c, r.registers(c)); err != nil {
		return nil, err
	}
	r.fleet.Serves(r.server)
	r.shown.Server = r.server
	c.telemetry.changes.Serves(r.pool, func() bool { return r.server.Waiting(fanout.Endpoints)+r.server.Waiting(fanout.Config) > 0 })
	return r, nil
}

// registers makes the registry of machines, and adds it to the replica. It returns nil if machines may not register
// themselves.
func (r *replica) registers(c replicaConfig) *machines.Registry {
	if !c.config.env.autoRegister {
		return nil
	}
	registry := machines.New(machines.Config{Replica: c.config.processName(),
		Snapshot: c.mirror.Current, Grace: c.config.env.machineGrace, Log: c.log})
	r.more.add(part{
		tasks: []loop.Task{{Name: "machines", Run: func(ctx context.Context) error {
			changes, stop := c.mirror.Subscribe()
			defer stop()
			return registry.Run(ctx, c.store, changes)
		}}},
		gauges: []func(time.Time){func(time.Time) { obs.Machines.Set(float64(registry.Connected())) }},
	})
	return registry
}

// newServer makes the xDS server from the other parts of the replica. The argument registry may be nil.
func (r *replica) newServer(c replicaConfig, registry *machines.Registry) (*serve.Server, error) {
	clients := obs.NewSampled(c.log)
	bootstrap, err := bootstrapPatches()
	if err != nil {
		return nil, err
	}
	return serve.New(serve.Config{
		Quarantine:   r.withheld,
		Authenticate: c.callers.Authenticate,
		Refused:      c.callers.Refused,
		MayHaveKeys:  c.callers.MayHaveKeys,
		AgentTypes:   append(c.agents, r.fleet.AgentType(), nameTable(), bootstrap),
		Answers:      c.answers,
		Identifier:   debug.Identifier(c.config.processName()),
		Store:        func() string { return join.StoreName(c.mirror.Status().Seen.Cluster) },
		Place:        func() string { return join.PlaceName(c.mirror.Current()) },
		AckDeadline:  c.config.ackDeadline,
		Callers:      budget.New(budget.Config{Workloads: identities.Workloads(c.mirror.Current), Limits: c.config.waitingRequests()}),
		Planner: join.Planner{Plans: r.planner, Mirror: c.mirror, Fleet: r.fleet,
			Machines: registry, Clients: clients, Checked: c.config.env.identityCheck, TrustDomain: c.config.trustDomain,
			Routers: c.config.env.routers,
			Scopes: &join.Scopes{Cluster: c.config.cluster, Domain: c.config.serviceDomain(),
				Snapshot: c.mirror.Current, Now: time.Now, Clients: clients}},
		Budget:  fanout.Budget{Streams: c.config.env.pushThrottle, WindowOff: c.config.env.off("window")},
		Hooks:   hooks(&c.telemetry.commits, c.telemetry.changes, c.telemetry.tracer, r.shown.Leaves),
		Blame:   r.shown.Blame,
		Log:     c.log,
		Crashes: c.crashes,
		Ledger:  r.deliveries,
	}), nil
}

// publishing records a plan in the ledger of deliveries, before the plan's streams are notified. A plan without edits
// (Last is 0) is not recorded, because it only publishes a revision.
func (r *replica) publishing(p plan.Publication) {
	lane := ledger.Config
	if p.Path == plan.Fast {
		lane = ledger.Endpoints
	}
	if p.Last == 0 {
		return
	}
	r.deliveries.Begin(ledger.Plan{Lane: lane, Span: p.Span, Objects: p.Objects(), Spans: p.Spans(), Views: p.Views()})
}

// planned returns a function that the planner calls once the streams of a plan are notified. The function tells the
// ledger that the plan is published, and then calls the function next.
func (r *replica) planned(next func(int64, plan.Path, time.Time, int, int)) func(int64, plan.Path, time.Time, int, int) {
	return func(revision int64, path plan.Path, began time.Time, edits, moved int) {
		r.deliveries.Seal(r.planner.Notified())
		next(revision, path, began, edits, moved)
	}
}

// waitingRequests bounds the bytes of requests that wait for their stream's admission. The bound of each credential is
// four requests of the largest size, and at least 16 MiB. The total is unbounded, because after a restart each proxy of
// a fleet waits with its whole state.
func (c *config) waitingRequests() budget.Limits {
	return budget.Limits{MessagesPerCredential: max(4*c.env.maxRecvSize, 16<<20), MessagesInAll: math.MaxInt}
}

// serviceDomain returns the DNS suffix of services.
func (c *config) serviceDomain() string { return "svc." + c.domain }

// fleetConfig returns the configuration of this replica as a member of the fleet (all replicas that serve proxies).
func (c *config) fleetConfig(store *kv.Store, m *mirror.Mirror, log *slog.Logger) fleet.Config {
	address, secure := c.advertised()
	return fleet.Config{Store: store, Name: c.processName(), Address: address,
		Secure: secure, Embedded: c.dataDir != "", Zone: c.zone, Domain: c.serviceDomain(),
		Revision: func() int64 { return m.Status().Revision }, Away: func() bool { return m.Status().Away != nil },
		Lease: c.replicaLease, Ramp: c.ramp, DrainAfter: c.drainAfter, Grace: c.shutdown,
		MostJoins: c.env.maxRequests, Contained: c.contained, Log: log,
		Off: fleet.Loops{Joins: c.env.off("joins"), Moves: c.env.off("moves"), Drain: c.env.off("drain")}}
}

// part returns the tasks, services, checks and metrics of role xds.
func (r *replica) part() part {
	register := []func(grpc.ServiceRegistrar){r.server.Register}
	all := part{
		plain: register, secure: register,
		tasks: append([]loop.Task{
			{Name: "mirror", Run: r.mirror.Run},
			{Name: "plan", Run: r.planner.Run},
			{Name: "push", Run: r.server.Run},
			{Name: "quarantine", Run: func(ctx context.Context) error { return r.shared.Run(ctx, r.store, r.withheld) }},
			{Name: "problems", Run: func(ctx context.Context) error { return r.found.Run(ctx, r.store) }},
			{Name: "acknowledged", Run: func(ctx context.Context) error { return r.acks.Run(ctx, r.store) }},
		}, r.fleet.Tasks(r.mirror, r.planner)...),
		ready:  []func() error{r.mirror.Ready, r.fleet.Ready},
		notes:  []func() []string{r.alarm},
		gauges: []func(time.Time){r.countBuilds(), r.quarantined, r.fleet.Gauges},
		leave:  []func(context.Context){r.fleet.Depart},
		counts: []func() memory.Counts{func() memory.Counts {
			return memory.Counts{Bursts: r.server.Joins(), Edits: uint64(r.planner.Revision())}
		}},
	}
	all.add(r.more)
	return all
}

// alarm returns a fault of the store as a note for operators. It returns nil if the store has no fault. During a fault
// the replica serves its last state.
func (r *replica) alarm() []string {
	if alarm := r.mirror.Status().Alarm; alarm != nil {
		return []string{alarm.Error()}
	}
	return nil
}

// countBuilds returns a function that sets the metrics of the pool (the store of built resources). At each call, the
// function adds the builds since its last call to the metrics.
func (r *replica) countBuilds() func(time.Time) {
	built, fragments := [xds.NumTypes]int64{}, int64(0)
	return func(time.Time) {
		resources, hosts := r.pool.Size()
		obs.Pooled.WithLabelValues("resources").Set(float64(resources))
		obs.Pooled.WithLabelValues("virtual_hosts").Set(float64(hosts))
		for t := range xds.NumTypes {
			now := r.pool.Builds(t)
			obs.Builds.WithLabelValues(strings.ToLower(t.String())).Add(float64(now - built[t]))
			built[t] = now
		}
		now := r.pool.Fragments()
		obs.FragmentBuilds.Add(float64(now - fragments))
		fragments = now
	}
}
