package view

import (
	"encoding/binary"
	"maps"
	"slices"
	"weak"

	"navarch.io/navarch/push/traffic"
	"navarch.io/navarch/push/virtualservice"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/proxyconfig"
)

// Index counts the records (configuration objects) of a snapshot that read a property of proxies, for each property. It
// also caches the objects that apply to proxies, for the snapshot of the last call of View. It is not safe for
// concurrent use.
type Index struct {
	*counts
	shared bool // another Index (Fork) may use the same counts, so they are copied before they change

	mesh     *model.Mesh          // the Mesh that defaults was derived from
	defaults proxyconfig.Settings // the settings in the mesh's defaultConfig

	// The fields below cache the objects that apply to proxies at one snapshot, because proxies of one workload have
	// the same labels. The pointer to the snapshot is weak. The index therefore does not retain an old snapshot if no
	// proxy joins for days.
	snapshot weak.Pointer[mirror.Snapshot]
	chosen   map[string]choice              // by kind, namespace, cluster and labels
	key      []byte                         // reused buffer
	stated   map[string]map[string][]Served // by namespace, see statedIn
}

// counts contains the numbers of records that read each property of proxies.
type counts struct {
	named      map[string]map[string]int // key of a label -> value -> records that name the value
	compared   map[string]int            // key of a label -> records that compare its value with labels of endpoints
	localities int                       // records that read the locality of every proxy
	zones      int                       // records that only read the locality of zone-aware proxies
	networks   int                       // records that read the network of a proxy
	spans      map[string]int            // namespace -> records that configure tracing for its proxies; "" means all
	nodes      int                       // records that read the Node of a proxy
}

// clone returns an independent copy.
func (c *counts) clone() *counts {
	next := *c
	next.named, next.compared, next.spans = make(map[string]map[string]int, len(c.named)), maps.Clone(c.compared), maps.Clone(c.spans)
	for key, values := range c.named {
		next.named[key] = maps.Clone(values)
	}
	return &next
}

// choice contains the objects that apply to all proxies with the same kind, namespace, cluster and labels.
type choice struct {
	sidecar         model.Key
	ownAddress      bool // listeners of the Sidecar depend on the workload's address (see the function ownAddress)
	bindsOwn        bool // some ingress listener of the Sidecar has no bind (see the function ownAddress)
	services        intern.List[model.Key]
	headless        bool // a headless service with a TCP port that is not HTTP selects the proxies
	closed          bool // a policy that cannot be enforced selects the proxies
	peers, policies intern.List[model.Key]
	authentications intern.List[model.Key]
	labels          intern.List[string] // see Inputs.Labels
	telemetry       model.Key           // see Inputs.Telemetry
	out, in         intern.List[Patch]
	picky           bool // the fields out and in depend on more than labels, and are computed for each proxy
	extensions      []*model.TrafficExtension
}

// maxChosen is the maximum number of cached choices. Without a limit, proxies that all have different labels would fill
// the memory.
const maxChosen = 4096

// choice returns the objects that apply to the node, from the cache if possible. The parameter root is the root
// namespace.
func (x *Index) choice(s *mirror.Snapshot, root string, n Node) choice {
	x.at(s)
	x.key = append(append(x.key[:0], byte(n.Kind)), n.Namespace...)
	x.key = append(x.key, 0)
	x.key = appendLabels(append(append(x.key, n.Cluster...), 0), n.Labels)
	c, is := x.chosen[string(x.key)]
	if is {
		return c
	}
	services, headless := servicesOf(s, n)
	c = choice{sidecar: sidecarOf(s, root, n), services: keys.List(services...), headless: headless,
		closed: closed(s, root, n), peers: keys.List(peersOf(s, root, n)...),
		policies: keys.List(policiesOf(s, root, n)...), labels: x.labelsOf(n),
		authentications: keys.List(authenticationsOf(s, root, n)...),
		telemetry:       telemetryOf(s, n)}
	c.ownAddress, c.bindsOwn = ownAddress(s, c.sidecar)
	c.extensions = extensionsOf(s, root, n)
	c.out, c.in, c.picky = filtersOf(s, root, n)
	if len(x.chosen) >= maxChosen {
		clear(x.chosen)
	}
	x.chosen[string(x.key)] = c
	return c
}

// chosenFor returns the choice for one proxy, and the ports that ServiceEntries define at the proxy's addresses. If
// patches match by more than labels, chosenFor selects the patches for this proxy alone.
func (x *Index) chosenFor(s *mirror.Snapshot, root string, n Node) (c choice, served []Served) {
	c, served = x.choice(s, root, n), x.servedBy(s, n)
	if len(served) > 0 {
		c.services = withServed(s, c.services, served)
	}
	if c.picky {
		c.out, c.in, _ = filtersOf(s, root, n)
	}
	return c, served
}

// at clears the cache unless it belongs to the snapshot s.
func (x *Index) at(s *mirror.Snapshot) {
	if at := weak.Make(s); x.snapshot != at {
		x.snapshot, x.chosen, x.stated = at, map[string]choice{}, nil
	}
}

// appendLabels appends an encoding of labels. Equal labels have equal encodings, and different labels have different
// encodings.
func appendLabels(b []byte, labels map[string]string) []byte {
	var few [16]string
	sorted := few[:0]
	for key := range labels {
		sorted = append(sorted, key)
	}
	slices.Sort(sorted)
	for _, key := range sorted {
		b = binary.AppendUvarint(b, uint64(len(key)))
		b = append(b, key...)
		b = binary.AppendUvarint(b, uint64(len(labels[key])))
		b = append(b, labels[key]...)
	}
	return b
}

// NewIndex returns the Index of a snapshot. It reads all records of the kinds that read properties of proxies.
func NewIndex(s *mirror.Snapshot) *Index {
	x := &Index{counts: &counts{named: map[string]map[string]int{}, compared: map[string]int{}, spans: map[string]int{}}}
	for _, kind := range []model.Kind{model.KindMesh, model.KindVirtualService, model.KindDestinationRule,
		model.KindNetworkGateways, model.KindTelemetry, model.KindEnvoyFilter, model.KindService,
		model.KindServiceEntry} {
		for r := range s.All(kind) {
			x.count(readBy(r), 1)
		}
	}
	return x
}

// Fork returns an independent Index of the same snapshot, with an empty cache. Only the goroutine that uses x may call
// Fork. Another goroutine may use the result.
func (x *Index) Fork() *Index {
	x.shared = true
	return &Index{counts: x.counts, shared: true, mesh: x.mesh, defaults: x.defaults}
}

// Apply updates the index by one edit of a record, and clears the cache. The result is true if the set of properties
// that records read has changed. In this case the Views of all nodes may have changed. If the result is false, only
// Views that depend on the record itself may have changed.
func (x *Index) Apply(e mirror.Edit) bool {
	x.snapshot, x.chosen, x.stated = weak.Pointer[mirror.Snapshot]{}, nil, nil
	was, is := readBy(e.Old), readBy(e.New)
	if was.nothing() && is.nothing() {
		return false
	}
	if x.shared {
		x.counts, x.shared = x.counts.clone(), false
	}
	differs := x.count(is, 1)
	return x.count(was, -1) || differs
}

// count changes the counts of all properties that a record reads. The parameter by is 1 or -1. The result is true if a
// count has become zero, or was zero before.
func (x *counts) count(r reading, by int) (differs bool) {
	for label := range r.named {
		if x.named[label.key] == nil {
			x.named[label.key] = map[string]int{}
		}
		differs = counted(x.named[label.key], label.value, by) || differs
		if len(x.named[label.key]) == 0 {
			delete(x.named, label.key)
		}
	}
	for key := range r.compared {
		differs = counted(x.compared, key, by) || differs
	}
	for _, place := range []struct {
		reads bool
		count *int
	}{{r.locality, &x.localities}, {r.zones, &x.zones}, {r.network, &x.networks}, {r.node, &x.nodes}} {
		if place.reads {
			before := *place.count > 0
			*place.count += by
			differs = differs || before != (*place.count > 0)
		}
	}
	if r.spans {
		differs = counted(x.spans, r.namespace, by) || differs
	}
	return differs
}

// counted adds a number to the count of a key. The result is true if the count has become zero, or was zero before.
func counted(m map[string]int, key string, by int) bool {
	before := m[key]
	if m[key] += by; m[key] == 0 {
		delete(m, key)
	}
	return (before == 0) != (m[key] == 0)
}

// label is one label of a proxy.
type label struct{ key, value string }

// reading lists the properties of proxies that a record may read.
type reading struct {
	named    map[label]bool  // labels that the record names by key and value
	compared map[string]bool // keys of labels that the record compares with labels of endpoints
	locality bool            // the locality of every proxy
	zones    bool            // the locality of zone-aware proxies
	network  bool
	node     bool
	// spans is true if the record configures tracing for the proxies of namespace.
	spans     bool
	namespace string
}

// nothing reports whether the record reads no property.
func (r *reading) nothing() bool {
	return len(r.named)+len(r.compared) == 0 && !r.locality && !r.zones && !r.network && !r.node && !r.spans
}

// name adds a label whose key and value the record names.
func (r *reading) name(key, value string) {
	if r.named == nil {
		r.named = map[label]bool{}
	}
	r.named[label{key, value}] = true
}

// compares adds the keys of the labels that a locality setting compares with labels of endpoints.
func (r *reading) compares(l traffic.Localities) {
	for _, key := range l.Compared() {
		if r.compared == nil {
			r.compared = map[string]bool{}
		}
		r.compared[key] = true
	}
}

// readBy returns the properties of proxies that a record may read. The result for nil is empty.
func readBy(r model.Record) (out reading) {
	switch t := r.(type) {
	case *model.VirtualService:
		for key, value := range virtualservice.SourceLabels(t) {
			out.name(key, value)
		}
	case *model.DestinationRule:
		for key, value := range t.Spec.GetWorkloadSelector().GetMatchLabels() {
			out.name(key, value)
		}
		for _, p := range traffic.All(t.Spec) {
			setting, zones := p.GetLoadBalancer().GetLocalityLbSetting(), p.GetLoadBalancer().GetZoneAwareLbSetting()
			// Outlier detection enables the mesh's locality setting.
			out.locality = out.locality || setting != nil || p.GetOutlierDetection() != nil
			out.zones = out.zones || zones.GetEnabled().GetValue()
			out.compares(traffic.Localities{Setting: setting})
			out.compares(traffic.Localities{Zones: zones})
		}
	case *model.Mesh:
		setting, zones := t.Spec.GetLocalityLbSetting(), t.Spec.GetZoneAwareLbSetting()
		out.locality, out.zones = len(setting.GetDistribute()) > 0, zones.GetEnabled().GetValue()
		out.compares(traffic.Localities{Setting: setting})
		out.compares(traffic.Localities{Zones: zones})
		out.spans = len(t.Spec.GetDefaultProviders().GetTracing()) > 0
	case *model.NetworkGateways:
		out.network = true
	case *model.Telemetry:
		out.spans, out.namespace = len(t.Spec.GetTracing()) > 0, t.Key.Namespace
	case *model.EnvoyFilter:
		out.spans, out.namespace = bringsTracer(t.Spec), t.Key.Namespace
	case *model.Service:
		setting := traffic.DistributionOf(t)
		out.locality = setting != nil
		out.node = t.Spec.GetNodeLocal() || t.Spec.GetDistribution() == model.Distribution_DISTRIBUTION_SAME_NODE
		out.compares(traffic.Localities{Setting: setting})
	}
	return out
}

// labelsOf returns the labels of a node that some record reads, as sorted "key=value".
func (x *Index) labelsOf(n Node) intern.List[string] {
	var all []string
	for key, values := range x.named {
		if v, ok := n.Labels[key]; ok && (values[v] > 0 || x.compared[key] > 0) {
			all = append(all, key+"="+v)
		}
	}
	for key := range x.compared {
		if v, ok := n.Labels[key]; ok && x.named[key] == nil {
			all = append(all, key+"="+v)
		}
	}
	slices.Sort(all)
	return strs.List(all...)
}

// inputs returns the Inputs of a node without Self, Extensions, Listeners and Own. The parameter labels is the result
// of labelsOf. The parameter telemetry is the Telemetry that selects the node, or zero.
func (x *Index) inputs(labels intern.List[string], telemetry model.Key, n Node) Inputs {
	in := Inputs{Labels: labels}
	if n.Kind == Sidecar { // for routers, Edge.Telemetry has the key
		in.Telemetry = telemetry
	}
	if x.localities > 0 || x.zones > 0 && n.Caps.Has(xds.CapSelfDiscovery) {
		in.Locality = n.Locality
	}
	// An agent that resolves names returns Pod addresses of the proxy's own network, so the network matters.
	if x.networks > 0 || x.compared[model.NetworkLabel] > 0 || automaticOf(n) != NoFamily {
		in.Network = n.Network
		in.Alone = n.Network != "" && n.Metadata["REQUESTED_NETWORK_VIEW"] == n.Network
	}
	if x.nodes > 0 || x.compared[model.NodeLabel] > 0 {
		in.Node = n.Metadata["NODE_NAME"]
	}
	return in
}
