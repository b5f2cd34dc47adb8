// Package nametable plans the name table of a scope, for agents that serve DNS for their Pod. A scope is the set of
// hosts that a group of proxies sees. The table maps the names of these hosts to addresses.
//
// Owns: the rows of each table (one row for each host), and the resource that is built from them. Reads: plan/host.
// Never: plans for a single proxy; plans names of a scope before one of its proxies has requested them.
//
// The set of names follows istiod (pkg/dns/server/name_table.go). The name of a service resolves to its virtual
// addresses. The name of a headless service resolves to its endpoints in the proxy's own network, in all clusters. If
// ENABLE_MULTICLUSTER_HEADLESS is false, it resolves only to endpoints of the proxy's own cluster. An endpoint with a
// host name also has a name of its own, whatever its cluster is.
//
// Endpoints of any port are included. They have to be ready, unless the Service has publishNotReadyAddresses. In both
// points the table follows the cluster's DNS servers, and differs from istiod. Services without addresses and endpoints
// have no names in the table, and the Pod's DNS servers resolve their names.
//
// A scope has a name table once one of its proxies has requested it (Planner.AskNames). Each change of configuration
// plans the rows of the hosts that it touches. The table is part of the set of a view (manifest.Set.Names), and
// push/delta sends it as an agent resource. There is one table for each network of the scope's proxies, because names
// of headless services resolve to endpoints of the same network.
package nametable

import (
	"crypto/sha256"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"navarch.io/navarch/push/agentapi"
	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/plan/host"
	"navarch.io/navarch/push/plan/layer"
	"navarch.io/navarch/push/pool"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
)

// registryExternal is the registry name of ServiceEntries.
const registryExternal = "External"

// Table is the name table of one scope, for proxies of one network. One goroutine may use it.
type Table struct {
	network string                    // empty if unknown
	rows    layer.Table[xds.Fragment] // by host
	changed bool                      // rows changed since the last Commit
	current *manifest.Manifest
}

// New returns the committed name table of all hosts of a scope, for proxies of a network. The network is "" if it is
// unknown.
func New(hosts *host.Table, network string) *Table {
	t := &Table{network: network, changed: true}
	hosts.Names(func(name string) { t.Plan(name, hosts) })
	t.Commit()
	return t
}

// Fork returns an independent copy for another goroutine.
func (t *Table) Fork() *Table {
	next := *t
	next.rows = t.rows.Fork()
	return &next
}

// Manifest returns a manifest with the table of the last Commit as its only resource, which has the name "". Scopes
// with equal tables share the resource. The manifest is immutable and never nil.
func (t *Table) Manifest() *manifest.Manifest { return t.current }

// Plan plans the names of one host again. The host may be new, changed or removed in the host table. Commit publishes
// the names.
func (t *Table) Plan(name string, hosts *host.Table) {
	row := t.rowOf(hosts, hosts.Get(name))
	if was := t.rows.Get(name); row != was {
		t.rows.Put(name, row)
		t.changed = true
	}
}

// Commit builds the resource, if rows have changed since the last Commit. The cost grows with the number of rows.
func (t *Table) Commit() {
	if !t.changed {
		return
	}
	t.changed = false
	var rows []*xds.Fragment
	all := maps.Collect(t.rows.All())
	for _, name := range slices.Sorted(maps.Keys(all)) {
		rows = append(rows, all[name])
	}
	r, _ := shared.Resource(table{fragments.List(rows...)}) // joining cannot fail
	if t.current == nil || t.current.Get("") != r {
		t.current = manifest.Of(r)
	}
}

// Scopes share equal rows and equal tables. The pool and the intern table hold weak references, so a value lives as
// long as a scope or a stream uses it.
var (
	shared    pool.Pool
	fragments intern.Table[*xds.Fragment]
)

// row contains the encoded entries of one host.
type row string

// Fragment implements pool.FragmentSpec. The error is always nil.
func (r row) Fragment() (*xds.Fragment, error) {
	sum := sha256.Sum256([]byte(r))
	return &xds.Fragment{Bytes: []byte(r), Hash: xds.Hash(sum[:16])}, nil
}

// table contains the rows of a scope.
type table struct{ rows intern.List[*xds.Fragment] }

// Build implements pool.ResourceSpec. The error is always nil.
func (t table) Build() (*xds.Resource, error) {
	return xds.JoinRope("", agentapi.NameTableURL, t.rows.All()), nil
}

// rowOf returns the encoded entries of a host, or nil if it has no entries.
func (t *Table) rowOf(hosts *host.Table, h *host.Host) *xds.Fragment {
	if h == nil || h.Service == nil {
		return nil
	}
	svc := h.Service
	n := agentapi.Name{Host: h.Name, Registry: registryExternal}
	if svc.Key.Kind == model.KindService {
		n.Registry, n.Shortname, n.Namespace = agentapi.RegistryKubernetes, svc.Key.Name, svc.Key.Namespace
	}
	var encoded []byte
	for _, a := range hosts.Addresses(svc, h.Name) {
		if ip, ok := single(a); ok {
			n.Addresses = append(n.Addresses, ip)
		}
	}
	if svc.Spec.GetHeadless() {
		own, others := hosts.Published(h, t.network)
		n.Addresses, encoded = headless(own, others, svc.Spec.GetLocalNames(), n)
	}
	if len(n.Addresses) > 0 {
		encoded = agentapi.AppendName(encoded, n)
	}
	if len(encoded) == 0 {
		return nil
	}
	f, _ := shared.Fragment(row(encoded)) // copying cannot fail
	return f
}

// headless returns two results for a headless service. The first result has the addresses of its endpoints. If local is
// true, these are only addresses of the proxy's own cluster. The second result has the encoded entries NAME.HOST for
// Pods with host names, in all clusters. If several clusters have a Pod of one name, the entry is for the proxy's own
// cluster. If the own cluster has no such Pod, the entry is for the first cluster by name.
func headless(own, others []*model.Endpoint, local bool, of agentapi.Name) (all []netip.Addr, pods []byte) {
	named, from := map[string][]netip.Addr{}, map[string]string{}
	slices.SortStableFunc(others, func(a, b *model.Endpoint) int { return strings.Compare(a.GetCluster(), b.GetCluster()) })
	for i, e := range slices.Concat(own, others) {
		ip, ok := single(e.GetAddress())
		if !ok {
			continue
		}
		if i < len(own) || !local {
			all = append(all, ip)
		}
		name := e.GetHostname()
		if name == "" {
			continue
		}
		if _, known := from[name]; !known {
			from[name] = e.GetCluster()
		}
		if from[name] == e.GetCluster() {
			named[name] = append(named[name], ip)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(named)) {
		pod := of
		pod.Host, pod.Addresses = name+"."+of.Host, each(named[name])
		if of.Shortname != "" {
			pod.Shortname = name + "." + of.Shortname
		}
		pods = agentapi.AppendName(pods, pod)
	}
	return each(all), pods
}

// each sorts addresses in place, and returns them without duplicates.
func each(all []netip.Addr) []netip.Addr {
	slices.SortFunc(all, netip.Addr.Compare)
	return slices.Compact(all)
}

// single returns the IP of an address, or of a prefix that contains a single address. For other prefixes and for names,
// the second result is false.
func single(address string) (netip.Addr, bool) {
	if ip, err := netip.ParseAddr(address); err == nil {
		return ip.Unmap(), true
	}
	if p, err := netip.ParsePrefix(address); err == nil && p.IsSingleIP() {
		return p.Addr().Unmap(), true
	}
	return netip.Addr{}, false
}
