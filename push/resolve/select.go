package resolve

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/problem"
)

// The rules are Istio's: https://istio.io/latest/docs/reference/config/networking/service-entry/#ServiceEntry (workloadSelector) and
// https://istio.io/latest/docs/reference/config/networking/workload-entry/. Pods behind a Kubernetes Service are in its EndpointSlices.

// endpointsPrefix begins the names of the Endpoints that are made here; no Kubernetes name has a colon in it, and no record of the
// normaliser begins with it.
const endpointsPrefix = "workloads:"

// EndpointsKey is the key of the Endpoints that the Workloads become which a Service or ServiceEntry selects.
func EndpointsKey(of model.Key) model.Key {
	return model.Key{Kind: model.KindEndpoints, Namespace: of.Namespace, Name: endpointsPrefix + of.Kind.String() + ":" + of.Name, Origin: of.Origin}
}

// selecting makes the endpoints of a Service or ServiceEntry of the workloads that it selects.
func selecting(s *mirror.Snapshot, r model.Record) *unit {
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
	u := &unit{reads: []set{read}}
	var endpoints []*model.Endpoint
	for r := range s.WithPrefix(read.kind, read.namespace, read.prefix) {
		w := r.(*model.Workload)
		e := w.Spec.GetEndpoint()
		if !read.has(w) || e.GetHealth() != model.Health_HEALTH_READY { // as istiod: others are not there
			continue
		}
		if why := leftOut(w, resolution); why != "" {
			u.note(model.Problem{Key: svc.Key, Field: selectorField(svc), Code: problem.Invalid, Severity: problem.Warning, Message: fmt.Sprintf(
				"%s is left out: its address %q is no IP address, and %s", objectName(w), e.GetAddress(), why)})
			continue
		}
		endpoints = append(endpoints, atNamedPorts(svc, e))
	}
	if len(endpoints) == 0 {
		return u
	}
	slices.SortStableFunc(endpoints, func(a, b *model.Endpoint) int { return cmp.Compare(a.GetAddress(), b.GetAddress()) })
	spec := &model.EndpointsSpec{Hosts: svc.Spec.GetHosts(), Endpoints: endpoints}
	for _, p := range svc.Spec.GetPorts() {
		number := cmp.Or(p.GetTargetNumber(), p.GetNumber())
		if p.GetTargetName() != "" {
			number = 0 // only at endpoints that have a port of that name, see atNamedPorts
		}
		spec.Ports = append(spec.Ports, &model.EndpointPort{Name: p.GetName(), Number: number, Service: p.GetNumber()})
	}
	record, err := model.New(EndpointsKey(svc.Key), svc.Created, spec)
	if err != nil { // all of it was encoded before
		panic(err)
	}
	u.became = record
	return u
}

// leftOut says why a workload is none of the endpoints that a host with a resolution stands for; empty: it is one. One without an address is reached by the
// gateways of its network. A name, or a Unix socket, is for hosts whose names are resolved, and there for WorkloadEntries of the config cluster alone
// (istio: pilot/pkg/serviceregistry/serviceentry, workloadEntryHandler: those of another cluster are handed on only where their address is an IP address).
func leftOut(w *model.Workload, resolution model.Resolution) string {
	e := w.Spec.GetEndpoint()
	switch {
	case isIP(e.GetAddress()), e.GetAddress() == "" && e.GetNetwork() != "":
		return ""
	case resolution == model.Resolution_RESOLUTION_EDS:
		return "what the host stands for is not resolved"
	case w.Key.Origin.Cluster() != "":
		return "one of another cluster than the config cluster needs one"
	}
	return ""
}

// atNamedPorts is an endpoint with its ports by the names of a service's ports: a target port may be the name of one of its own.
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
		return e // shared: nothing of it is ever changed
	}
	out := proto.Clone(e).(*model.Endpoint)
	out.Ports = ports
	return out
}

func isIP(address string) bool {
	_, err := netip.ParseAddr(address)
	return err == nil
}

func selectorField(svc *model.Service) string {
	if svc.Key.Kind == model.KindServiceEntry {
		return "spec.workloadSelector"
	}
	return "spec.selector"
}

// objectName is a workload as users name it.
func objectName(w *model.Workload) string {
	if name, ok := strings.CutPrefix(w.Key.Name, model.WorkloadEntryPrefix); ok {
		return "WorkloadEntry " + w.Key.Namespace + "/" + name + w.Key.Origin.Suffix()
	}
	return "Pod " + w.Key.Namespace + "/" + w.Key.Name + w.Key.Origin.Suffix()
}
