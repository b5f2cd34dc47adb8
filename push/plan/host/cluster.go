package host

import (
	"cmp"
	"slices"

	"navarch.io/navarch/push/build/cluster"
	"navarch.io/navarch/push/build/endpoint"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/plan/layer"
	"navarch.io/navarch/push/traffic"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
)

// clusterUnit is one cluster, and what its assignment selects.
type clusterUnit struct {
	layer.Unit
	selection input.Selection
	labels    map[string]string  // of the subset
	setting   traffic.Localities // how the proxy's place decides among the endpoints
	demand    demand             // of clients that speak to all endpoints alike
	tls       traffic.TLS        // how the cluster's connections are secured
	ruled     bool               // a rule says how
}

// assigned says whether Envoy asks for the cluster's endpoints.
func (c clusterUnit) assigned() bool {
	return slices.ContainsFunc(c.Res.Needs, func(r xds.Ref) bool { return r.Type == xds.Endpoint })
}

// InDNS says whether the endpoints of a service stand inside its clusters.
func InDNS(svc *model.Service) bool {
	by := traffic.DiscoveryByResolution(svc)
	return by == traffic.StrictDNS || by == traffic.LogicalDNS
}

// Dynamic says whether the names of a service are resolved as clients ask for them.
func Dynamic(svc *model.Service) bool {
	return traffic.DiscoveryByResolution(svc) == traffic.Dynamic
}

// planClusters plans outbound|port||host and one cluster more for each subset, for all ports that the scope sees.
func (t *Table) planClusters(h *Host) {
	old := h.clusters
	var found []input.Problem
	t.clustersOf(h, view.Inputs{}, &found)
	t.problems.Set("clusters "+h.Name, found)
	t.layer.Replace(units(old), units(h.clusters))
}

// clustersOf plans the clusters of a host for proxies with certain inputs, and notes which inputs are read.
func (t *Table) clustersOf(h *Host, inputs view.Inputs, found *[]input.Problem) {
	h.clusters, h.reads, h.placed = nil, view.Reads{}, false
	if h.Service == nil {
		return
	}
	p := clusterPlan{Table: t, host: h, inputs: inputs, found: found}
	h.clusters = make([]clusterUnit, 0, len(h.Service.Spec.GetPorts())*(1+len(h.Rules.subsets)))
	for port, svc := range h.Ports() {
		n := port.GetNumber()
		if !t.hasPort(h, n) {
			continue
		}
		p.cluster(svc, n, subset{})
		t.rest()
		for _, sub := range h.Rules.subsets {
			p.cluster(svc, n, sub)
			t.rest()
		}
	}
	h.reads = p.place.With(append(p.labels, h.selectors...))
}

func units(clusters []clusterUnit) []layer.Unit {
	out := make([]layer.Unit, len(clusters))
	for i, c := range clusters {
		out[i] = c.Unit
	}
	return out
}

// clusterPlan plans the clusters of one host.
type clusterPlan struct {
	*Table
	host   *Host
	inputs view.Inputs
	found  *[]input.Problem

	labels []string   // label keys that the clusters or their assignments read
	place  view.Reads // what they read beside labels
}

func (p *clusterPlan) cluster(svc *model.Service, port uint32, sub subset) {
	h, name := p.host, xds.OutboundCluster(port, sub.GetName(), p.host.Name)
	if p.patches.RemovesCluster(p.Side(), name) {
		return
	}
	policy := p.Policy(h.Rules, sub.GetName(), port)
	discovery := p.form.discovery(svc, policy)
	c := clusterUnit{selection: p.selection(svc, h.Name, port, sub), labels: sub.GetLabels(),
		setting: policy.Localities(svc, p.in.Meshes.Cluster, p.key.Caps.Has(xds.CapSelfDiscovery))}
	c.selection.NotReady = !p.form.Whole && policy.Outlier.GetMinHealthPercent() <= 0 // else Envoy would send there while few are ready
	p.place.Node = p.place.Node || c.selection.OnNode
	p.read(c.setting)
	if discovery != traffic.OriginalDst && discovery != traffic.Dynamic && p.in.Gateways.Len() > 0 {
		p.place.Network = true
		h.placed = h.placed || discovery != traffic.EDS
	}
	spec := cluster.Outbound{
		Service: svc, Host: h.Name, Port: port, Subset: sub.GetName(), Rule: h.Rules.Main, SubsetRule: sub.rule,
		Policy: traffic.Intern(policy), Discovery: discovery, Connection: traffic.ConnectionOf(policy.Pool, p.in.Meshes.Cluster),
		Upgrade: traffic.Upgrades(policy.Pool, p.in.Meshes.Cluster, input.PortOf(svc, port).GetProtocol()),
		Mesh:    p.in.Meshes.Cluster, Caps: p.key.Caps & (xds.CapIdentity | xds.CapSelfDiscovery), Balance: endpoint.Balance{Localities: c.setting}, HeaderCase: p.key.HeaderCase,
		Patches: p.patches.Matching(func(f model.Patch) bool {
			return input.MergesCluster(f, p.Side(), name)
		}),
	}
	if discovery == traffic.StrictDNS || discovery == traffic.LogicalDNS {
		spec.Members, spec.Balance = p.in.Members(c.selection, c.labels), p.balance(c.setting, p.inputs)
		h.placed = h.placed || c.setting.Stated()
	}
	if discovery == traffic.StrictDNS || discovery == traffic.LogicalDNS || discovery == traffic.Dynamic {
		spec.Families = p.key.Listening.Families
	}
	if p.form.Whole {
		c.demand = demanding(p.in, c.selection, c.labels)
	}
	p.secure(&spec, &c, p.found)
	var wrong *model.Problem
	if c.ruled = policy.TLS != nil; c.ruled { // it decides alone
		spec.Caps |= p.key.Caps & (xds.CapFileSecrets | xds.CapFileLists)
		spec.MTLSDisabled = ""
	}
	if spec.TLS, wrong = traffic.TLSOf(policy, p.client(svc, port, policy, sub), spec.TLS); wrong != nil && !p.form.Whole {
		*p.found = append(*p.found, *wrong) // of others the builder says what gRPC's client makes of it
	}
	c.tls = spec.TLS
	if spec.Members.Len() > 0 {
		spec.Horizon = p.horizon(spec.Members, c.tls, p.inputs)
		spec.Plain, spec.AllPlain = p.plain(&c, spec.Members)
	}
	if u, ok := p.in.Make(p.form.Cluster(spec), svc.Key, p.found); ok {
		c.Unit = u
		h.clusters = append(h.clusters, c)
	}
}

// client describes the proxies to traffic.TLSOf. Applications with gRPC's own xDS client forward nobody's TLS.
func (p *clusterPlan) client(svc *model.Service, port uint32, policy traffic.Policy, sub subset) traffic.Client {
	protocol := input.PortOf(svc, port).GetProtocol()
	return traffic.Client{Identity: p.key.Caps.Has(xds.CapIdentity), Secrets: p.secrets(policy, sub),
		OwnTLS: !p.form.Whole && (protocol == model.Protocol_PROTOCOL_TLS || protocol == model.Protocol_PROTOCOL_HTTPS)}
}

// secrets says whether proxies may have the Secret that a rule names with credentialName: those that the rule selects, which makes them use it
// (push/access), and no client but Envoy.
func (p *clusterPlan) secrets(policy traffic.Policy, sub subset) bool {
	rule := p.host.Rules.at(sub.GetName(), policy.TLSAt)
	return rule != nil && !p.form.Whole && len(rule.Spec.GetWorkloadSelector().GetMatchLabels()) > 0
}

// read notes what a setting reads of the proxy.
func (p *clusterPlan) read(setting traffic.Localities) {
	if !setting.Stated() {
		return
	}
	p.place.Locality = true
	for _, key := range setting.Compared() {
		p.place.Network = p.place.Network || key == model.NetworkLabel
		p.place.Node = p.place.Node || key == model.NodeLabel
		if _, known := p.placeLabel(key, view.Inputs{}); !known {
			p.labels = append(p.labels, key)
		}
	}
}

// placeLabel is the value of a label that follows from where a proxy is, and not from its labels.
func (t *Table) placeLabel(key string, inputs view.Inputs) (value string, known bool) {
	switch key {
	case model.NetworkLabel:
		return inputs.Network, true
	case model.NodeLabel:
		return inputs.Node, true
	case model.ClusterLabel:
		return cmp.Or(t.key.Cluster, t.in.Cluster), true
	}
	return model.LocalityLabel(inputs.Locality, key)
}

// balance is how the place of proxies with certain inputs decides among the endpoints of a cluster with a setting.
func (t *Table) balance(setting traffic.Localities, inputs view.Inputs) endpoint.Balance {
	if !setting.Stated() {
		return endpoint.Balance{}
	}
	b := endpoint.Balance{Localities: setting, Locality: inputs.Locality}
	var labels []string
	for _, key := range setting.Compared() {
		value, known := t.placeLabel(key, inputs)
		if !known {
			value, _ = inputs.Label(key)
		}
		labels = append(labels, key+"="+value)
	}
	b.Labels = strs.List(labels...)
	return b
}

var strs intern.Table[string]

// selection is what decides the members of a cluster.
func (t *Table) selection(svc *model.Service, host string, port uint32, sub subset) input.Selection {
	q := input.Selection{Service: svc, Host: host, Port: port, Rule: sub.rule, Subset: sub.GetName(), OnNode: svc.Spec.GetNodeLocal()}
	if t.in.ClusterLocal(host, t.key.Domain) {
		q.Local, q.Cluster = true, t.key.Cluster
	}
	if t.key.Caps.Has(xds.CapIdentity) { // others never speak mTLS
		q.Peers = t.in.Peers(svc.Key.Namespace)
	}
	return q
}
