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

// Pod is what endpoints and Workloads take from a Pod.
type Pod struct {
	UID            string // empty: the source does not say
	Labels         map[string]string
	Node           string
	ServiceAccount string
	Workload       string   // name of the Deployment, StatefulSet, ...; its own name where nothing owns it
	NotReady       bool     // its Ready condition is False
	Address        string   // the first; empty: it has none yet
	More           []string // the others, of another family; mostly none
	Terminating    bool     // it is being deleted
	Ended          bool     // it has succeeded or failed, and does not come back
}

// Equal says whether two Pods mean the same to endpoints and Workloads; nil is a Pod that is not there.
func (p *Pod) Equal(o *Pod) bool {
	if p == nil || o == nil {
		return p == o
	}
	return p.UID == o.UID && p.Node == o.Node && p.ServiceAccount == o.ServiceAccount && p.Workload == o.Workload &&
		p.NotReady == o.NotReady && p.Address == o.Address && p.Terminating == o.Terminating && p.Ended == o.Ended &&
		slices.Equal(p.More, o.More) && maps.Equal(p.Labels, o.Labels)
}

// Node is what endpoints, and gateways at node ports, take from a Node.
type Node struct {
	Locality string            // region/zone/subzone, as far as stated
	External string            // the first address of type ExternalIP; empty: it has none
	Labels   map[string]string // those by which gateways select it: nil unless it has an external address
}

// Equal says whether two Nodes mean the same; nil is a Node that is not there.
func (n *Node) Equal(o *Node) bool {
	if n == nil || o == nil {
		return n == o
	}
	return n.Locality == o.Locality && n.SameGateway(o)
}

// SameGateway says whether gateways at node ports read the same of both; nil is a Node that is not there.
func (n *Node) SameGateway(o *Node) bool {
	if n == nil || o == nil {
		return n == o || n == nil && o.External == "" || o == nil && n.External == ""
	}
	return n.External == o.External && maps.Equal(n.Labels, o.Labels)
}

// PodAtID names whichever Pod of an object's namespace has an address, for Refs of what looks that up.
func PodAtID(of object.ID, address string) object.ID {
	return of.SameOrigin(object.ID{Kind: podAddress, Namespace: of.Namespace, Name: address})
}

// IsPodAt says whether a name is one of PodAtID.
func IsPodAt(id object.ID) bool { return id.Kind == podAddress }

const podAddress = "PodAddress" // no kind of Kubernetes has this name

// AllNodes names the Nodes of an origin together, for Refs of what reads them all.
func AllNodes(of origin.Origin) object.ID { return object.ID{Origin: of, Kind: "Node"} }

// Namespace is what endpoints, Services and ServiceEntries take from a Namespace.
type Namespace struct {
	Network      string
	Distribution model.Distribution // of services that state none
	Labels       map[string]string
}

// Equal says whether two Namespaces mean the same; nil is a Namespace that is not there.
func (n *Namespace) Equal(o *Namespace) bool {
	if n == nil || o == nil {
		return n == o
	}
	return n.Network == o.Network && n.Distribution == o.Distribution && maps.Equal(n.Labels, o.Labels)
}

// metadata is the part of ObjectMeta that object.Object does not hold.
type owned struct {
	DeletionTimestamp *string `json:"deletionTimestamp"`
	OwnerReferences   []struct {
		Kind       string `json:"kind"`
		Name       string `json:"name"`
		Controller *bool  `json:"controller"`
	} `json:"ownerReferences"`
}

// ParsePod reads what endpoints need of a Pod. A problem that is no warning means: not usable, what was known stands.
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

// keptOut says whether a Pod is not to have a proxy, as it says itself.
func keptOut(obj *object.Object) bool {
	const inject = "sidecar.istio.io/inject"
	return cmp.Or(obj.Labels[inject], obj.Annotations[inject]) == "false"
}

var cronJob = regexp.MustCompile(`^(.+)-\d{8,10}$`)

// workloadNameLabel names the workload of a Pod or WorkloadEntry.
const workloadNameLabel = "service.istio.io/workload-name"

// workloadName follows the controlling owner one step further than Kubernetes does: a ReplicaSet stands for its
// Deployment (its name ends in the pod-template-hash), a Job of a CronJob for that.
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
			if hash := obj.Labels["pod-template-hash"]; hash != "" {
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

// ParseNode reads what is needed of a Node. A status that cannot be read has no address.
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

// ParseNamespace reads what endpoints, Services and ServiceEntries need of a Namespace. All problems are warnings.
func ParseNamespace(obj *object.Object) (*Namespace, []object.Problem) {
	r := &report{id: obj.ID, location: obj.Location}
	preferred, _ := annotatedDistribution(r, obj)
	return &Namespace{Network: obj.Labels[model.NetworkLabel], Distribution: preferred, Labels: obj.Labels}, r.problems
}

// namespace looks up the Namespace of an object, of the object's own source and cluster; nil: there is none.
func (r *report) namespace(of *object.Object, ctx Lookup) *Namespace {
	id := of.ID.SameOrigin(object.ID{Kind: "Namespace", Name: of.ID.Namespace})
	r.ref(id)
	return ctx.Namespace(id)
}

func locality(region, zone, subzone string) string {
	return strings.TrimRight(region+"/"+zone+"/"+subzone, "/")
}
