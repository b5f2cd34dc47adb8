package resolve

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/problem"
)

// The rules are Istio's: https://istio.io/latest/docs/reference/config/networking/service-entry/#ServiceEntry
// (workloadSelector) and https://istio.io/latest/docs/reference/config/networking/workload-entry/. Pods that a
// Kubernetes Service selects are in its EndpointSlices, so they are not selected here.

// endpointsPrefix is the prefix of the names of Endpoints that this package creates. These names are unique, because
// Kubernetes names contain no colon, and no record of the normaliser has the prefix.
const endpointsPrefix = "workloads:"

// EndpointsKey returns the key of the record of Endpoints for the selector of a Service or ServiceEntry. The argument
// is the key of the Service or ServiceEntry. A resolved snapshot contains the record only if the selector selects at
// least one ready workload with a usable address.
func EndpointsKey(of model.Key) model.Key {
	name := endpointsPrefix + of.Kind.String() + ":" + of.Name
	return model.Key{Kind: model.KindEndpoints, Namespace: of.Namespace, Name: name, Origin: of.Origin}
}

// selectEndpoints creates the Endpoints with the ready workloads that a Service or ServiceEntry selects. The result is
// nil if the record has no selector, or if its resolution uses no such endpoints.
func selectEndpoints(s *source, r model.Record) *unit {
	svc := r.(*model.Service)
	selector := svc.Spec.GetSelector()
	resolution := svc.Spec.GetResolution()
	if len(selector) == 0 || resolution != model.Resolution_RESOLUTION_EDS && resolution != model.Resolution_RESOLUTION_DNS {
		return nil
	}
	read := set{kind: model.KindWorkload, namespace: svc.Key.Namespace, labels: selector}
	if svc.Key.Kind == model.KindService { // a ServiceEntry selects the workloads of all clusters
		read.prefix, read.ofCluster, read.cluster = model.WorkloadEntryPrefix, true, svc.Key.Origin.Cluster()
	}
	u, selected := &unit{reads: []set{read}}, s.selected(read, resolution)
	for _, left := range selected.left {
		u.addProblem(model.Problem{Key: svc.Key, Field: selectorField(svc), Code: problem.Invalid, Severity: problem.Warning, Message: left})
	}
	if len(selected.endpoints) == 0 {
		return u
	}
	spec := &model.EndpointsSpec{Hosts: svc.Spec.GetHosts(), Endpoints: selected.endpoints}
	for _, p := range svc.Spec.GetPorts() {
		number := cmp.Or(p.GetTargetNumber(), p.GetNumber())
		if p.GetTargetName() != "" {
			number = 0 // only endpoints with a port of that name have the port, see atNamedPorts
			spec.Endpoints = nil
		}
		spec.Ports = append(spec.Ports, &model.EndpointPort{Name: p.GetName(), Number: number, Service: p.GetNumber()})
	}
	if spec.Endpoints == nil {
		for _, e := range selected.endpoints {
			spec.Endpoints = append(spec.Endpoints, atNamedPorts(svc, e))
		}
	}
	// Hashes of the records that it is made of stand for the content. Encoding a thousand endpoints takes a millisecond.
	hash := model.HashOf(slices.Concat(svc.Hash[:], selected.hash[:]))
	record, err := model.Derived(EndpointsKey(svc.Key), svc.Created, hash, spec)
	if err != nil { // impossible: the key is that of Endpoints
		panic(err)
	}
	u.result = record
	return u
}

// selection has the ready workloads of a set.
type selection struct {
	endpoints []*model.Endpoint // in ascending order of the addresses
	hash      model.Hash        // of the workloads' records
	left      []string          // messages about workloads that are left out
}

// selected returns the selection of a set for hosts with the given resolution.
func (s *source) selected(of set, resolution model.Resolution) *selection {
	key := selectionOf(of, resolution)
	if known := s.selections[key]; known != nil {
		return known
	}
	one := &selection{}
	s.selections[key] = one
	var hashes []byte
	for _, w := range s.ready(of) {
		if !of.has(w) {
			continue
		}
		if why := leftOut(w, resolution); why != "" {
			one.left = append(one.left,
				fmt.Sprintf("%s is left out: its address %q is not an IP address, and %s", objectName(w), w.Spec.GetEndpoint().GetAddress(), why))
			continue
		}
		one.endpoints, hashes = append(one.endpoints, w.Spec.GetEndpoint()), append(hashes, w.Hash[:]...)
	}
	one.hash = model.HashOf(hashes)
	return one
}

// ready returns the ready workloads of the namespace and prefix of a set, in ascending order of the addresses. Other
// workloads are dropped, as in istiod.
func (s *source) ready(of set) []*model.Workload {
	at := [2]string{of.namespace, of.prefix}
	all, known := s.workloads[at]
	if known {
		return all
	}
	for r := range s.WithPrefix(of.kind, of.namespace, of.prefix) {
		if w := r.(*model.Workload); w.Spec.GetEndpoint().GetHealth() == model.Health_HEALTH_READY {
			all = append(all, w)
		}
	}
	slices.SortStableFunc(all, func(a, b *model.Workload) int {
		return cmp.Compare(a.Spec.GetEndpoint().GetAddress(), b.Spec.GetEndpoint().GetAddress())
	})
	s.workloads[at] = all
	return all
}

// selectionOf returns a key that differs for different selections.
func selectionOf(of set, resolution model.Resolution) string {
	key := fmt.Sprintf("%q %q %v %q %d", of.namespace, of.prefix, of.ofCluster, of.cluster, resolution)
	for _, name := range slices.Sorted(maps.Keys(of.labels)) {
		key += fmt.Sprintf(" %q=%q", name, of.labels[name])
	}
	return key
}

// leftOut returns the reason why a workload cannot be an endpoint of a host with the given resolution, or "" if it can.
// A workload without an address but with a network is reached through the gateways of its network. The address may be a
// name or a Unix socket only for a host that is resolved by DNS. As in istiod, WorkloadEntries of other clusters than
// the config cluster need an IP address (pilot/pkg/serviceregistry/serviceentry, workloadEntryHandler).
func leftOut(w *model.Workload, resolution model.Resolution) string {
	e := w.Spec.GetEndpoint()
	switch {
	case isIP(e.GetAddress()), e.GetAddress() == "" && e.GetNetwork() != "":
		return ""
	case resolution == model.Resolution_RESOLUTION_EDS:
		return "a host without DNS resolution needs one"
	case w.Key.Origin.Cluster() != "":
		return "a WorkloadEntry outside of the config cluster needs one"
	}
	return ""
}

// atNamedPorts returns the endpoint e with further names for its ports. A target port of the service may be the name of
// a port of e. In this case, the port of e also gets the name of the service's port. The result may be e itself.
func atNamedPorts(svc *model.Service, e *model.Endpoint) *model.Endpoint {
	var ports map[string]uint32
	for _, p := range svc.Spec.GetPorts() {
		number, named := e.GetPorts()[p.GetTargetName()]
		if _, own := e.GetPorts()[p.GetName()]; !named || own {
			continue
		}
		if ports == nil {
			ports = maps.Clone(e.GetPorts())
		}
		ports[p.GetName()] = number
	}
	if ports == nil {
		return e
	}
	out := proto.Clone(e).(*model.Endpoint)
	out.Ports = ports
	return out
}

// isIP reports whether an address is an IP address.
func isIP(address string) bool {
	_, err := netip.ParseAddr(address)
	return err == nil
}

// selectorField returns the path of the selector in the object, for the texts of problems.
func selectorField(svc *model.Service) string {
	if svc.Key.Kind == model.KindServiceEntry {
		return "spec.workloadSelector"
	}
	return "spec.selector"
}

// objectName returns the name of a workload's object, for the texts of problems.
func objectName(w *model.Workload) string {
	if name, ok := strings.CutPrefix(w.Key.Name, model.WorkloadEntryPrefix); ok {
		return "WorkloadEntry " + w.Key.Namespace + "/" + name + w.Key.Origin.Suffix()
	}
	return "Pod " + w.Key.Namespace + "/" + w.Key.Name + w.Key.Origin.Suffix()
}
