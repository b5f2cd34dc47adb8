package analyze

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"istio.io/api/annotation"
	"istio.io/api/label"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/scan"
)

// workloads are the kinds with a Pod template.
var workloads = []kind{{"apps", "Deployment"}, {"apps", "StatefulSet"}, {"apps", "DaemonSet"}, {"apps", "ReplicaSet"}, {"batch", "Job"},
	{"batch", "CronJob"}}

// workload has the decoded fields of an object of one of these kinds. CronJobs have JobTemplate, and the other kinds
// Template.
type workload struct {
	Metadata metav1.ObjectMeta
	Spec     struct {
		Replicas    *int32
		Template    corev1.PodTemplateSpec
		JobTemplate batchv1.JobTemplateSpec
	}
}

// inTemplate converts the path of a Pod's field to the path in a workload: spec.containers becomes
// spec.template.spec.containers. An empty path becomes the path of the template.
func inTemplate(owner *object.Object, field string) string {
	template := "spec.template"
	if owner.ID.Kind == "CronJob" {
		template = "spec.jobTemplate.spec.template"
	}
	if field == "" {
		return template
	}
	return template + "." + field
}

// field returns the path of a Pod's field in p.object, which is the Pod or its workload.
func (p *pod) field(path string) string {
	if p.real {
		return path
	}
	return inTemplate(p.object, path)
}

// findPods returns the Pods and the Pod templates of workloads. Workloads with an owner, such as the ReplicaSet of a
// Deployment, are left out.
func (w *world) findPods() (all []*pod) {
	for o, p := range decoded[corev1.Pod](w, "", "Pod") {
		one := &pod{object: o, meta: o.ID, real: true, labels: o.Labels, notes: o.Annotations, spec: p.Spec, ip: p.Status.PodIP,
			owned: len(p.OwnerReferences) > 0,
			ended: p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed || p.DeletionTimestamp != nil,
			ready: !slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
				return c.Type == corev1.PodReady && c.Status == corev1.ConditionFalse
			})}
		all = append(all, one)
	}
	for _, of := range workloads {
		for o, l := range decoded[workload](w, of.group, of.kind) {
			if len(l.Metadata.OwnerReferences) > 0 {
				continue
			}
			template := l.Spec.Template
			if of.kind == "CronJob" {
				template = l.Spec.JobTemplate.Spec.Template
			}
			all = append(all, &pod{object: o, meta: o.ID, labels: template.Labels, notes: template.Annotations, spec: template.Spec,
				ended: l.Spec.Replicas != nil && *l.Spec.Replicas == 0})
		}
	}
	return all
}

// standIn adds the objects that a cluster would make from the files: Pods for workloads, and EndpointSlices for
// Services. For a workload that was read from a cluster it adds no Pod, because the workload's Pods were read too. Pods
// and Services from files get addresses, as in a cluster.
func (w *world) standIn() {
	services := w.byKind[kind{"", "Service"}]
	w.made = make([]object.Event, 0, 2*len(services)+len(w.pods))
	for _, o := range services {
		w.giveAddress(o)
	}
	var made []*pod
	for _, p := range w.pods {
		if p.ended || p.object.Location == "" || p.ip != "" {
			continue
		}
		id := object.ID{Origin: p.meta.Origin, Kind: "Pod", Namespace: p.meta.Namespace, Name: p.meta.Name}
		for n := 1; !p.real && w.taken(id); n++ {
			id.Name = fmt.Sprintf("%s-%d", p.meta.Name, n)
		}
		p.ip, p.ready, p.stand = w.nextAddress(), true, id.Name
		one := &corev1.Pod{Spec: p.spec, Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: p.ip}}
		labels := w.withProxy(p)
		one.Name, one.Namespace, one.Labels, one.Annotations = id.Name, id.Namespace, labels, p.notes
		w.put(id, p.object, one, labels, p.notes)
		made = append(made, p)
	}
	w.endpointSlices(made)
}

// withProxy returns the labels that the Pod has in a cluster. If injection adds a proxy to the Pod, they include the
// label for mTLS (security.istio.io/tlsMode). If the namespace was not read, withProxy assumes injection, unless the
// Pod refuses it.
func (w *world) withProxy(p *pod) map[string]string {
	space, known := w.spaces[p.meta.Namespace]
	stated := cmp.Or(p.labels[label.SidecarInject.Name], p.notes[annotation.SidecarInject.Name])
	if _, is := p.labels[label.SecurityTlsMode.Name]; is || p.spec.HostNetwork || strings.EqualFold(stated, "false") ||
		known && !w.injects(space, p.labels) {
		return p.labels
	}
	labels := map[string]string{label.SecurityTlsMode.Name: "istio"}
	maps.Copy(labels, p.labels)
	return labels
}

// giveAddress replaces a Service from a file by a copy with a clusterIP. It does nothing if the Service states a
// clusterIP, or has the type ExternalName.
func (w *world) giveAddress(o *object.Object) {
	if o.Location == "" || bytes.Contains(o.JSON, []byte(`"clusterIP`)) {
		return
	}
	at, external := specOf(o.JSON)
	if at == 0 || external {
		return // the conversion to records reports objects that do not decode
	}
	address := `"clusterIP":` + strconv.Quote(w.nextAddress())
	if next := bytes.TrimLeft(o.JSON[at:], " \t\r\n"); next[0] != '}' {
		address += ","
	}
	w.putJSON(o.ID, o, slices.Concat(o.JSON[:at], []byte(address), o.JSON[at:]), o.Labels, o.Annotations)
}

// specOf returns the index behind the brace that begins the spec of a Service's JSON, and reports whether the type is
// ExternalName. The index is 0 if the JSON has no such spec.
func specOf(raw []byte) (at int, external bool) {
	s := scan.New(raw)
	err := s.Object(func(key string) error {
		if err := s.Skip(); err != nil || key != "spec" {
			return err
		}
		if spec := s.Skipped(); spec[0] == '{' {
			at = cap(raw) - cap(spec) + 1
			var stated struct{ Type json.RawMessage }
			external = bytes.Contains(spec, []byte("ExternalName")) && json.Unmarshal(spec, &stated) == nil &&
				string(stated.Type) == `"ExternalName"`
		}
		return nil
	})
	if err != nil {
		return 0, false
	}
	return at, external
}

// taken reports whether an object that was read or added has the ID.
func (w *world) taken(id object.ID) bool { return w.byID[id] != nil || w.stands[id] != nil }

// nextAddress returns an unused address for a Pod, Service or endpoint, from the discard-only block (RFC 6666).
func (w *world) nextAddress() string {
	if !w.address.IsValid() {
		w.address = netip.MustParseAddr("100::")
	}
	w.address = w.address.Next()
	return w.address.String()
}

// put adds an object with the given ID, body, labels and annotations. The second argument is the original object that
// the added object represents: findings about the added object become findings about the original. If the two have
// equal IDs, the added object replaces the original.
func (w *world) put(id object.ID, of *object.Object, body any, labels, annotations map[string]string) {
	if raw, err := json.Marshal(body); err == nil { // the body came from JSON
		w.putJSON(id, of, raw, labels, annotations)
	}
}

// putJSON is put for a body in JSON.
func (w *world) putJSON(id object.ID, of *object.Object, raw []byte, labels, annotations map[string]string) {
	if id != of.ID {
		w.stands[id] = of
	}
	w.made = append(w.made, object.Event{Op: object.Put, ID: id, Object: &object.Object{ID: id, Version: "v1", Created: of.Created,
		Labels: labels, Annotations: annotations, JSON: raw, Location: of.Location}})
}

// labelAt is one label of a Pod in a namespace.
type labelAt struct{ namespace, key, value string }

// endpointSlices adds EndpointSlices for Services with a selector. The argument made has the Pods that standIn added. A
// Service from a cluster, or with an EndpointSlice already, gets a further EndpointSlice for the added Pods that it
// selects, if there are any. Any other Service gets one EndpointSlice for all Pods that it selects. This EndpointSlice
// may be empty. No EndpointSlice is added in a namespace without Pods, because its workloads may be in files that are
// not analysed.
func (w *world) endpointSlices(made []*pod) {
	has := map[[2]string]bool{}
	for _, o := range w.byKind[kind{discoveryv1.GroupName, "EndpointSlice"}] {
		has[[2]string{o.ID.Namespace, o.Labels[discoveryv1.LabelServiceName]}] = true
	}
	if len(w.pods) == 0 {
		return
	}
	byLabel, madeByLabel := labelled(w.pods), labelled(made)
	for o, svc := range decoded[corev1.Service](w, "", "Service") {
		if len(svc.Spec.Selector) == 0 {
			continue
		}
		if o.Location == "" || has[[2]string{o.ID.Namespace, o.ID.Name}] {
			if of := selected(madeByLabel, o.ID.Namespace, svc.Spec.Selector); len(of) > 0 {
				w.endpointSlice(o, svc, of)
			}
		} else if w.inhabited[o.ID.Namespace] {
			w.endpointSlice(o, svc, selected(byLabel, o.ID.Namespace, svc.Spec.Selector))
		}
	}
}

// labelled indexes Pods by each of their labels.
func labelled(all []*pod) map[labelAt][]*pod {
	out := map[labelAt][]*pod{}
	for _, p := range all {
		for k, v := range p.labels {
			at := labelAt{p.meta.Namespace, k, v}
			out[at] = append(out[at], p)
		}
	}
	return out
}

// selected returns the Pods of a namespace that a selector matches. The first argument is an index made by labelled.
// Of the index's lists for the selector's labels, the shortest is searched.
func selected(from map[labelAt][]*pod, namespace string, selector map[string]string) (all []*pod) {
	var few []*pod
	first := true
	for k, v := range selector {
		if some := from[labelAt{namespace, k, v}]; first || len(some) < len(few) {
			few, first = some, false
		}
	}
	for _, p := range few {
		if model.Matches(selector, p.labels) {
			all = append(all, p)
		}
	}
	return all
}

// endpointSlice adds an EndpointSlice of a Service, with an endpoint for each Pod that has an address and has not
// ended. Each endpoint gets an address from nextAddress and refers to its Pod.
func (w *world) endpointSlice(o *object.Object, svc *corev1.Service, of []*pod) {
	one := &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv6}
	id := object.ID{Origin: o.ID.Origin, Group: discoveryv1.GroupName, Kind: "EndpointSlice", Namespace: o.ID.Namespace,
		Name: o.ID.Name + ".analyze"}
	one.Name, one.Namespace, one.Labels = id.Name, id.Namespace, map[string]string{discoveryv1.LabelServiceName: o.ID.Name}
	for _, p := range of {
		if p.ip == "" || p.ended {
			continue
		}
		ready := p.ready || svc.Spec.PublishNotReadyAddresses
		one.Endpoints = append(one.Endpoints, discoveryv1.Endpoint{Addresses: []string{w.nextAddress()},
			Conditions: discoveryv1.EndpointConditions{Ready: &ready},
			TargetRef:  &corev1.ObjectReference{Kind: "Pod", Namespace: p.meta.Namespace, Name: cmp.Or(p.stand, p.meta.Name)}})
	}
	for _, p := range svc.Spec.Ports {
		number := p.Port
		if p.TargetPort.StrVal != "" && len(of) > 0 {
			number = portOf(of[0], p.TargetPort.StrVal)
		} else if p.TargetPort.IntVal != 0 {
			number = p.TargetPort.IntVal
		}
		if number > 0 {
			one.Ports = append(one.Ports, discoveryv1.EndpointPort{Name: &p.Name, Port: &number, Protocol: &p.Protocol, AppProtocol: p.AppProtocol})
		}
	}
	w.put(id, &object.Object{Location: o.Location}, one, one.Labels, nil)
}

// portOf returns the number of a named port of a Pod; 0: the Pod has no such port.
func portOf(p *pod, name string) int32 {
	for _, c := range p.spec.Containers {
		for _, port := range c.Ports {
			if name != "" && port.Name == name {
				return port.ContainerPort
			}
		}
	}
	return 0
}
