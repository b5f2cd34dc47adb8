// Package nametable plans what DNS says of the hosts of a scope: the name table that agents ask for which answer DNS for their Pod.
//
// Owns: the rows of each scope, and the resource that is made of them.  Reads: plan/host.  Never: a single proxy; anything of a scope whose
// proxies do not ask.
//
// Which names there are follows istiod (pkg/dns/server/name_table.go): the virtual addresses of a service; of a
// headless one the endpoints in the proxy's own network, of all clusters, together and, where they have host names,
// each for itself. As with the cluster's DNS servers, and not with istiod, these are the ready endpoints of all ports.
// A service with neither is left to the DNS servers of the Pod.
//
// A scope has a name table once one of its proxies has asked for it (Planner.AskNames). The rows are planned with the
// hosts of each step. The table is an agent resource to push/delta, and comes with the view's set
// (manifest.Set.Names). There is one table for each network of the scope's proxies, because names of headless services
// stand for endpoints of the same network.
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

// registryExternal is the registry of ServiceEntries.
const registryExternal = "External"

// Table is the names of one scope, as proxies of one network ask for them.
type Table struct {
	network string                    // empty: none is known
	rows    layer.Table[xds.Fragment] // by host
	changed bool                      // since the last Commit
	current *manifest.Manifest
}

// New plans the names of all hosts of a scope for a network.
func New(hosts *host.Table, network string) *Table {
	t := &Table{network: network, changed: true}
	hosts.Names(func(name string) { t.Plan(name, hosts) })
	t.Commit()
	return t
}

// Fork is a copy; neither changes what both have.
func (t *Table) Fork() *Table {
	next := *t
	next.rows = t.rows.Fork()
	return &next
}

// Manifest holds the table as the one resource of its type, as of the last Commit. Equal tables of all scopes are one resource.
func (t *Table) Manifest() *manifest.Manifest { return t.current }

// Plan plans the names of one host, which may have come, changed or gone.
func (t *Table) Plan(name string, hosts *host.Table) {
	row := t.rowOf(hosts, hosts.Get(name))
	if was := t.rows.Get(name); row != was {
		t.rows.Put(name, row)
		t.changed = true
	}
}

// Commit makes the resource, where rows have changed. It costs as much as there are rows.
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

// What scopes share: equal rows, and equal tables. Weak, so nothing is held that no scope and no stream holds.
var (
	shared    pool.Pool
	fragments intern.Table[*xds.Fragment]
)

// row is the entries of one host, encoded.
type row string

// Fragment implements pool.FragmentSpec.
func (r row) Fragment() (*xds.Fragment, error) {
	sum := sha256.Sum256([]byte(r))
	return &xds.Fragment{Bytes: []byte(r), Hash: xds.Hash(sum[:16])}, nil
}

// table is the rows of a scope.
type table struct{ rows intern.List[*xds.Fragment] }

// Build implements pool.ResourceSpec.
func (t table) Build() (*xds.Resource, error) {
	return xds.JoinRope("", agentapi.NameTableURL, t.rows.All()), nil
}

// rowOf is what DNS says of a host; nil: nothing.
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

// headless is the addresses behind a service without one of its own, and an entry for each Pod with a host name:
// "NAME.SERVICE...". A Pod of the proxy's own cluster hides those of the same name elsewhere, of which the first
// cluster's counts. local: the service's name stands for its own alone.
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

// each is a list of addresses, sorted, each once.
func each(all []netip.Addr) []netip.Addr {
	slices.SortFunc(all, netip.Addr.Compare)
	return slices.Compact(all)
}

// single is the IP of an address that stands for one; false for ranges and names.
func single(address string) (netip.Addr, bool) {
	if ip, err := netip.ParseAddr(address); err == nil {
		return ip.Unmap(), true
	}
	if p, err := netip.ParsePrefix(address); err == nil && p.IsSingleIP() {
		return p.Addr().Unmap(), true
	}
	return netip.Addr{}, false
}
