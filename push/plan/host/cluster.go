package host

import (
	"slices"

	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/build/cluster"
	"navarch.io/navarch/push/build/endpoint"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/plan/layer"
	"navarch.io/navarch/push/traffic"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

// clusterUnit is one cluster, with the selection of its endpoints.
type clusterUnit struct {
	layer.Unit
	selection input.Selection
	labels    map[string]string  // of the subset
	setting   traffic.Localities // the locality setting, which distributes requests among the endpoints
	demand    demand             // whether endpoints accept only mTLS; computed only for gRPC clients (Form.Whole)
	tls       traffic.TLS        // the security of connections
	ruled     bool               // a DestinationRule states TLS settings
	reached   bool               // only with bySNI: other networks may reach the cluster (Table.Reached)
	bySNI     bool               // a gateway forwards its clients' mTLS connections to the cluster, by SNI
}

// assigned reports whether Envoy requests an assignment (the endpoints, by EDS) for the cluster.
func (c clusterUnit) assigned() bool {
	return slices.ContainsFunc(c.Res.Needs, func(r xds.Ref) bool { return r.Type == xds.Endpoint })
}

// InDNS reports whether the resolution of a service gives its clusters the type STRICT_DNS or LOGICAL_DNS. Clusters of
// these types contain their endpoints.
func InDNS(svc *model.Service) bool {
	by := traffic.DiscoveryByResolution(svc)
	return by == traffic.StrictDNS || by == traffic.LogicalDNS
}

// Dynamic reports whether a service has resolution DYNAMIC_DNS. Proxies resolve the host name in each request to such a
// service, whose own host may be a wildcard.
func Dynamic(svc *model.Service) bool {
	return traffic.DiscoveryByResolution(svc) == traffic.Dynamic
}

// planClusters plans the clusters of a host. Each imported port has the cluster outbound|port||host and one cluster for
// each subset. The method bySNI may add further clusters.
func (t *Table) planClusters(h *Host) {
	old := h.clusters
	var found []input.Problem
	t.clustersOf(h, view.Inputs{}, &found)
	t.problems.Set("clusters "+h.Name, found)
	t.layer.Replace(units(old), units(h.clusters))
}

// clustersOf plans the clusters of a host for proxies with the given inputs (properties such as labels). It records in
// h the inputs that the clusters read.
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
		t.yield()
		for _, sub := range h.Rules.subsets {
			p.cluster(svc, n, sub)
			t.yield()
		}
		if t.PassedBySNI(svc, port) {
			p.bySNI(svc, n, subset{})
			for _, sub := range h.Rules.subsets {
				p.bySNI(svc, n, sub)
				t.yield()
			}
		}
	}
	h.reads = p.place.With(append(p.labels, h.selectors...))
}

// units returns the layer.Unit of each cluster, in order.
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
	place  view.Reads // the other inputs that the clusters or their assignments read
}

// begin returns the parts that are planned in the same way for two clusters of a port and subset: outbound|... and
// outbound_.|... (see bySNI). The parameter name is the name of the cluster.
func (p *clusterPlan) begin(name string, svc *model.Service, port uint32, sub subset) (clusterUnit, cluster.Outbound, traffic.Policy) {
	policy, mesh := p.Policy(p.host.Rules, sub.GetName(), port), p.in.Meshes.Cluster
	c := clusterUnit{selection: p.selection(svc, p.host.Name, port, sub), labels: sub.GetLabels(),
		setting: policy.Localities(svc, mesh, p.key.Caps.Has(xds.CapSelfDiscovery))}
	p.read(c.setting)
	return c, cluster.Outbound{
		Service: svc, Host: p.host.Name, Port: port, Subset: sub.GetName(), Rule: p.host.Rules.Main, SubsetRule: sub.rule,
		Policy: traffic.Intern(policy), Discovery: p.form.discovery(svc, policy), Connection: traffic.ConnectionOf(policy.Pool, mesh),
		Mesh: mesh, Balance: endpoint.Balance{Localities: c.setting},
		Patches: p.patches.Matching(func(f model.Patch) bool { return input.MergesCluster(f, p.Side(), name) }),
	}, policy
}

// cluster plans the cluster of one port and subset, and appends it to the host's clusters.
func (p *clusterPlan) cluster(svc *model.Service, port uint32, sub subset) {
	h, name := p.host, xds.OutboundCluster(port, sub.GetName(), p.host.Name)
	if p.patches.RemovesCluster(p.Side(), name) {
		return
	}
	c, spec, policy := p.begin(name, svc, port, sub)
	if spec.Discovery == traffic.Dynamic && p.local(svc, "spec.hosts", h.Name, p.found) {
		spec.Discovery = traffic.EDS // the cluster has no endpoints, so requests are answered 503
	}
	discovery := spec.Discovery
	// With a minimum health percent Envoy would use endpoints that are not ready while few endpoints are healthy.
	c.selection.NotReady = !p.form.Whole && policy.Outlier.GetMinHealthPercent() <= 0
	p.place.Node = p.place.Node || c.selection.OnNode
	if discovery != traffic.OriginalDst && discovery != traffic.Dynamic && p.in.Gateways.Len() > 0 {
		p.place.Network = true
		h.placed = h.placed || discovery != traffic.EDS
	}
	spec.Upgrade = traffic.Upgrades(policy.Pool, p.in.Meshes.Cluster, input.PortOf(svc, port).GetProtocol())
	spec.Caps, spec.HeaderCase = p.key.Caps&(xds.CapIdentity|xds.CapSelfDiscovery), p.key.HeaderCase
	if discovery == traffic.StrictDNS || discovery == traffic.LogicalDNS {
		spec.Members = p.members(c.selection, c.labels, p.found)
		spec.Balance = p.balance(c.setting, p.inputs, spec.Members)
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
	if c.ruled = policy.TLS != nil; c.ruled { // automatic mTLS does not apply
		spec.Caps |= p.key.Caps & (xds.CapFileSecrets | xds.CapFileLists)
		spec.MTLSDisabled = ""
	}
	client := p.client(svc, port, policy, sub)
	if spec.TLS, wrong = traffic.TLSOf(policy, client, spec.TLS); wrong != nil && !p.form.Whole {
		*p.found = append(*p.found, *wrong) // with Form.Whole the builder reports the problem
	}
	c.tls = spec.TLS
	named := policy.TLS.GetCredentialName()+policy.TLS.GetCaCertCredentialName() != ""
	spec.Secrets = c.tls == traffic.Originate && client.Secrets && named
	if c.tls == traffic.Originate && client.Foreign && traffic.NamesFiles(policy.TLS) && p.key.Caps.Has(xds.CapFileOwners) {
		spec.Foreign = policy.TLSAt.Key.Namespace
	}
	if spec.Members.Len() > 0 {
		spec.Horizon = p.horizon(spec.Members, c.tls, p.inputs)
		spec.Plain, spec.AllPlain = p.plain(&c, spec.Members)
	}
	if u, ok := p.in.Make(p.form.Cluster(spec), svc.Key, p.found); ok {
		c.Unit = u
		h.clusters = append(h.clusters, c)
	}
}

// client returns the properties of the proxies that traffic.TLSOf needs. OwnTLS is false for applications with gRPC's
// own xDS client, since gRPC never forwards TLS of other applications.
func (p *clusterPlan) client(svc *model.Service, port uint32, policy traffic.Policy, sub subset) traffic.Client {
	protocol := input.PortOf(svc, port).GetProtocol()
	return traffic.Client{Identity: p.key.Caps.Has(xds.CapIdentity), Secrets: p.secrets(policy, sub),
		Foreign: policy.TLSAt.Key.Namespace != p.key.Namespace, ReadsFiles: p.key.Kind == view.Router && readsFiles(policy.TLS, p.key.Caps),
		OwnTLS: !p.form.Whole && (protocol == model.Protocol_PROTOCOL_TLS || protocol == model.Protocol_PROTOCOL_HTTPS)}
}

// readsFiles reports whether the Envoy of a gateway itself would read a file that a rule's TLS settings name. A
// credentialName replaces all files except revocation lists.
func readsFiles(tls *networkingv1.ClientTLSSettings, caps xds.Caps) bool {
	credential := tls.GetCredentialName() != ""
	lists := tls.GetCaCrl() != "" && (credential || tls.GetCaCertCredentialName() != "" || !caps.Has(xds.CapFileLists))
	return lists || !credential && !caps.Has(xds.CapFileSecrets) && traffic.NamesFiles(tls)
}

// secrets reports whether proxies may use the Secret that a rule names with credentialName. Gateways may use it, and so
// may the Envoys that a workloadSelector of the rule selects. The packages push/access and push/traffic
// (Client.Foreign) decide whether the proxies get the Secret's private key.
func (p *clusterPlan) secrets(policy traffic.Policy, sub subset) bool {
	if p.key.Kind == view.Router {
		return true
	}
	rule := p.host.Rules.at(sub.GetName(), policy.TLSAt)
	return rule != nil && !p.form.Whole && len(rule.Spec.GetWorkloadSelector().GetMatchLabels()) > 0
}

// read records the inputs of a proxy that a locality setting reads.
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

// selection returns the input.Selection that selects the members (endpoints) of a cluster.
func (t *Table) selection(svc *model.Service, host string, port uint32, sub subset) input.Selection {
	q := input.Selection{Service: svc, Host: host, Port: port, Rule: sub.rule, Subset: sub.GetName(), OnNode: svc.Spec.GetNodeLocal()}
	if t.in.ClusterLocal(host, t.key.Domain) {
		q.Local, q.Cluster = true, t.key.Cluster
	}
	if t.key.Caps.Has(xds.CapIdentity) { // proxies without a certificate never use mTLS
		q.Peers = t.in.Peers(svc.Key.Namespace)
	}
	return q
}
