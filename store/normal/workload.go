package normal

import (
	"cmp"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"navarch.io/navarch/store/bypass"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/origin"
	"navarch.io/navarch/store/problem"
)

// Pod has the fields of a Pod that the Pod's endpoints and Workload record depend on.
type Pod struct {
	UID            string            // metadata.uid; empty: unknown
	Labels         map[string]string // shared with the object
	Node           string            // spec.nodeName; empty: not scheduled yet
	ServiceAccount string            // spec.serviceAccountName, or "default"
	// Workload is the value of the label service.istio.io/workload-name. Without the label it is the name of the
	// Deployment, StatefulSet or other owner. Without an owner it is the name of the Pod.
	Workload    string
	NotReady    bool     // the Pod's Ready condition is False
	Address     string   // status.podIP; empty: no address is assigned yet
	More        []string // further addresses of status.podIPs; nil: no further addresses
	Terminating bool     // the Pod is being deleted
	Ended       bool     // the Pod has succeeded or failed
}

// Equal reports whether two Pods have equal fields. A missing Pod is nil.
func (p *Pod) Equal(o *Pod) bool {
	if p == nil || o == nil {
		return p == o
	}
	return p.UID == o.UID && p.Node == o.Node && p.ServiceAccount == o.ServiceAccount && p.Workload == o.Workload &&
		p.NotReady == o.NotReady && p.Address == o.Address && p.Terminating == o.Terminating && p.Ended == o.Ended &&
		slices.Equal(p.More, o.More) && maps.Equal(p.Labels, o.Labels)
}

// Node has the fields of a Node that matter for endpoints, and for gateways that clients reach at node ports.
type Node struct {
	Locality string            // region/zone/subzone, without empty parts at the end; empty: unknown
	External string            // first address of type ExternalIP; empty: no such address
	Labels   map[string]string // labels for the node selectors of gateways; nil without an external address
}

// Equal reports whether two Nodes have equal fields. A missing Node is nil.
func (n *Node) Equal(o *Node) bool {
	if n == nil || o == nil {
		return n == o
	}
	return n.Locality == o.Locality && n.SameGateway(o)
}

// SameGateway reports whether two Nodes are equal for gateways at node ports. A missing Node is nil, and equals a Node
// without an external address.
func (n *Node) SameGateway(o *Node) bool {
	if n == nil || o == nil {
		return n == o || n == nil && o.External == "" || o == nil && n.External == ""
	}
	return n.External == o.External && maps.Equal(n.Labels, o.Labels)
}

// PodAtID returns the ID that stands for the Pod with an address. The argument neighbour is the ID of an object in the
// same namespace and origin. An object that depends on the Pod has this ID in its Refs (Result.Refs).
func PodAtID(neighbour object.ID, address string) object.ID {
	return neighbour.SameOrigin(object.ID{Kind: podAddress, Namespace: neighbour.Namespace, Name: address})
}

// IsPodAt reports whether an ID has the form of the IDs that PodAtID returns.
func IsPodAt(id object.ID) bool { return id.Kind == podAddress }

// podAddress is the kind of the IDs of PodAtID. Kubernetes has no kind of this name.
const podAddress = "PodAddress"

// AllNodes returns the ID that stands for all Nodes of an origin. An object that depends on all Nodes has this ID in
// its Refs (Result.Refs).
func AllNodes(of origin.Origin) object.ID { return object.ID{Origin: of, Kind: "Node"} }

// Namespace has the fields of a Namespace that endpoints, Services and ServiceEntries in the Namespace depend on.
type Namespace struct {
	Network      string             // label topology.istio.io/network; empty: no label
	Distribution model.Distribution // default traffic distribution of services in the Namespace; zero: any endpoint
	Labels       map[string]string  // labels of the Namespace, shared with the object
}

// Equal reports whether two Namespaces are equal. A missing Namespace is nil.
func (n *Namespace) Equal(o *Namespace) bool {
	if n == nil || o == nil {
		return n == o
	}
	return n.Network == o.Network && n.Distribution == o.Distribution && maps.Equal(n.Labels, o.Labels)
}

// owned decodes the fields of an object's metadata that ParsePod needs and object.Object lacks.
type owned struct {
	DeletionTimestamp *string `json:"deletionTimestamp"`
	OwnerReferences   []struct {
		Kind       string `json:"kind"`
		Name       string `json:"name"`
		Controller *bool  `json:"controller"`
	} `json:"ownerReferences"`
}

// ParsePod parses a Pod. If the JSON of the object cannot be decoded, the result is nil, and one of the problems is an
// error. All other problems are warnings about containers whose traffic is not redirected. The Pod shares the labels of
// the object.
func ParsePod(obj *object.Object) (*Pod, []object.Problem) {
	r := &report{id: obj.ID, location: obj.Location}
	var whole struct {
		Metadata owned `json:"metadata"`
		Spec     struct {
			NodeName           string `json:"nodeName"`
			ServiceAccountName string `json:"serviceAccountName"`
			bypass.Spec
		} `json:"spec"`
		Status struct {
			Phase      string                `json:"phase"`
			PodIP      string                `json:"podIP"`
			PodIPs     []struct{ IP string } `json:"podIPs"`
			Conditions []struct {
				Type   string `json:"type"`
				Status string `json:"status"`
			} `json:"conditions"`
		} `json:"status"`
	}
	if err := json.Unmarshal(obj.JSON, &whole); err != nil {
		r.errorf("", "%v", err)
		return nil, r.problems
	}
	pod := &Pod{UID: obj.UID, Labels: obj.Labels, Node: intern.Text(whole.Spec.NodeName),
		ServiceAccount: intern.Text(whole.Spec.ServiceAccountName), Address: whole.Status.PodIP,
		Terminating: whole.Metadata.DeletionTimestamp != nil, Ended: whole.Status.Phase == "Succeeded" || whole.Status.Phase == "Failed"}
	if pod.ServiceAccount == "" {
		pod.ServiceAccount = "default"
	}
	for _, a := range whole.Status.PodIPs {
		if a.IP != pod.Address {
			pod.More = append(pod.More, a.IP)
		}
	}
	for _, c := range whole.Status.Conditions {
		pod.NotReady = pod.NotReady || c.Type == "Ready" && c.Status == "False"
	}
	if pod.Workload = workloadName(obj, whole.Metadata); pod.Workload != obj.ID.Name {
		pod.Workload = intern.Text(pod.Workload)
	}
	if !keptOut(obj) {
		for _, found := range bypass.Of(whole.Spec.Spec) {
			r.analysef(problem.InvalidApplicationUID, problem.Invalid, "spec", "%s", found)
		}
	}
	return pod, r.problems
}

// keptOut reports whether a label or an annotation of a Pod disables injection.
func keptOut(obj *object.Object) bool {
	const inject = "sidecar.istio.io/inject"
	return cmp.Or(obj.Labels[inject], obj.Annotations[inject]) == "false"
}

// cronJob matches the name of a Job that a CronJob created.
var cronJob = regexp.MustCompile(`^(.+)-\d{8,10}$`)

// workloadNameLabel states the workload of a Pod or WorkloadEntry.
const workloadNameLabel = "service.istio.io/workload-name"

// workloadName returns the name of a Pod's workload. The label service.istio.io/workload-name has precedence, then the
// name of the Pod's controlling owner, then the Pod's own name. For a ReplicaSet, the result is the name of its
// Deployment or Argo Rollout, which lacks the pod-template-hash. For a Job of a CronJob, the result is the name of the
// CronJob.
func workloadName(obj *object.Object, meta owned) string {
	if name := obj.Labels[workloadNameLabel]; name != "" {
		return name
	}
	for _, o := range meta.OwnerReferences {
		if o.Controller != nil && !*o.Controller || o.Controller == nil && len(meta.OwnerReferences) > 1 {
			continue
		}
		switch o.Kind {
		case "ReplicaSet":
			if hash := cmp.Or(obj.Labels["pod-template-hash"], obj.Labels["rollouts-pod-template-hash"]); hash != "" {
				return strings.TrimSuffix(o.Name, "-"+hash)
			}
		case "Job":
			if m := cronJob.FindStringSubmatch(o.Name); m != nil {
				return m[1]
			}
		}
		return o.Name
	}
	return obj.ID.Name
}

// ParseNode parses a Node. The result is never nil. If the JSON of the object cannot be decoded, the result has only a
// locality. A result with an external address shares the labels of the object.
func ParseNode(obj *object.Object) *Node {
	first := func(names ...string) string {
		for _, name := range names {
			if v := obj.Labels[name]; v != "" {
				return v
			}
		}
		return ""
	}
	n := &Node{Locality: locality(
		first(model.RegionLabel, "failure-domain.beta.kubernetes.io/region"),
		first(model.ZoneLabel, "failure-domain.beta.kubernetes.io/zone"),
		first(model.SubzoneLabel))}
	var whole corev1.Node
	if err := json.Unmarshal(obj.JSON, &whole); err != nil {
		return n
	}
	for _, a := range whole.Status.Addresses {
		if a.Type == corev1.NodeExternalIP && isIP(a.Address) {
			n.External, n.Labels = a.Address, obj.Labels
			break
		}
	}
	return n
}

// ParseNamespace parses a Namespace. The first result is never nil. All problems are warnings about the annotation
// networking.istio.io/traffic-distribution.
func ParseNamespace(obj *object.Object) (*Namespace, []object.Problem) {
	r := &report{id: obj.ID, location: obj.Location}
	preferred, _ := annotatedDistribution(r, obj)
	return &Namespace{Network: obj.Labels[model.NetworkLabel], Distribution: preferred, Labels: obj.Labels}, r.problems
}

// namespace returns the Namespace of an object, in the object's own source and cluster. The result is nil if the
// Namespace does not exist.
func (r *report) namespace(of *object.Object, ctx Lookup) *Namespace {
	id := of.ID.SameOrigin(object.ID{Kind: "Namespace", Name: of.ID.Namespace})
	r.ref(id)
	return ctx.Namespace(id)
}

// locality joins the parts of a locality, without empty parts at the end.
func locality(region, zone, subzone string) string {
	return strings.TrimRight(region+"/"+zone+"/"+subzone, "/")
}
