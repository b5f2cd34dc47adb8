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
	remote := svc.Key.Kind == model.KindService && svc.Key.Origin.Cluster() != "" // WorkloadEntries are the config cluster's
	if remote || len(selector) == 0 || resolution != model.Resolution_RESOLUTION_EDS && resolution != model.Resolution_RESOLUTION_DNS {
		return nil
	}
	read := set{kind: model.KindWorkload, namespace: svc.Key.Namespace, labels: selector}
	if svc.Key.Kind == model.KindService {
		read.prefix = model.WorkloadEntryPrefix
	}
	u := &unit{reads: []set{read}}
	var endpoints []*model.Endpoint
	for r := range s.WithPrefix(read.kind, read.namespace, read.prefix) {
		w := r.(*model.Workload)
		e := w.Spec.GetEndpoint()
		switch {
		case !read.has(w) || e.GetHealth() != model.Health_HEALTH_READY: // as istiod: others are not there
		case resolution == model.Resolution_RESOLUTION_EDS && !isIP(e.GetAddress()) && (e.GetAddress() != "" || e.GetNetwork() == ""):
			u.note(model.Problem{Key: svc.Key, Field: selectorField(svc), Code: problem.Invalid, Severity: problem.Warning, Message: fmt.Sprintf(
				"%s is left out: its address %q is no IP address, and what the host stands for is not resolved", objectName(w), e.GetAddress())})
		default:
			endpoints = append(endpoints, atNamedPorts(svc, e))
		}
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
		spec.Ports = append(spec.Ports, &model.EndpointPort{Name: p.GetName(), Number: number})
	}
	record, err := model.New(EndpointsKey(svc.Key), svc.Created, spec)
	if err != nil { // all of it was encoded before
		panic(err)
	}
	u.became = record
	return u
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
