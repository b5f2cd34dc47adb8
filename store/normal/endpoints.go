package normal

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"

	"google.golang.org/protobuf/proto"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
)

// endpointSliceRecords returns the records of an EndpointSlice: one record, or several for a large slice (split).
// Slices without a Service and slices of FQDNs are ignored with a warning.
func endpointSliceRecords(n *Normalizer, r *report, obj *object.Object, ctx Lookup) []model.Record {
	slice := &discoveryv1.EndpointSlice{}
	if !r.kubernetes(obj, slice) {
		return nil
	}
	service := obj.Labels[discoveryv1.LabelServiceName]
	if service == "" {
		r.warnf(problem.NoEffect, "metadata.labels["+discoveryv1.LabelServiceName+"]", "missing: the slice belongs to no Service and is ignored")
		return nil
	}
	if slice.AddressType == discoveryv1.AddressTypeFQDN {
		r.warnf(problem.NotSupported, "addressType", "FQDN slices are ignored, as in Istio")
		return nil
	}
	spec := &model.EndpointsSpec{Hosts: []string{n.fqdn(service, obj.ID.Namespace)}}
	for i, p := range slice.Ports {
		if p.Port == nil {
			continue // a nil port stands for all ports, so there is no number to connect to
		}
		r.port(fmt.Sprintf("ports[%d].port", i), uint32(*p.Port))
		spec.Ports = append(spec.Ports, &model.EndpointPort{Name: deref(p.Name), Number: uint32(*p.Port)})
	}
	slices.SortFunc(spec.Ports, func(a, b *model.EndpointPort) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Number, b.Number))
	})
	for i, e := range slice.Endpoints {
		spec.Endpoints = append(spec.Endpoints, n.endpoints(r, fmt.Sprintf("endpoints[%d]", i), obj.ID, &e, ctx)...)
	}
	spec.Endpoints = sortEndpoints(spec.Endpoints)
	return r.split(obj, obj.ID.Name, spec)
}

// maxEndpoints is the size in bytes above which a list of endpoints is split into several records.
const maxEndpoints = 64 << 10

// split returns the records of one list of endpoints. A list that is too large becomes several records, whose number is
// a power of two. The hash of an endpoint's address selects its record, so an endpoint stays in its record while others
// change. Each record is valid on its own.
func (r *report) split(obj *object.Object, name string, spec *model.EndpointsSpec) []model.Record {
	parts := 1
	for size := proto.Size(spec); size > maxEndpoints*parts*3/4 && size > maxEndpoints; {
		parts *= 2
	}
	if parts == 1 {
		return r.record(model.KindEndpoints, obj, name, spec)
	}
	all := make([]*model.EndpointsSpec, parts)
	for i := range all {
		all[i] = &model.EndpointsSpec{Hosts: spec.Hosts, Ports: spec.Ports}
	}
	for _, e := range spec.Endpoints {
		hash := fnv.New32a()
		hash.Write([]byte(e.Address))
		part := all[hash.Sum32()%uint32(parts)]
		part.Endpoints = append(part.Endpoints, e)
	}
	var records []model.Record
	for i, part := range all {
		records = append(records, r.record(model.KindEndpoints, obj, fmt.Sprintf("%s:%d", name, i), part)...)
	}
	return records
}

// endpoints returns the endpoints of one entry of a slice, with the labels of its Pod and Node. If the entry names no
// Pod, endpoints looks up a Pod by the address of the entry, in the namespace of the slice, as istiod does. So the
// endpoints of a manually written slice have identity and mTLS, too. The readiness of a Pod that was found by its
// address does not count.
func (n *Normalizer) endpoints(r *report, at string, owner object.ID, e *discoveryv1.Endpoint, ctx Lookup) []*model.Endpoint {
	base := &model.Endpoint{Namespace: owner.Namespace, Cluster: n.clusterOf(owner), Hostname: deref(e.Hostname), Node: deref(e.NodeName)}
	var pod *Pod
	named := e.TargetRef != nil && e.TargetRef.Kind == "Pod"
	if named {
		id := owner.SameOrigin(object.ID{Kind: "Pod", Namespace: cmp.Or(e.TargetRef.Namespace, owner.Namespace), Name: e.TargetRef.Name})
		r.ref(id)
		if pod = ctx.Pod(id); pod == nil {
			r.warnf(problem.NotFound, at+".targetRef", "%v does not exist: the endpoint has no labels and no identity, so subsets do not "+
				"select it", id)
		}
	}
	base.Health = health(e.Conditions, pod)
	if named {
		join(r, base, pod, owner, ctx)
	}
	var out []*model.Endpoint
	for i, address := range e.Addresses {
		if !isIP(address) {
			r.errorf(fmt.Sprintf("%s.addresses[%d]", at, i), "%q is no IP address", address)
			continue
		}
		one := base // no copy: usually there is one address
		if len(e.Addresses) > 1 {
			one = cloneEndpoint(base)
			one.Labels = base.Labels
		}
		if !named {
			id := PodAtID(owner, address)
			r.ref(id)
			pod = ctx.PodAt(id)
			join(r, one, pod, owner, ctx)
		}
		one.Address = address
		one.Network = n.network(r, owner, pod, address, ctx)
		out = append(out, one)
	}
	return out
}

// join copies the properties of a Pod and of its Node into an endpoint. If pod is nil, the Pod is unknown. The
// parameter owner is the ID of the object that contains the endpoint.
func join(r *report, e *model.Endpoint, pod *Pod, owner object.ID, ctx Lookup) {
	if pod != nil {
		e.Labels, e.ServiceAccount, e.Workload = pod.Labels, pod.ServiceAccount, pod.Workload
		e.Node = cmp.Or(pod.Node, e.Node)
		e.Mtls = pod.Labels["security.istio.io/tlsMode"] == "istio"
		e.Locality = model.StatedLocality(pod.Labels)
	}
	if e.Locality == "" && e.Node != "" {
		id := owner.SameOrigin(object.ID{Kind: "Node", Name: e.Node})
		r.ref(id)
		if node := ctx.Node(id); node != nil {
			e.Locality = node.Locality
		}
	}
}

// health converts the conditions of an endpoint in a slice. A missing ready condition has the value of the Pod's own
// condition, or true if the Pod is unknown. A missing serving condition has the value of ready
// (https://kubernetes.io/docs/concepts/services-networking/endpoint-slices/#conditions).
func health(c discoveryv1.EndpointConditions, pod *Pod) model.Health {
	ready := pod == nil || !pod.NotReady
	if c.Ready != nil {
		ready = *c.Ready
	}
	serving := ready
	if c.Serving != nil {
		serving = *c.Serving
	}
	switch terminating := c.Terminating != nil && *c.Terminating; {
	case ready && !terminating:
		return model.Health_HEALTH_READY
	case serving && terminating:
		return model.Health_HEALTH_DRAINING
	case terminating:
		return model.Health_HEALTH_ENDED
	}
	return model.Health_HEALTH_NOT_READY
}

// cloneEndpoint returns a deep copy.
func cloneEndpoint(e *model.Endpoint) *model.Endpoint {
	return proto.Clone(e).(*model.Endpoint)
}

// deterministic encodes equal messages as equal bytes.
var deterministic = proto.MarshalOptions{Deterministic: true}

// sortEndpoints returns the endpoints sorted by address, then by encoding, without duplicates.
func sortEndpoints(in []*model.Endpoint) []*model.Endpoint {
	type keyed struct {
		e   *model.Endpoint
		raw string
	}
	all := make([]keyed, len(in))
	for i, e := range in {
		raw, _ := deterministic.Marshal(e) // an endpoint that cannot be encoded is refused with its record
		all[i] = keyed{e, string(raw)}
	}
	slices.SortFunc(all, func(a, b keyed) int {
		return cmp.Or(strings.Compare(a.e.Address, b.e.Address), strings.Compare(a.raw, b.raw))
	})
	all = slices.CompactFunc(all, func(a, b keyed) bool { return a.raw != "" && a.raw == b.raw })
	out := make([]*model.Endpoint, len(all))
	for i, k := range all {
		out[i] = k.e
	}
	return out
}

// deref returns the string at s, or "" for nil.
func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
