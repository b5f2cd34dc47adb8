package kube

import (
	"encoding/json"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/origin"
)

// location is the value of the field Location in all objects, events and problems of this source.
const location = "Kubernetes"

// strip removes fields that no record needs from a received object, in place, for example most of the status. Without
// strip, a heartbeat would count as a change, and the fields would need memory. The caller must own the object.
func (k kind) strip(o runtime.Object) {
	switch o := o.(type) {
	case *corev1.Pod:
		stripPod(o)
	case *corev1.Node:
		var outside []corev1.NodeAddress // addresses of gateways that clients reach at node ports
		for _, a := range o.Status.Addresses {
			if a.Type == corev1.NodeExternalIP {
				outside = append(outside, a)
			}
		}
		o.Spec, o.Status, o.Annotations = corev1.NodeSpec{}, corev1.NodeStatus{Addresses: outside}, nil
	case *corev1.Namespace:
		o.Spec, o.Status = corev1.NamespaceSpec{}, corev1.NamespaceStatus{}
		maps.DeleteFunc(o.Annotations, func(key, _ string) bool { return key != normal.DistributionAnnotation })
	case *corev1.Service:
		var outside []corev1.LoadBalancerIngress // addresses of network gateways
		for _, i := range o.Status.LoadBalancer.Ingress {
			outside = append(outside, corev1.LoadBalancerIngress{IP: i.IP, Hostname: i.Hostname})
		}
		o.Status = corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{Ingress: outside}}
	case *corev1.ServiceAccount:
		o.Secrets, o.ImagePullSecrets, o.Annotations = nil, nil, nil
	case *corev1.ConfigMap:
		o.BinaryData, o.Annotations = nil, nil
		maps.DeleteFunc(o.Data, func(key, _ string) bool { return !normal.ReadsOfConfigMaps(key) })
	case *corev1.Secret:
		o.Annotations = nil
		for key := range o.Data {
			if !normal.ReadsOfSecrets(key) {
				o.Data[key] = nil // retain the key without its value
			}
		}
	case *discoveryv1.EndpointSlice:
		o.Annotations = nil // annotations contain the time of the last change, so every change would count as a difference
		for i := range o.Endpoints {
			e := &o.Endpoints[i]
			if e.Hints = nil; e.TargetRef != nil {
				e.TargetRef = &corev1.ObjectReference{Kind: e.TargetRef.Kind, Namespace: e.TargetRef.Namespace, Name: e.TargetRef.Name}
			}
		}
	case *unstructured.Unstructured:
		k.stripCustom(o)
	}
	if m, ok := o.(metav1.Object); ok {
		m.SetManagedFields(nil)
		m.SetFinalizers(nil)
		if a := m.GetAnnotations(); a != nil {
			delete(a, corev1.LastAppliedConfigAnnotation)
			m.SetAnnotations(a)
		}
	}
}

// stripPod retains the fields that Pod records, endpoints and normal.ParsePod need. Containers are dropped.
func stripPod(p *corev1.Pod) {
	p.Spec = corev1.PodSpec{NodeName: p.Spec.NodeName, ServiceAccountName: p.Spec.ServiceAccountName}
	status := corev1.PodStatus{Phase: p.Status.Phase, PodIP: p.Status.PodIP}
	if len(p.Status.PodIPs) > 1 { // a single entry only repeats PodIP
		status.PodIPs = p.Status.PodIPs
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionFalse {
			status.Conditions = append(status.Conditions, corev1.PodCondition{Type: c.Type, Status: c.Status})
		}
	}
	p.Status, p.Annotations = status, nil
}

// stripCustom removes the status, except the health condition of a WorkloadEntry and the assigned addresses of a
// ServiceEntry. Of kinds that are only reported (nameOnly) it removes everything except the metadata.
func (k kind) stripCustom(u *unstructured.Unstructured) {
	status, _ := u.Object["status"].(map[string]any)
	delete(u.Object, "status")
	if k.kind == "WorkloadEntry" {
		conditions, _ := status["conditions"].([]any)
		for _, c := range conditions {
			if c, ok := c.(map[string]any); ok && c["type"] == "Healthy" {
				u.Object["status"] = map[string]any{"conditions": []any{map[string]any{"type": "Healthy", "status": c["status"]}}}
			}
		}
	}
	if addresses, is := status["addresses"].([]any); is && k.kind == "ServiceEntry" && len(addresses) > 0 {
		u.Object["status"] = map[string]any{"addresses": addresses}
	}
	if k.nameOnly {
		maps.DeleteFunc(u.Object, func(key string, _ any) bool { return key != "apiVersion" && key != "kind" && key != "metadata" })
		u.SetAnnotations(nil)
	}
}

// object converts a stripped object into the form in which sources emit it, with the given labels. It changes o. It
// clears the resource version and the generation, and sets the kind. The error means that o cannot be encoded as JSON.
func (k kind) object(from origin.Origin, o runtime.Object, labels map[string]string) (*object.Object, error) {
	m := o.(metav1.Object)
	out := &object.Object{
		ID:      object.ID{Origin: from, Group: k.group, Kind: k.kind, Namespace: intern.Text(m.GetNamespace()), Name: m.GetName()},
		Version: k.version, Labels: labels, Annotations: m.GetAnnotations(),
		UID: string(m.GetUID()), Generation: m.GetGeneration(), Location: location,
	}
	if created := m.GetCreationTimestamp(); !created.IsZero() {
		out.Created = created.UTC().Truncate(time.Second)
	}
	// The resource version and the generation change with every write, and must not count as a difference.
	m.SetResourceVersion("")
	m.SetGeneration(0)
	o.GetObjectKind().SetGroupVersionKind(k.gv().WithKind(k.kind))
	var text any = o
	if pod, is := o.(*corev1.Pod); is {
		text = textOf(pod)
	}
	raw, err := json.Marshal(text)
	out.JSON = raw
	return out, err
}

// podText is the JSON form of a stripped Pod, without the fields that object.Object contains too. Pods are the most
// numerous objects of a cluster, and their metadata and constant fields would be three quarters of their text.
type podText struct {
	Metadata struct {
		DeletionTimestamp *metav1.Time `json:"deletionTimestamp,omitempty"`
		OwnerReferences   []ownerText  `json:"ownerReferences,omitempty"`
	} `json:"metadata,omitzero"`
	Spec struct {
		NodeName           string `json:"nodeName,omitempty"`
		ServiceAccountName string `json:"serviceAccountName,omitempty"`
	} `json:"spec"`
	Status podStatusText `json:"status"`
}

type ownerText struct {
	Kind       string `json:"kind"`
	Name       string `json:"name"`
	Controller *bool  `json:"controller,omitempty"`
}

type podStatusText struct {
	Phase      corev1.PodPhase       `json:"phase,omitempty"`
	PodIP      string                `json:"podIP,omitempty"`
	PodIPs     []corev1.PodIP        `json:"podIPs,omitempty"`
	Conditions []corev1.PodCondition `json:"conditions,omitempty"`
}

// textOf returns the JSON form of a stripped Pod.
func textOf(p *corev1.Pod) *podText {
	t := &podText{Status: podStatusText{p.Status.Phase, p.Status.PodIP, p.Status.PodIPs, p.Status.Conditions}}
	t.Metadata.DeletionTimestamp = p.DeletionTimestamp
	t.Spec.NodeName, t.Spec.ServiceAccountName = p.Spec.NodeName, p.Spec.ServiceAccountName
	for _, of := range p.OwnerReferences {
		t.Metadata.OwnerReferences = append(t.Metadata.OwnerReferences, ownerText{of.Kind, of.Name, of.Controller})
	}
	return t
}
