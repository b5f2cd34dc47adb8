// Package input is the common input of all parts of the plan: one snapshot, with results that are derived from it alone
// and cached while it is the newest. All scopes share them: the members of clusters, the service accounts of a service,
// the decisions of PeerAuthentications, an index of references.
//
// Owns: nothing that changes.  Reads: snapshots.  Never: what a single scope sees; Envoy's
// protobuf.
package input

import (
	"navarch.io/navarch/push/build/endpoint"
	"navarch.io/navarch/push/plan/layer"
	"navarch.io/navarch/push/pool"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/proxyconfig"
)

// Input is one snapshot and the results derived from it. Each step of the planner uses a new Input (At, Later). Only
// one goroutine may use it, except for Snapshot, which is immutable; Copy is for another one.
type Input struct {
	*mirror.Snapshot
	Cluster string      // the config cluster's name in labels of endpoints; origins have the empty name for it
	Mesh    *model.Mesh // the mesh configuration that the plan reads
	Meshes  Meshes      // the projections of Mesh that the builders read
	// Defaults are the settings in MeshConfig's defaultConfig, for proxies whose own ProxyConfig states no others.
	Defaults proxyconfig.Settings
	// Gateways are the gateways of all networks, sorted.
	Gateways intern.List[endpoint.Gateway]
	Index    *Index
	Pool     *pool.Pool
	// Sharing contains the results that the scopes of a step share. It is nil between steps.
	Sharing *layer.Sharing

	members      map[Selection]intern.List[model.Member]
	addresses    map[servedPort][]string
	accounts     map[service]intern.List[string]
	peers        map[string]intern.List[*model.Policy] // by namespace, see Peers
	applicable   map[string][]*model.Policy            // by namespace, see applicablePeers
	mtlsDisabled map[served]string
	local        map[string][]string // by DNS domain, see ClusterLocal
	denied       denied
	deniedKnown  bool // denied is set

	// Fault lets tests inject panics (see Tested). It is nil in production.
	Fault func(in *Input, of view.Scope)
}

// New returns the Input of a snapshot. Resources are built in the pool. cluster is the name of the config cluster.
func New(s *mirror.Snapshot, p *pool.Pool, cluster string) *Input {
	in := &Input{Cluster: cluster, Index: newIndex(s), Pool: p}
	in.read(s)
	return in
}

// read sets the snapshot and clears the results of the previous one.
func (in *Input) read(s *mirror.Snapshot) {
	in.Snapshot = s
	if mesh := s.Mesh(); in.Mesh == nil || in.Mesh.Hash != mesh.Hash {
		in.Mesh, in.Meshes = mesh, in.Meshes.later(mesh)
		in.Defaults, _ = proxyconfig.Of(mesh.Spec.GetDefaultConfig())
	}
	in.members = map[Selection]intern.List[model.Member]{}
	in.addresses = map[servedPort][]string{}
	in.accounts = map[service]intern.List[string]{}
	in.peers, in.applicable = map[string]intern.List[*model.Policy]{}, map[string][]*model.Policy{}
	in.mtlsDisabled = map[served]string{}
	in.denied, in.deniedKnown = nil, false
	in.local = map[string][]string{}
	in.Gateways = gatewaysIn(s)
}

// At returns the Input of a step at another snapshot. edits are the changes since the snapshot of in.Index. A step that
// only plans endpoints passes none, because the index does not depend on endpoints.
func (in *Input) At(s *mirror.Snapshot, edits ...mirror.Edit) *Input {
	next := *in
	next.read(s)
	if len(edits) > 0 {
		next.Index = in.Index.With(edits)
	}
	next.Sharing = layer.NewSharing()
	return &next
}

// Later returns the Input of a step that only plans endpoints. It keeps the mesh configuration and the gateways of
// networks with which everything else was planned.
func (in *Input) Later(s *mirror.Snapshot) *Input {
	next := in.At(s)
	next.Mesh, next.Meshes, next.Gateways = in.Mesh, in.Meshes, in.Gateways
	return next
}

// Copy returns the Input of the same step without cached results. Another goroutine may use it.
func (in *Input) Copy() *Input {
	next := in.Later(in.Snapshot)
	next.Sharing = nil
	return next
}

// Root returns the root namespace of the configuration.
func (in *Input) Root() string { return in.Mesh.Spec.GetRootNamespace() }

// Tested calls Fault, if it is set. It is called where a scope is planned, after all layers of a view are, and where a
// proxy subscribes to Secrets.
func (in *Input) Tested(of view.Scope) {
	if in.Fault != nil {
		in.Fault(in, of)
	}
}

// Make builds the resource of a Spec, or finds it in the pool. If the build fails, the result is false and a problem is
// appended to found, for the object blame unless the builder names another one.
func (in *Input) Make(spec pool.ResourceSpec, blame model.Key, found *[]Problem) (layer.Unit, bool) {
	r, err := in.Pool.Resource(spec)
	if err != nil {
		*found = append(*found, model.ProblemOf(err, blame))
		return layer.Unit{}, false
	}
	return layer.Unit{Spec: spec, Res: r}, true
}

// RoutesTo calls f with the VirtualServices that route to a host, or to a host that it covers as a wildcard.
func (in *Input) RoutesTo(host string, f func(*model.VirtualService)) {
	visit := func(key model.Key) {
		if r, ok := in.Get(key); ok {
			f(r.(*model.VirtualService))
		}
	}
	for key := range in.Index.routesTo.of(host) {
		visit(key)
	}
	if IsWildcard(host) {
		for to, key := range in.Index.routesTo.all() {
			if to != host && Covers(host, to) {
				visit(key)
			}
		}
	}
}

// Routing lists the VirtualServices that name a host, a wildcard that covers it or, if it is a wildcard, a host that it
// covers. VirtualServices may repeat. Those without tcp and tls rules are found by their wildcards only.
func (in *Input) Routing(host string) (all []*model.VirtualService) {
	for _, key := range in.Index.routingOf(host) {
		if r, ok := in.Get(key); ok {
			all = append(all, r.(*model.VirtualService))
		}
	}
	return all
}

// BoundConnecting lists the VirtualServices with tcp or tls rules that are bound to a Gateway (namespace/name), each
// once, whether or not they are exported to the gateway's namespace.
func (in *Input) BoundConnecting(gateway string) (all []*model.VirtualService) {
	for key := range in.Index.bound.of(gateway) {
		if r, ok := in.Get(key); ok {
			all = append(all, r.(*model.VirtualService))
		}
	}
	return all
}

// Interned lists of Specs. The tables are weak: a list lives as long as some Spec uses it.
var (
	strs       intern.Table[string]
	members    intern.Table[model.Member]
	patchLists intern.Table[model.Patch]
	policies   intern.Table[*model.Policy]
)
