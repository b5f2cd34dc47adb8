package describe

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/proto"

	"navarch.io/navarch/push/build/cluster"
	"navarch.io/navarch/push/inspect"
	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/plan"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

// clusterSpec returns the spec of a cluster of a service. It returns false for other specs. A spec is the planned input
// that an xDS resource is built from.
func clusterSpec(spec any) (cluster.Outbound, bool) {
	switch c := spec.(type) {
	case cluster.Outbound:
		return c, true
	case cluster.Proxyless:
		return c.Outbound, true
	}
	return cluster.Outbound{}, false
}

// subjectOf returns the Fact.Subject for a cluster of a host: the cluster's port and subset.
func subjectOf(c cluster.Outbound) string {
	if c.Subset != "" {
		return fmt.Sprintf("port %d subset %s", c.Port, c.Subset)
	}
	return fmt.Sprintf("port %d", c.Port)
}

// policyOf lists the merged traffic policy and the patches of each cluster of a host. Each setting has the object and
// field that it comes from.
func policyOf(of plan.HostOrigins) (out Section) {
	out.Name = "policy, merged"
	defer func() { out.Facts = grouped(out.Facts) }()
	for _, spec := range of.Clusters {
		c, is := clusterSpec(spec)
		if !is || c.BySNI {
			continue
		}
		p, subject := c.Policy.Get(), subjectOf(c)
		tls := []string{}
		if p.TLS != nil {
			tls = append(tls, p.TLSAt.String())
		}
		out.Facts = append(out.Facts, Fact{subject, "TLS " + inspect.Word(c.TLS), tls})
		for _, setting := range []struct {
			name string
			set  bool
			m    proto.Message
			at   model.Place
		}{
			{"tls", p.TLS != nil, p.TLS, p.TLSAt}, {"loadBalancer", p.Balancer != nil, p.Balancer, p.BalancerAt},
			{"connectionPool", p.Pool != nil, p.Pool, p.PoolAt}, {"outlierDetection", p.Outlier != nil, p.Outlier, p.OutlierAt},
			{"proxyProtocol", p.ProxyProtocol != nil, p.ProxyProtocol, p.ProxyProtocolAt},
			{"retryBudget", p.RetryBudget != nil, p.RetryBudget, p.RetryBudgetAt}, {"tunnel", p.Tunnel != nil, p.Tunnel, p.TunnelAt},
		} {
			if !setting.set {
				continue
			}
			if text := brief(setting.m); text != "{}" { // "{}": mode DISABLE, which the first fact states
				out.Facts = append(out.Facts, Fact{subject, setting.name + " " + text, []string{setting.at.String()}})
			}
		}
		for _, p := range c.Patches.All() {
			out.Facts = append(out.Facts, Fact{subject, "patched", []string{patchAt(p)}})
		}
	}
	return out
}

// grouped joins facts with equal Text and By into one, with all their subjects.
func grouped(all []Fact) (out []Fact) {
	at, subjects := map[string]int{}, [][]string{}
	for _, f := range all {
		key := fmt.Sprintf("%q %q", f.Text, f.By)
		i, known := at[key]
		if !known {
			i = len(out)
			at[key], out, subjects = i, append(out, f), append(subjects, nil)
		}
		subjects[i] = append(subjects[i], f.Subject)
	}
	for i := range out {
		out[i].Subject = strings.Join(subjects[i], ", ")
	}
	return out
}

// patchAt returns the object and field of a patch in an EnvoyFilter, as text.
func patchAt(p model.Patch) string {
	return at(p.Filter.Key, fmt.Sprintf("spec.configPatches[%d]", p.Index))
}

// health counts the endpoints of a locality.
type health struct{ ready, other int }

// endpointsOf counts the endpoints of a cluster in a set of resources, by locality ("region/zone/subzone"). It returns
// an empty map if the set has no endpoints for the cluster.
func endpointsOf(set *manifest.Set, c cluster.Outbound) map[string]health {
	out := map[string]health{}
	name := xds.OutboundCluster(c.Port, c.Subset, c.Host)
	var of *endpointv3.ClusterLoadAssignment
	if r := set.Types[xds.Endpoint].Get(name); r != nil {
		if m, err := inspect.Message(r); err == nil {
			of, _ = m.(*endpointv3.ClusterLoadAssignment)
		}
	} else if r := set.Types[xds.Cluster].Get(name); r != nil {
		if m, err := inspect.Message(r); err == nil {
			of = m.(*clusterv3.Cluster).GetLoadAssignment()
		}
	}
	for _, group := range of.GetEndpoints() {
		l := group.GetLocality()
		where := strings.Trim(strings.Join([]string{l.GetRegion(), l.GetZone(), l.GetSubZone()}, "/"), "/")
		n := out[where]
		for _, e := range group.GetLbEndpoints() {
			if s := e.GetHealthStatus(); s == corev3.HealthStatus_UNKNOWN || s == corev3.HealthStatus_HEALTHY {
				n.ready++
			} else {
				n.other++
			}
		}
		out[where] = n
	}
	return out
}

// endpointsSection lists the endpoints of each cluster of a host by locality.
func endpointsSection(s plan.Seen, of plan.HostOrigins) Section {
	out := Section{Name: "endpoints by locality"}
	for _, spec := range of.Clusters {
		c, is := clusterSpec(spec)
		if !is || c.BySNI {
			continue
		}
		by := []string{at(c.Service.Key, "")}
		if c.SubsetRule != nil {
			by = append(by, at(c.SubsetRule.Key, "spec.subsets"))
		}
		counts := endpointsOf(s.Set, c)
		for _, where := range slices.Sorted(maps.Keys(counts)) {
			n := counts[where]
			text := fmt.Sprintf("%d ready", n.ready)
			if n.other > 0 {
				text += fmt.Sprintf(", %d not ready", n.other)
			}
			if where != "" {
				text += " in " + where
			}
			out.Facts = append(out.Facts, Fact{subjectOf(c), text, by})
		}
		if len(counts) == 0 {
			text := "none"
			if d := inspect.Word(c.Discovery); d != "EDS" {
				text = "found by " + d
			}
			out.Facts = append(out.Facts, Fact{subjectOf(c), text, by})
		}
	}
	return out
}
