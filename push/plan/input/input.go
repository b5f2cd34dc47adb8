// Package input is the common input of all parts of the plan: one snapshot of the records, and results that are derived
// from this snapshot alone. The results are cached as long as the Input is used. All scopes (sets of services that
// groups of proxies see) share the results. The results are the members of clusters, the service accounts of services,
// the modes of PeerAuthentications, and an index of references.
//
// Owns: the caches of one Input. Reads: snapshots. Never: decides visibility in a single scope; uses Envoy's protobufs.
package input

import (
	"navarch.io/navarch/push/build/endpoint"
	"navarch.io/navarch/push/plan/layer"
	"navarch.io/navarch/push/pool"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/proxyconfig"
)

// Input is one snapshot and the results derived from it. Each step of the planner, which applies one change of the
// snapshot, uses another Input (At, Later). Only one goroutine may use an Input. Another goroutine needs a Copy.
// Snapshot is immutable, so any goroutine may read it.
type Input struct {
	*mirror.Snapshot
	Cluster string      // the name of the config cluster in labels of endpoints; its name in origins is empty
	Mesh    *model.Mesh // the mesh configuration that the plan reads
	Meshes  Meshes      // the projections of Mesh that the builders read
	// Defaults contains the settings of MeshConfig's defaultConfig. A proxy's own ProxyConfig overrides them.
	Defaults proxyconfig.Settings
	// Gateways lists the gateways of all networks, sorted.
	Gateways intern.List[endpoint.Gateway]
	Index    *Index     // the reverse look-ups of the snapshot
	Pool     *pool.Pool // builds the resources
	// Sharing contains the results that the scopes of a step share. It is nil in an Input of New or Copy.
	Sharing *layer.Sharing

	members      map[Selection]intern.List[model.Member]
	repeated     map[Selection][]model.Member // see candidates
	addresses    map[servedPort][]string
	accounts     map[service]intern.List[string]
	peers        map[string]intern.List[*model.Policy] // by namespace, see Peers
	applicable   map[string][]*model.Policy            // by namespace, see applicablePeers
	mtlsDisabled map[served]string
	local        map[string][]string // by DNS domain, see ClusterLocal
	denied       denied
	deniedKnown  bool // denied is set

	// Fault lets tests inject panics; Tested calls it. It is nil in production.
	Fault func(in *Input, of view.Scope)
}

// New returns the Input of a snapshot, and indexes the whole snapshot. Resources are built in the pool. The parameter
// cluster is the name of the config cluster.
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
	in.members, in.repeated = map[Selection]intern.List[model.Member]{}, map[Selection][]model.Member{}
	in.addresses = map[servedPort][]string{}
	in.accounts = map[service]intern.List[string]{}
	in.peers, in.applicable = map[string]intern.List[*model.Policy]{}, map[string][]*model.Policy{}
	in.mtlsDisabled = map[served]string{}
	in.denied, in.deniedKnown = nil, false
	in.local = map[string][]string{}
	in.Gateways = gatewaysIn(s)
}

// At returns the Input of a step at another snapshot, with empty caches. The parameter edits has the changes from the
// snapshot of in.Index to s. Without edits the result has the same index, even if s differs. The receiver is not
// changed.
func (in *Input) At(s *mirror.Snapshot, edits ...mirror.Edit) *Input {
	next := *in
	next.read(s)
	if len(edits) > 0 {
		next.Index = in.Index.With(edits)
	}
	next.Sharing = layer.NewSharing()
	return &next
}

// Later returns the Input of a step at another snapshot that only plans endpoints. The result has the fields Mesh,
// Meshes, Defaults, Gateways and Index of the receiver, because the other resources were planned with them. Its caches
// are empty.
func (in *Input) Later(s *mirror.Snapshot) *Input {
	next := in.At(s)
	next.Mesh, next.Meshes, next.Defaults, next.Gateways = in.Mesh, in.Meshes, in.Defaults, in.Gateways
	return next
}

// Copy returns an Input of the same snapshot for another goroutine. It has empty caches and no Sharing.
func (in *Input) Copy() *Input {
	next := in.Later(in.Snapshot)
	next.Sharing = nil
	return next
}

// Root returns the root namespace of the configuration.
func (in *Input) Root() string { return in.Mesh.Spec.GetRootNamespace() }

// Tested calls Fault, if it is set. The planner calls Tested at several points of its work, with the scope that is
// being planned.
func (in *Input) Tested(scope view.Scope) {
	if in.Fault != nil {
		in.Fault(in, scope)
	}
}

// Make builds the resource of a Spec, or finds it in the pool. If the build fails, the second result is false, and Make
// appends a problem to found. The problem is about the object that the builder's error names. If the error names no
// object, the problem is about the object with the key blame.
func (in *Input) Make(spec pool.ResourceSpec, blame model.Key, found *[]Problem) (layer.Unit, bool) {
	r, err := in.Pool.Resource(spec)
	return made(spec, r, err, blame, found)
}

// MakeInPieces is Make, but calls the function pause between two pieces of the build.
func (in *Input) MakeInPieces(
	spec pool.PiecewiseSpec, pause func(), blame model.Key, found *[]Problem,
) (layer.Unit, bool) {
	r, err := in.Pool.ResourceInPieces(spec, pause)
	return made(spec, r, err, blame, found)
}

// made returns the unit of a built resource, or appends the error of the build to found and returns false.
func made(spec pool.ResourceSpec, r *xds.Resource, err error, blame model.Key, found *[]Problem) (layer.Unit, bool) {
	if err != nil {
		*found = append(*found, model.ProblemOf(err, blame))
		return layer.Unit{}, false
	}
	return layer.Unit{Spec: spec, Res: r}, true
}

// RoutesTo calls f with each VirtualService that has a host as a destination, in no order. If host is a wildcard,
// destinations that it covers count too. RoutesTo may call f more than once for a VirtualService.
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
		for to, key := range in.Index.routesTo.named("") {
			if to != host && Covers(host, to) {
				visit(key)
			}
		}
	}
}

// Routing returns the VirtualServices whose hosts match a host. Hosts match if they are equal, or if one of them is a
// wildcard that covers the other. VirtualServices are in no order and may repeat. VirtualServices that only have http
// rules are found by their wildcards, and not by their other hosts.
func (in *Input) Routing(host string) []*model.VirtualService {
	return in.virtualServices(in.Index.routingOf(host))
}

// RoutingWildcards returns the VirtualServices with a wildcard that equals a host, covers it, or is covered by it. They
// are in no order and may repeat.
func (in *Input) RoutingWildcards(host string) []*model.VirtualService {
	return in.virtualServices(in.Index.overlapping(host))
}

func (in *Input) virtualServices(keys []model.Key) (all []*model.VirtualService) {
	for _, key := range keys {
		if r, ok := in.Get(key); ok {
			all = append(all, r.(*model.VirtualService))
		}
	}
	return all
}

// BoundConnecting returns the VirtualServices with tcp or tls rules whose gateways name a Gateway ("namespace/name").
// Each is listed once, in no order. Exports are ignored.
func (in *Input) BoundConnecting(gateway string) (all []*model.VirtualService) {
	for key := range in.Index.bound.of(gateway) {
		if r, ok := in.Get(key); ok {
			all = append(all, r.(*model.VirtualService))
		}
	}
	return all
}

// These tables intern lists that Specs contain. A table keeps a list only as long as some Spec uses the list.
var (
	strs       intern.Table[string]
	members    intern.Table[model.Member]
	patchLists intern.Table[model.Patch]
	policies   intern.Table[*model.Policy]
)
