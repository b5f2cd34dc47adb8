// Package input is what every part of the plan reads: one snapshot, and what is derived from it alone and remembered while it is
// the newest, for all scopes together: the members of clusters, the service accounts behind a service, what PeerAuthentications
// decide, who refers to what.
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

// Input is one snapshot and what was derived from it. The planner replaces it as a whole at each step (At, Later). Only the goroutine
// of the planner may use it, but for the Snapshot.
type Input struct {
	*mirror.Snapshot
	Cluster string      // what the config cluster is called in endpoints of it; origins have no name for it
	Mesh    *model.Mesh // what the plan decides by
	Meshes  Meshes      // what the builders read
	// Defaults is what counts of MeshConfig's defaultConfig for proxies whose own ProxyConfig says nothing else.
	Defaults proxyconfig.Settings
	// Gateways are the gateways of all networks, sorted.
	Gateways intern.List[endpoint.Gateway]
	Index    *Index
	Pool     *pool.Pool
	// Sharing is what the scopes of a step have come to; nil between steps.
	Sharing *layer.Sharing

	members      map[Selection]intern.List[model.Member]
	addresses    map[servedPort][]string
	accounts     map[service]intern.List[string]
	peers        map[string]intern.List[*model.Policy] // by namespace
	decide       map[string][]*model.Policy            // the same
	mtlsDisabled map[served]string
	local        map[string][]string // see ClusterLocal
	denied       denied
	deniedKnown  bool // denied was read

	// Fault has tests panic (see Tested); nil: nothing is tested.
	Fault func(in *Input, of view.Scope)
}

// New derives what there is to derive from a snapshot; resources are built in the pool. cluster is what the config cluster is called.
func New(s *mirror.Snapshot, p *pool.Pool, cluster string) *Input {
	in := &Input{Cluster: cluster, Index: newIndex(s), Pool: p}
	in.read(s)
	return in
}

// read takes another snapshot, and forgets what was derived from the one before.
func (in *Input) read(s *mirror.Snapshot) {
	in.Snapshot = s
	if mesh := s.Mesh(); in.Mesh == nil || in.Mesh.Hash != mesh.Hash {
		in.Mesh, in.Meshes = mesh, in.Meshes.later(mesh)
		in.Defaults, _ = proxyconfig.Of(mesh.Spec.GetDefaultConfig())
	}
	in.members = map[Selection]intern.List[model.Member]{}
	in.addresses = map[servedPort][]string{}
	in.accounts = map[service]intern.List[string]{}
	in.peers, in.decide = map[string]intern.List[*model.Policy]{}, map[string][]*model.Policy{}
	in.mtlsDisabled = map[served]string{}
	in.denied, in.deniedKnown = nil, false
	in.local = map[string][]string{}
	in.Gateways = gatewaysIn(s)
}

// At is the input of a step at another snapshot. The edits are those since the last one whose index was read, and that index has to have:
// none, for a step that plans nothing but endpoints, of which the index knows nothing.
func (in *Input) At(s *mirror.Snapshot, edits ...mirror.Edit) *Input {
	next := *in
	next.read(s)
	if len(edits) > 0 {
		next.Index = in.Index.With(edits)
	}
	next.Sharing = layer.NewSharing()
	return &next
}

// Later is At for a step that plans nothing but endpoints: the mesh's configuration, and the gateways of networks, stay those that all else was
// planned with.
func (in *Input) Later(s *mirror.Snapshot) *Input {
	next := in.At(s)
	next.Mesh, next.Meshes, next.Gateways = in.Mesh, in.Meshes, in.Gateways
	return next
}

// Root is the root namespace of the configuration.
func (in *Input) Root() string { return in.Mesh.Spec.GetRootNamespace() }

// Tested is called wherever a scope is planned, when all layers of a view are, and where a proxy subscribes to Secrets.
func (in *Input) Tested(of view.Scope) {
	if in.Fault != nil {
		in.Fault(in, of)
	}
}

// Make builds what a Spec says, or answers from the pool. False: it cannot be built, and is left out with a problem, at `blame` unless
// the builder names another object.
func (in *Input) Make(spec pool.ResourceSpec, blame model.Key, found *[]Problem) (layer.Unit, bool) {
	r, err := in.Pool.Resource(spec)
	if err != nil {
		*found = append(*found, model.ProblemOf(err, blame))
		return layer.Unit{}, false
	}
	return layer.Unit{Spec: spec, Res: r}, true
}

// RoutesTo calls f with the VirtualServices that send to a host, or to one that a wildcard covers.
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

// Routing are the VirtualServices that name a host, a wildcard that covers it, or, where it is a wildcard, a host that it covers; some may come
// several times. Of those without tcp and tls rules their wildcards alone count.
func (in *Input) Routing(host string) (all []*model.VirtualService) {
	for _, key := range in.Index.routingOf(host) {
		if r, ok := in.Get(key); ok {
			all = append(all, r.(*model.VirtualService))
		}
	}
	return all
}

// Interned lists of Specs; weak, so nothing is held that no Spec holds.
var (
	strs       intern.Table[string]
	members    intern.Table[model.Member]
	patchLists intern.Table[model.Patch]
	policies   intern.Table[*model.Policy]
)
