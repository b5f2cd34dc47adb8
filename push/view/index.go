package view

import (
	"encoding/binary"
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

// Index is what views need to know of a whole snapshot: which inputs its records read. Owned by one goroutine.
type Index struct {
	named      map[string]map[string]int // key of a label -> value -> how many records name it
	compared   map[string]int            // key of a label -> how many records compare it, whatever its value
	localities int                       // records that read the locality
	zones      int                       // records that do where the proxy is zone-aware
	networks   int                       // records by which the network of proxies decides what they reach
	spans      map[string]int            // namespace -> records that have its proxies send spans; "": all proxies
	nodes      int                       // records by which the node that they run on does
	mesh       *model.Mesh               // whose defaultConfig is read as defaults
	defaults   proxyconfig.Settings

	// What selectors of the snapshot that was asked about last chose: proxies of one workload have the same labels.
	snapshot weak.Pointer[mirror.Snapshot]  // weak: endpoints may change for days while nobody joins
	chosen   map[string]choice              // by namespace, cluster and labels
	key      []byte                         // reused
	stated   map[string]map[string][]Served // by namespace, see statedIn
}

// choice is what a snapshot has for all proxies of a namespace and cluster that have the same labels.
type choice struct {
	sidecar         model.Key
	ownAddress      bool // see ownAddress
	bindsOwn        bool // the same
	services        intern.List[model.Key]
	headless        bool // see servicesOf
	closed          bool
	peers, policies intern.List[model.Key]
	authentications intern.List[model.Key]
	labels          intern.List[string] // see Inputs.Labels
	telemetry       model.Key           // see Inputs.Telemetry
	out, in         intern.List[Patch]
	picky           bool // out and in are not the same for all of them
	extensions      []*model.TrafficExtension
}

// maxChosen bounds how many choices are remembered: labels may be as many as proxies.
const maxChosen = 4096

// choice chooses, or remembers.
func (x *Index) choice(s *mirror.Snapshot, root string, n Node) choice {
	x.at(s)
	x.key = append(append(x.key[:0], n.Namespace...), 0)
	x.key = appendLabels(append(append(x.key, n.Cluster...), 0), n.Labels)
	c, is := x.chosen[string(x.key)]
	if is {
		return c
	}
	services, headless := servicesOf(s, n)
	c = choice{sidecar: sidecarOf(s, root, n), services: keys.List(services...), headless: headless, closed: closed(s, root, n),
		peers: keys.List(peersOf(s, root, n)...), policies: keys.List(policiesOf(s, root, n)...), authentications: keys.List(authenticationsOf(s, root, n)...), labels: x.labelsOf(n),
		telemetry: telemetryOf(s, n)}
	c.ownAddress, c.bindsOwn = ownAddress(s, c.sidecar)
	c.extensions = extensionsOf(s, root, n)
	c.out, c.in, c.picky = filtersOf(s, root, n)
	if len(x.chosen) >= maxChosen {
		clear(x.chosen)
	}
	x.chosen[string(x.key)] = c
	return c
}

// at forgets what was chosen of another snapshot.
func (x *Index) at(s *mirror.Snapshot) {
	if at := weak.Make(s); x.snapshot != at {
		x.snapshot, x.chosen, x.stated = at, map[string]choice{}, nil
	}
}

// appendLabels makes equal bytes of equal labels, and of no others.
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

// NewIndex reads a snapshot.
func NewIndex(s *mirror.Snapshot) *Index {
	x := &Index{named: map[string]map[string]int{}, compared: map[string]int{}, spans: map[string]int{}}
	for _, kind := range []model.Kind{model.KindMesh, model.KindVirtualService, model.KindDestinationRule, model.KindNetworkGateways, model.KindTelemetry,
		model.KindEnvoyFilter, model.KindService, model.KindServiceEntry} {
		for r := range s.All(kind) {
			x.count(readBy(r), 1)
		}
	}
	return x
}

// Apply follows one edit. True: other inputs are read, so the views of all nodes may be others.
func (x *Index) Apply(e mirror.Edit) bool {
	x.snapshot, x.chosen, x.stated = weak.Pointer[mirror.Snapshot]{}, nil, nil
	was, is := readBy(e.Old), readBy(e.New)
	differs := x.count(is, 1)
	return x.count(was, -1) || differs
}

// count counts what a record reads in or out. True: something is read that was not, or no longer.
func (x *Index) count(r reading, by int) (differs bool) {
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

// counted counts a key, and says whether it has come or gone.
func counted(m map[string]int, key string, by int) bool {
	before := m[key]
	if m[key] += by; m[key] == 0 {
		delete(m, key)
	}
	return (before == 0) != (m[key] == 0)
}

// label is one label of a proxy.
type label struct{ key, value string }

// reading is which inputs a record may read.
type reading struct {
	named    map[label]bool  // labels whose values it names: other values make no difference
	compared map[string]bool // keys of labels that it compares with those of endpoints
	locality bool
	zones    bool // where the proxy is zone-aware
	network  bool
	node     bool
	// spans: it has proxies of its namespace send spans, which they name themselves in.
	spans     bool
	namespace string
}

func (r *reading) name(key, value string) {
	if r.named == nil {
		r.named = map[label]bool{}
	}
	r.named[label{key, value}] = true
}

func (r *reading) compares(l traffic.Localities) {
	for _, key := range l.Compared() {
		if r.compared == nil {
			r.compared = map[string]bool{}
		}
		r.compared[key] = true
	}
}

// readBy is what a record may read; nothing of nil.
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
		for p := range traffic.All(t.Spec) {
			setting, zones := p.GetLoadBalancer().GetLocalityLbSetting(), p.GetLoadBalancer().GetZoneAwareLbSetting()
			out.locality = out.locality || setting != nil || p.GetOutlierDetection() != nil // the mesh has a setting, too
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

// labelsOf are the labels of a node that some record reads.
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

// inputs are what records read of a node that has these of its labels read, and that a Telemetry (zero: none) picks.
func (x *Index) inputs(labels intern.List[string], telemetry model.Key, n Node) Inputs {
	in := Inputs{Labels: labels}
	if n.Kind == Sidecar { // no others have listeners that report anything
		in.Telemetry = telemetry
	}
	if x.localities > 0 || x.zones > 0 && n.Caps.Has(xds.CapSelfDiscovery) {
		in.Locality = n.Locality
	}
	if x.networks > 0 || x.compared[model.NetworkLabel] > 0 || automaticOf(n) != NoFamily { // names stand for Pods of the network
		in.Network = n.Network
	}
	if x.nodes > 0 || x.compared[model.NodeLabel] > 0 {
		in.Node = n.Metadata["NODE_NAME"]
	}
	return in
}
