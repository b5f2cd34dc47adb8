// Package inbound plans the inbound side of proxies. The inbound side consists of the clusters of the application's
// ports, the listener that receives redirected connections, and the listeners of a Sidecar's ingress. Proxies with
// equal inputs (view.Workload) share one Workload. If a change touches a Workload, the planner plans a new one.
//
// Owns: the inbound resources of each Workload. Reads: plan/input (a snapshot of the records). Never: plans the
// outbound side.
package inbound

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"

	meshv1 "istio.io/api/mesh/v1alpha1"
	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/build/cluster"
	"navarch.io/navarch/push/build/extauthz"
	"navarch.io/navarch/push/build/listener"
	"navarch.io/navarch/push/build/patch"
	"navarch.io/navarch/push/extension"
	"navarch.io/navarch/push/plan/host"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/plan/layer"
	"navarch.io/navarch/push/plan/telemetry"
	"navarch.io/navarch/push/pool"
	"navarch.io/navarch/push/traffic"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
)

// side is the context of the inbound side in EnvoyFilters.
const side = networkingv1.EnvoyFilter_SIDECAR_INBOUND

// Workload is the inbound side of all proxies with the same view.Workload. It is planned as a whole by New, Bootstrap
// or Servers, and immutable afterwards. The embedded Layer contains its resources. It is safe for concurrent use.
type Workload struct {
	layer.Layer
	in              *input.Input // nil after planning
	key             view.Workload
	sidecar         *model.Sidecar
	patches         input.PatchSet
	services        []*model.Service
	peers           []*model.Policy
	policies        intern.List[*model.Policy]
	authentications intern.List[*model.Policy]
	filters         intern.List[extension.Filter] // of its extensions
	unrun           []Unrun
	reads           map[string]bool // hosts whose endpoints decide the numbers of the workload's ports
	asked           map[string]bool // hosts on which the providers of CUSTOM policies depend
	reports         telemetry.Reports
	bootstrap       *xds.Resource // changes that patches make to the bootstrap; nil if no patch does
	found           []input.Problem
	removed         []input.Removal // resources that patches remove as a whole
}

// port is one port of the workload.
type port struct {
	listener.InboundPort
	cluster cluster.Inbound
	bind    string   // address of its own listener (captureMode NONE); empty if connections are redirected
	also    []string // further addresses of that listener
}

// Bootstrap plans the workload of a router, which has no inbound side. It plans the changes that patches make to the
// bootstrap, and the configurations of extensions. It calls yield, which must not be nil, between parts of the work.
// The method Problems returns the errors of the configuration.
func Bootstrap(in *input.Input, key view.Workload, yield func()) *Workload {
	wl := &Workload{in: in, key: key, reads: map[string]bool{}}
	wl.patches, wl.found = in.Patches(key.Filters)
	wl.planBootstrap()
	wl.planExtensions()
	wl.Commit(in.Sharing, yield)
	wl.in = nil
	return wl
}

// Servers plans the workload of an application with gRPC's own xDS client. It plans the listeners of its servers and
// the configurations of extensions. It calls yield, which must not be nil, between parts of the work. The method
// Problems returns the errors of the configuration.
func Servers(in *input.Input, key view.Workload, yield func()) *Workload {
	wl := read(in, key)
	wl.planServers(yield)
	wl.planExtensions()
	wl.Commit(in.Sharing, yield)
	wl.in = nil
	return wl
}

// read returns a workload with the records that its key names, before planning.
func read(in *input.Input, key view.Workload) *Workload {
	wl := &Workload{in: in, key: key, reads: map[string]bool{}}
	if r, ok := in.Get(key.Sidecar); ok {
		wl.sidecar = r.(*model.Sidecar)
	}
	for _, k := range key.Services.All() {
		if r, ok := in.Get(k); ok && len(model.HostsOf(r)) > 0 {
			wl.services = append(wl.services, r.(*model.Service))
		}
	}
	wl.peers, wl.policies = in.PoliciesAt(key.Peers), policies.List(in.PoliciesAt(key.Policies)...)
	wl.authentications = policies.List(in.PoliciesAt(key.Authentications)...)
	return wl
}

// New plans the workload of a sidecar from the records that the key names, and skips missing records. It calls yield,
// which must not be nil, between parts of the work. The method Problems returns the errors of the configuration.
func New(in *input.Input, key view.Workload, yield func()) *Workload {
	wl := read(in, key)
	wl.patches, wl.found = in.Patches(key.Filters)
	wl.planBootstrap()
	wl.report()
	wl.planExtensions()
	for u := range in.Added(wl.patches, side, &wl.found) {
		wl.Reserve(u)
	}
	wl.planPassthrough()
	ports := wl.ports()
	for _, p := range ports {
		var hosts []string
		if p.cluster.Host != "" {
			hosts = []string{p.cluster.Host}
		}
		removes := func(f model.Patch) bool { return input.RemovesCluster(f, side, p.Cluster, hosts...) }
		if wl.removes(xds.Cluster, p.Cluster, removes) {
			continue
		}
		p.cluster.Patches = wl.patches.Matching(func(f model.Patch) bool {
			return input.MergesCluster(f, side, p.Cluster, hosts...)
		})
		wl.plan(p.cluster)
		yield()
	}
	wl.planListeners(ports, yield)
	wl.Commit(in.Sharing, yield)
	wl.in = nil // later calls read no input, so the workload retains no snapshot
	return wl
}

// plan adds one resource, unless its build fails or an EnvoyFilter has added a resource of this type and name.
func (wl *Workload) plan(spec pool.ResourceSpec) { wl.add(wl.in.Make(spec, model.MeshKey, &wl.found)) }

// add adds the resource of a unit if ok is true, unless an EnvoyFilter has added a resource of this type and name.
func (wl *Workload) add(u layer.Unit, ok bool) {
	if ok && !wl.Reserved(u.Res) {
		wl.Add(u)
	}
}

// planPassthrough plans the cluster for connections to ports that no service names.
func (wl *Workload) planPassthrough() {
	name := xds.InboundPassthrough
	if wl.removes(xds.Cluster, name, func(p model.Patch) bool { return input.RemovesCluster(p, side, name) }) {
		return
	}
	mesh := wl.in.Meshes.Cluster
	patches := wl.patches.Matching(func(p model.Patch) bool { return input.MergesCluster(p, side, name) })
	wl.plan(cluster.Static{Name: name, HeaderCase: wl.key.HeaderCase, Families: wl.key.Listening.Families,
		Connection: traffic.PassthroughConnection(mesh), Mesh: mesh, Patches: patches})
}

// ports returns the workload's ports. If the Sidecar has ingress listeners, they define the ports. Without ingress
// listeners the services define the ports, unless the proxy's mode is NONE. If a port has several definitions, the
// first one is used.
func (wl *Workload) ports() []port {
	var out []port
	if wl.sidecar != nil && len(wl.sidecar.Spec.GetIngress()) > 0 {
		for i, l := range wl.sidecar.Spec.GetIngress() {
			if p, ok := wl.ingress(i, l); ok {
				out = append(out, p)
			}
		}
	} else if wl.key.Mode != view.None {
		for _, svc := range wl.services {
			out = append(out, wl.service(svc)...)
		}
	}
	slices.SortStableFunc(out, func(a, b port) int {
		return cmp.Or(cmp.Compare(a.Port, b.Port), cmp.Compare(a.bind, b.bind))
	})
	return slices.CompactFunc(out, func(a, b port) bool {
		return a.Port == b.Port && (a.bind == b.bind || a.bind == "" || b.bind == "")
	})
}

// service returns the workload's ports that serve a service.
func (wl *Workload) service(svc *model.Service) (out []port) {
	name := svc.Spec.GetHosts()[0]
	for _, p := range svc.Spec.GetPorts() {
		if input.PortOf(svc, p.GetNumber()) != p {
			continue
		}
		for _, n := range wl.targets(svc, name, p) {
			out = append(out, wl.port(listener.InboundPort{Port: n, Protocol: p.GetProtocol(), Host: name, ServicePort: p.GetNumber()},
				served{svc, name, p.GetNumber()}, -1, wl.local(n)))
		}
	}
	return out
}

// targets returns the numbers of a service port at the workload. If the workload is an endpoint of a ServiceEntry, the
// endpoint defines the numbers. In all other cases the number is the target port.
func (wl *Workload) targets(svc *model.Service, of string, p *model.ServicePort) (numbers []uint32) {
	for _, s := range wl.key.Served.All() {
		if s.Service == svc.Key && s.Port == p.GetNumber() {
			numbers = append(numbers, s.Target)
		}
	}
	switch {
	case len(numbers) > 0:
		return numbers
	case p.GetTargetNumber() != 0:
		return []uint32{p.GetTargetNumber()}
	case p.GetTargetName() == "":
		return []uint32{p.GetNumber()}
	}
	return wl.namedTargets(svc, of, p)
}

// local returns the address to which the proxy connects for a port of the workload. If the mesh has
// inboundTrafficPolicy LOCALHOST, the result is a loopback address with the port. In all other cases it is "", which
// means the original destination.
func (wl *Workload) local(port uint32) string {
	if wl.in.Mesh.Spec.GetInboundTrafficPolicy().GetMode() != meshv1.MeshConfig_InboundTrafficPolicy_LOCALHOST {
		return ""
	}
	return net.JoinHostPort(wl.key.Listening.Families.Loopback(), strconv.FormatUint(uint64(port), 10))
}

// namedTargets returns the numbers of a service port whose target port is a name. Pods define that name, so the numbers
// come from the service's endpoints.
func (wl *Workload) namedTargets(svc *model.Service, of string, p *model.ServicePort) []uint32 {
	wl.reads[of] = true
	numbers := map[uint32]bool{}
	for r := range wl.in.ByHost(model.KindEndpoints, of) {
		if slice := r.(*model.Endpoints); slice.Key.Namespace == svc.Key.Namespace {
			for _, ep := range slice.Spec.GetPorts() {
				if ep.GetName() == p.GetName() && ep.GetNumber() != 0 {
					numbers[ep.GetNumber()] = true
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(numbers))
}

// served identifies the service port that a port of the workload serves. The zero value means no service.
type served struct {
	service *model.Service
	host    string
	port    uint32
}

// port adds the cluster and mTLS mode to a port. The parameter ingress is the index of the Sidecar's ingress listener,
// or -1 for the port of a service. The parameter target is the address to which the proxy connects, or "" for the
// original destination.
func (wl *Workload) port(p listener.InboundPort, of served, ingress int, target string) port {
	p.Cluster, p.MTLS = xds.InboundCluster(p.Port), wl.mode(p.Port)
	c := cluster.Inbound{Port: p.Port, Target: target, Families: wl.key.Listening.Families, Service: of.service, Host: of.host,
		HTTP2: input.IsHTTP2(p.Protocol), Auto: p.Protocol == model.Protocol_PROTOCOL_AUTO, Mesh: wl.in.Meshes.Cluster,
		HeaderCase: wl.key.HeaderCase && (p.Protocol == model.Protocol_PROTOCOL_HTTP || p.Protocol == model.Protocol_PROTOCOL_AUTO)}
	c.Pool, c.PoolAt = wl.connectionPool(of, ingress)
	c.Connection = traffic.ConnectionOf(c.Pool, wl.in.Meshes.Cluster)
	return port{InboundPort: p, cluster: c}
}

// connectionPool returns the connection pool of a port, and the field that defines the pool. The first existing
// definition in this order is used:
//
//   - the Sidecar's ingress listener with the index ingress (-1: no listener)
//   - the Sidecar's inboundConnectionPool (https://istio.io/latest/docs/reference/config/networking/sidecar/#Sidecar)
//   - the DestinationRules of the service
//   - the mesh configuration
//
// Without a definition the result is nil.
func (wl *Workload) connectionPool(of served, ingress int) (*networkingv1.ConnectionPoolSettings, model.Place) {
	if s := wl.sidecar; s != nil {
		if ingress >= 0 {
			if pool := s.Spec.GetIngress()[ingress].GetConnectionPool(); pool != nil {
				return pool, model.Place{Key: s.Key, Field: fmt.Sprintf("spec.ingress[%d].connectionPool", ingress)}
			}
		}
		if pool := s.Spec.GetInboundConnectionPool(); pool != nil {
			return pool, model.Place{Key: s.Key, Field: "spec.inboundConnectionPool"}
		}
	}
	policy := traffic.Policy{}
	if of.service != nil {
		policy = host.Inbound(wl.in, wl.key.Namespace, of.host, of.service).Policy("", of.port)
	}
	policy = policy.Over(wl.in.Meshes.Cluster)
	return policy.Pool, policy.PoolAt
}

// removes reports whether patches remove a resource as a whole, and records the removals. The function matches reports
// whether one patch removes the resource.
func (wl *Workload) removes(t xds.Type, name string, matches func(model.Patch) bool) bool {
	before := len(wl.removed)
	wl.patches.Removals(xds.Ref{Type: t, Name: name}, matches, func(r input.Removal) { wl.removed = append(wl.removed, r) })
	return len(wl.removed) > before
}

// removesListener reports whether patches remove a listener as a whole, and records the removals.
func (wl *Workload) removesListener(name string, port uint32) bool {
	return wl.removes(xds.Listener, name, func(p model.Patch) bool { return patch.RemovesListener(p, side, name, port) })
}

// Removals returns the clusters and listeners that patches remove as a whole, with the patch. A resource that several
// patches remove has one element for each patch. The caller must not change the list.
func (wl *Workload) Removals() []input.Removal { return wl.removed }

// Touched reports whether a change affects the workload, so that it has to be planned again. The arguments describe the
// change, and each may be nil:
//
//   - readers: the changed records, except services, that a view.Workload may name
//   - services: the changed services
//   - ports: the hosts whose endpoints have changed ports
//   - served: the hosts with changed services, which may be the services of providers of external authorization
func (wl *Workload) Touched(readers, services map[model.Key]bool, ports, served map[string]bool) bool {
	reads := func(k model.Key) bool { return readers[k] }
	return reads(wl.key.Sidecar) || slices.ContainsFunc(wl.key.Peers.All(), reads) ||
		slices.ContainsFunc(wl.key.Policies.All(), reads) ||
		slices.ContainsFunc(wl.key.Authentications.All(), reads) ||
		slices.ContainsFunc(wl.key.Filters.All(), func(p view.Patch) bool { return reads(p.Filter) }) ||
		slices.ContainsFunc(wl.key.Extensions.All(), func(e view.Extension) bool { return reads(e.Key) }) ||
		slices.ContainsFunc(wl.key.Services.All(), func(k model.Key) bool { return services[k] }) ||
		anyOf(wl.reads, ports) || anyOf(wl.asked, served)
}

// anyOf reports whether two sets of hosts have an element in common.
func anyOf(have, hosts map[string]bool) bool {
	if len(have) == 0 {
		return false
	}
	for h := range hosts {
		if have[h] {
			return true
		}
	}
	return false
}

// Problems returns the problems that were found while planning. The caller must not change the list.
func (wl *Workload) Problems() []input.Problem { return wl.found }

// These tables intern lists that Specs contain. A table keeps a list only as long as some Spec uses the list.
var (
	policies     intern.Table[*model.Policy]
	authorizers  intern.Table[extauthz.Authorizer]
	inboundPorts intern.Table[listener.InboundPort]
)
