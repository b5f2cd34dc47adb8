package main

import (
	"context"
	"crypto/tls"
	"log/slog"
	"slices"
	"time"

	meshv1 "istio.io/api/mesh/v1alpha1"

	"navarch.io/navarch/ca/attest"
	"navarch.io/navarch/ca/attest/kube"
	"navarch.io/navarch/ca/denials"
	"navarch.io/navarch/ca/keyring"
	"navarch.io/navarch/ca/seal"
	"navarch.io/navarch/ca/serving"
	"navarch.io/navarch/ca/vault"
	"navarch.io/navarch/cmd/navarchd/api"
	"navarch.io/navarch/cmd/navarchd/callers"
	"navarch.io/navarch/cmd/navarchd/debug"
	"navarch.io/navarch/cmd/navarchd/debug/authz"
	"navarch.io/navarch/cmd/navarchd/health"
	"navarch.io/navarch/cmd/navarchd/judge"
	"navarch.io/navarch/cmd/navarchd/memory"
	"navarch.io/navarch/cmd/navarchd/removals"
	"navarch.io/navarch/cmd/navarchd/webhooks"
	"navarch.io/navarch/push/identities"
	"navarch.io/navarch/push/inspect"
	"navarch.io/navarch/push/ledger"
	"navarch.io/navarch/push/trust"
	"navarch.io/navarch/store/admit/validate"
	"navarch.io/navarch/store/apiserver"
	"navarch.io/navarch/store/asof"
	"navarch.io/navarch/store/crash"
	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/loop"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/obs"
	"navarch.io/navarch/store/problem"
	"navarch.io/navarch/store/source/remote"
	"navarch.io/navarch/store/tenants"
)

// assembly is a process under construction. It has the values that the process's roles share. Roles that the process
// does not have leave their fields at the initial values. Initially the configuration is unknown, etcd does not answer,
// and nothing can be signed.
type assembly struct {
	part
	config    *config
	log       *slog.Logger
	store     *kv.Store     // nil: the process has no store
	room      func() string // returns why the embedded etcd writes nothing (opened.room)
	telemetry *telemetry
	tenants   *tenants.Tenants
	read      *asof.Times // times up to which clusters have been read
	trust     *trust.Trust
	crashes   *crash.Log
	pages     *debug.Pages
	questions *api.API // /api/v1
	sums      api.Sums // counts of this replica's proxies
	callers   *callers.Callers
	api       *apiserver.Client // of the config cluster; nil: no API server is configured
	clusters  *kube.Clusters    // API servers of other clusters; nil: there are no other clusters, or the process has no callers
	roots     serving.Ring      // the mesh's roots, from the keyring or its replacement; nil: unknown
	serving   *serving.TLS      // this process's serving certificate

	mesh     func() *meshv1.MeshConfig   // mesh configuration for webhooks; returns nil while unknown
	snapshot func() *mirror.Snapshot     // known configuration; returns nil while unknown
	reads    func() kv.Place             // position in etcd up to which the mirror (copy of the configuration) has read
	away     func() bool                 // reports whether etcd does not answer, as far as is known
	silent   func() error                // returns why etcd does not answer the mirror; nil: it answers, or there is no mirror
	signs    func() bool                 // reports whether the keyring can sign (canSign)
	tls      func() (*tls.Config, error) // TLS of the secure address; returns nil if the address is off
	streams  trust.Server                // streams of proxies
	denied   *identities.Denied          // identities that the configuration denies
	kills    *memory.Kills               // kills for memory of earlier processes
}

// scoped returns the logger of a scope of log lines.
func (a *assembly) scoped(scope string) *slog.Logger { return obs.Scoped(a.log, scope) }

// noStreams stands for the streams in a process that serves no proxies.
type noStreams struct{}

// AgentResourceChanged implements trust.Server.
func (noStreams) AgentResourceChanged(string) {}

// Recheck implements trust.Server.
func (noStreams) Recheck() int { return 0 }

// everybody represents all clients: callers of the CA and streams of proxies.
type everybody struct{ *assembly }

// AgentResourceChanged implements trust.Server.
func (e everybody) AgentResourceChanged(typeURL string) { e.streams.AgentResourceChanged(typeURL) }

// Recheck implements trust.Server. It ends the streams and connections of callers that are refused now, and returns the
// number of ended streams and connections.
func (e everybody) Recheck() int { return e.streams.Recheck() + e.callers.Recheck() }

// assemble makes the roles of a process and their shared parts, and binds the addresses of the process. It fails if a
// flag is invalid, which the error names, or if a part cannot be made.
func assemble(c *config, store opened, telemetry *telemetry, log *slog.Logger) (*part, error) {
	a := &assembly{config: c, log: log, store: store.Store, room: store.room, telemetry: telemetry,
		tenants: tenants.New(), read: asof.New(), trust: trust.New(c.dataDir), crashes: crash.New(log),
		mesh: func() *meshv1.MeshConfig { return nil }, snapshot: func() *mirror.Snapshot { return nil },
		reads: func() kv.Place { return kv.Place{} }, away: func() bool { return true }, silent: func() error { return nil },
		signs: func() bool { return false }, streams: noStreams{}, tls: func() (*tls.Config, error) { return c.tlsOfFiles(log) }}
	a.pages = debug.New(debug.Pages{ID: c.processName(), Removals: &removals.Known{},
		Rules: &authz.Authorizer{Open: !c.env.debugAuth, Hosts: c.debugNames(), System: c.env.podNamespace, Cluster: c.cluster,
			Tenant: a.tenants.Of}})
	if store.Store != nil {
		a.followStore()
	}
	a.add(telemetry.part(store.Store))
	if err := a.roles(); err != nil {
		return nil, err
	}
	began := time.Now()
	a.gauges = append(a.gauges, a.callers.Gauges, func(now time.Time) {
		obs.Uptime.Set(now.Sub(began).Seconds())
		found := a.pages.Count()
		obs.Problems.WithLabelValues(string(problem.Error)).Set(float64(found.Errors))
		obs.Problems.WithLabelValues(string(problem.Warning)).Set(float64(found.Warnings))
	})
	return &a.part, a.open()
}

// followStore adds the tasks of every process with a store.
func (a *assembly) followStore() {
	full := &kv.Space{Size: a.store.Size, Quota: a.config.etcdQuota, Room: a.room, Log: a.scoped(obs.ScopeEtcd)}
	if a.config.dataDir == "" {
		full.Keeps = a.store.Keeps
	}
	a.pages.Store = func() []inspect.Problem {
		return slices.Concat(spaceProblems(full), awayProblems(a.silent()), killProblems(a.kills))
	}
	a.add(part{tasks: []loop.Task{{Name: "tenants", Run: func(ctx context.Context) error { return a.tenants.Follow(ctx, a.store, a.log) }},
		{Name: "read clusters", Run: func(ctx context.Context) error { return a.read.Follow(ctx, a.store, a.log) }},
		{Name: "held removals", Run: func(ctx context.Context) error { return a.pages.Removals.Follow(ctx, a.store, a.log) }}}})
	a.add(spacePart(full))
}

// open binds the addresses. It adds their servers, and the tasks for gauges, health and memory. It fails if an address
// cannot be bound, or if the TLS configuration is invalid.
func (a *assembly) open() error {
	grpc := &addresses{config: a.config, log: a.log, crashes: a.crashes, callers: a.callers, health: health.New(a.missing)}
	streams, err := grpc.open(a.part, a.tls)
	if err != nil {
		return err
	}
	pages, err := listenHTTP(a.config, a.pagesOverHTTP(), a.missing, a.remarks, a.log)
	if err != nil {
		return err
	}
	levels := listenControlZ(a.config, a.log)
	a.add(part{tasks: slices.Concat(streams, pages, levels), gauges: []func(time.Time){grpc.gauges}})
	a.add(part{tasks: []loop.Task{{Name: "gauges", Run: a.measure}, {Name: "health", Run: grpc.health.Run},
		{Name: "memory", Run: func(ctx context.Context) error { return memory.Run(ctx, a.workDone, a.config.env.off("collector")) }}}})
	return nil
}

// roles makes the roles. It makes the mirror (the copy of the configuration) before the roles, because each role may
// need it.
func (a *assembly) roles() error {
	c := a.config
	config, err := newAPIServer(c)
	if err != nil {
		return err
	}
	a.api = config
	sealer, err := newSealer(c, a.store)
	if err != nil {
		return err
	}
	others := c.remotes(a.store, sealer, a.log)
	if err := a.addOtherClusters(others); err != nil {
		return err
	}
	secrets, err := newVault(c, sealer, a.store)
	if err != nil {
		return err
	}
	var records *mirror.Mirror
	a.denied = identities.NewDenied(func() *mirror.Snapshot { return a.snapshot() })
	if c.has(roleXDS) {
		if records, err = newMirror(c, a.store, a.room, a.scoped(obs.ScopeEtcd), a.telemetry); err != nil {
			return err
		}
		a.kills = memory.OpenKills(c.stateDir, a.log) // newMirror has made the folder
		a.snapshot, a.reads = records.Current, func() kv.Place { return records.Status().Place }
		a.silent = func() error { return records.Status().Away }
		a.away = func() bool { return a.silent() != nil }
	}
	ring, err := a.addCallers(sealer, a.clusterFacts(records))
	if err != nil {
		return err
	}
	var deliveries *ledger.Ledger
	if c.has(roleXDS) {
		if deliveries, err = a.addReplica(records, secrets); err != nil {
			return err
		}
	}
	hooks, err := a.addAdmit()
	if err != nil {
		return err
	}
	var objects api.Objects
	if c.has(roleIngest) {
		if objects, err = a.addIngester(others, secrets, ring, hooks); err != nil {
			return err
		}
	}
	if err := a.addAPI(deliveries, objects); err != nil {
		return err
	}
	a.add(part{tasks: []loop.Task{{Name: "credentials", Run: func(ctx context.Context) error {
		return a.callers.Expiry().Run(ctx, a.issuing(), func() { everybody{a}.Recheck() })
	}}}})
	return nil
}

// addCallers adds the authentication of callers, and in a process with role ca also the signing service. The returned
// keyring is nil if this process does not follow the keyring.
func (a *assembly) addCallers(sealer seal.Sealer, cluster clusterFacts) (ring *keyring.Keyring, err error) {
	c := a.config
	if c.hasKeyring() {
		ring, err = a.addKeyring(sealer, cluster)
	} else {
		a.pages.Rules.Revoked = a.denied.Has
		a.callers, err = callers.New(c.callersConfig(a.snapshot, cluster,
			func(who attest.Caller) bool { return a.denied.Has(who.ID) }, a.scoped(obs.ScopeCA)))
	}
	if err == nil && c.env.signers && c.has(roleCA) {
		err = a.addRegistrar()
	}
	if err != nil {
		return nil, err
	}
	a.pages.Rules.Tokens = a.callers.Tokens()
	a.add(part{tasks: a.callers.Tasks()})
	return ring, nil
}

// issuing returns a function that reports whether this process can issue certificates at present. It returns nil for a
// process without a keyring, because such a process does not know whether the CA can sign.
func (a *assembly) issuing() func() bool {
	if !a.config.hasKeyring() {
		return nil
	}
	return func() bool { return a.signs() && !a.away() }
}

// addKeyring adds the keyring. If the process has role ca, it also adds this role. Other roles use the keyring for
// callers, for the secure address and for agents.
func (a *assembly) addKeyring(sealer seal.Sealer, cluster clusterFacts) (*keyring.Keyring, error) {
	ca, err := newAuthority(a.config, a.store, sealer, a.snapshot, a.denied, cluster, a.trust.RootsWritten, a.scoped(obs.ScopeCA))
	if err != nil {
		return nil, err
	}
	a.roots, a.serving, a.callers, a.signs = ca.ring, ca.serving, ca.callers, func() bool { return canSign(ca.ring) }
	a.tls = func() (*tls.Config, error) { return ca.serving.Config(ca.ring.State), nil }
	a.pages.Rules.Revoked = ca.revokedIdentity
	a.add(ca.part(a.api, cluster.ca))
	a.add(part{tasks: []loop.Task{{Name: "trust", Run: func(ctx context.Context) error { return a.trust.Run(ctx, ca.ring, everybody{a}) }}}})
	return ca.ring, nil
}

// addReplica adds role xds, and returns the ledger of deliveries to proxies.
func (a *assembly) addReplica(records *mirror.Mirror, secrets *vault.Vault) (*ledger.Ledger, error) {
	r, err := newReplica(replicaConfig{config: a.config, log: a.scoped(obs.ScopeADS),
		store: a.store, mirror: records, vault: secrets, callers: a.callers, api: a.api, clusters: a.clusters,
		agents: a.trust.AgentTypes(), answers: a.pages.Answers(), telemetry: a.telemetry, crashes: a.crashes, tenantOf: a.tenants.Of,
		sums: a.sums.Encoded, kills: a.kills})
	if err != nil {
		return nil, err
	}
	a.pages.Previewer = &debug.Previewer{Base: r.planner.Base, Afford: r.planner.Afford, Budgets: a.config.exceeding(a.tenants.Of),
		Proposals: validate.New(normal.New(a.config.normal()), nil, nil, a.tenants.Find, judge.Record)}
	a.pages.Proxies, a.streams = r.shown, r.server
	a.add(r.part())
	a.add(part{tasks: []loop.Task{{Name: "roots of other CAs", Run: func(ctx context.Context) error {
		changes, stop := records.Subscribe()
		defer stop()
		return a.trust.Follow(ctx, func() []string { return otherRoots(records.Current()) }, func(ctx context.Context) error {
			_, err := changes.Get(ctx)
			return err
		}, everybody{a})
	}}}})
	a.add(part{tasks: []loop.Task{{Name: "denied identities", Run: func(ctx context.Context) error {
		changes, stop := records.Subscribe()
		defer stop()
		return a.denied.Follow(ctx, changes, func() { everybody{a}.Recheck() })
	}}}})
	return r.deliveries, nil
}

// addIngester adds role ingest. The result answers questions of the API about objects. The argument ring has the
// revocations and the mesh's roots; it is nil if this process does not follow the keyring. The argument hooks has the
// cluster's webhook configurations; it is nil if this process does not follow them.
func (a *assembly) addIngester(others remote.Config, secrets *vault.Vault, ring *keyring.Keyring,
	hooks *webhooks.Configurations) (api.Objects, error) {
	log := a.scoped(obs.ScopeIngest)
	i, err := newIngester(ingesterConfig{config: a.config, log: log,
		store: a.store, sealer: sealerOf(secrets), others: others, seen: a.reads, tenants: a.tenants,
		committed: a.telemetry.committed, api: a.api, ring: ring, hooks: hooks, read: func() time.Time { return a.read.Of("").Until }})
	if err != nil {
		return nil, err
	}
	a.pages.Objects, a.pages.Acceptor = i.shown(a.telemetry.written.List), removals.NewAcceptor(i.keeper, a.pages.Removals, a.api)
	a.add(i.part())
	i.loop.Emit(denials.Unknown())
	if ring == nil {
		if !a.config.env.foreign() {
			log.Warn("while this process leads, proxies do not learn which identities the CA revokes: it cannot read the keyring (--kek)")
		}
		return i, nil
	}
	denied := func(now time.Time) ([]keyring.Denial, bool) { return ring.State().Denied(now) }
	source := denials.Source{Denied: denied, Changed: ring.Changed, Emit: i.loop.Emit, Log: log}
	a.add(part{tasks: []loop.Task{{Name: "denials", Run: source.Run}}})
	return i, nil
}

// otherRoots returns the roots of other CAs that a snapshot names; nil: unknown.
func otherRoots(s *mirror.Snapshot) []string {
	if s == nil {
		return nil
	}
	return normal.CACertificates(s.Mesh().Spec)
}
