package machines

import (
	"maps"
	"net/netip"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/view"
	"navarch.io/navarch/store/machines"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// These are keys of the node's metadata, which Istio's agents set (ISTIO_META_AUTO_REGISTER_GROUP,
// ISTIO_META_WORKLOAD_ENTRY).
const (
	groupKey = "AUTO_REGISTER_GROUP"
	entryKey = "WORKLOAD_ENTRY"
)

// claim is a machine's request for registration, with its proven identity. The group must belong to the machine's
// namespace and service account. A machine that claims a false address therefore receives only traffic of services
// that select the group's labels.
type claim struct {
	namespace, account string // proven by the credential
	credential         string // machines.Machine.Credential
	group, entry       string // exactly one of the two is set
	address            string // claimed by the node
	network, locality  string // claimed by the node
	checked            bool   // its agent reports health
}

// claimOf returns the claim of a node, without the credential. The argument raw is the encoded node. Errors are gRPC
// statuses.
func claimOf(node view.Node, raw []byte) (claim, error) {
	c := claim{namespace: node.Verified.Namespace, account: node.Verified.Account, group: node.Metadata[groupKey],
		entry:   node.Metadata[entryKey],
		network: node.Network, locality: node.Locality}
	switch {
	case node.Verified == (view.Identity{}):
		return c, status.Errorf(codes.PermissionDenied, "node.metadata.%s, %s: a machine needs a proven identity to register: use the "+
			"secure address, with a token or a certificate of this mesh", groupKey, entryKey)
	case c.namespace != node.Namespace:
		return c, status.Errorf(codes.PermissionDenied, "node.metadata.%s, %s: %s may not register a machine in namespace %q", groupKey,
			entryKey, node.Verified, node.Namespace)
	}
	if c.group != "" {
		c.entry = ""
		if len(node.Addresses) == 0 {
			return c, status.Errorf(codes.FailedPrecondition, "node.id %q: no address, which a WorkloadEntry needs", node.ID)
		}
		a, err := netip.ParseAddr(node.Addresses[0])
		if c.address = a.Unmap().String(); err != nil || a.IsUnspecified() || a.IsLoopback() || a.IsMulticast() || a.IsLinkLocalUnicast() ||
			a.Zone() != "" {
			return c, status.Errorf(codes.FailedPrecondition, "node.id %q: other workloads cannot reach a machine at address %s", node.ID,
				node.Addresses[0])
		}
	}
	whole := &corev3.Node{}
	if err := proto.Unmarshal(raw, whole); err == nil { // view.Parse has reported the error
		probe := whole.GetMetadata().GetFields()["PROXY_CONFIG"].GetStructValue().GetFields()["readinessProbe"].GetStructValue()
		c.checked = len(probe.GetFields()) > 0
	}
	return c, nil
}

// report returns the report of the machine for the leader, without the state of its connection. Errors are gRPC
// statuses.
func (c claim) report(s *mirror.Snapshot) (machines.Machine, error) {
	if c.entry != "" {
		return c.reportExisting(s)
	}
	group := groupOf(s, c.namespace, c.group)
	if group == nil {
		return machines.Machine{}, status.Errorf(codes.FailedPrecondition, "node.metadata.%s: WorkloadGroup %s/%s does not exist", groupKey,
			c.namespace, c.group)
	}
	if account := group.GetTemplate().GetServiceAccount(); account != c.account {
		return machines.Machine{}, status.Errorf(codes.PermissionDenied,
			"node.metadata.%s: WorkloadGroup %s/%s is of service account %q, and the proxy of %q", groupKey, c.namespace, c.group, account,
			c.account)
	}
	spec := proto.CloneOf(group.GetTemplate())
	spec.Address = c.address
	if spec.Network == "" {
		spec.Network = c.network
	}
	if c.locality != "" {
		spec.Locality = c.locality
	}
	// As in istiod, labels of the group's metadata replace equal labels of the template. The node's own labels are not
	// used, because they are unverified.
	labels := maps.Clone(spec.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	maps.Copy(labels, group.GetMetadata().GetLabels())
	if spec.Network != "" {
		labels[model.NetworkLabel] = spec.Network
	}
	spec.Labels = labels
	return machines.Machine{Namespace: c.namespace, Name: machines.EntryName(c.group, c.address, spec.Network), Account: c.account,
		Credential: c.credential, Group: c.group,
		Labels: labels, Annotations: group.GetMetadata().GetAnnotations(), Checked: c.checked, Spec: spec}, nil
}

// reportExisting returns the report of a machine with an existing WorkloadEntry. The entry must have the machine's
// service account, and must be in the config cluster, because health is written only there. Errors are gRPC statuses.
func (c claim) reportExisting(s *mirror.Snapshot) (machines.Machine, error) {
	for r := range s.WithPrefix(model.KindWorkload, c.namespace, model.WorkloadEntryPrefix+c.entry) {
		w, is := r.(*model.Workload)
		if !is || r.Meta().Key.Name != model.WorkloadEntryPrefix+c.entry || r.Meta().Key.Origin.Cluster() != "" {
			continue
		}
		if account := w.Spec.GetEndpoint().GetServiceAccount(); account != c.account {
			return machines.Machine{}, status.Errorf(codes.PermissionDenied,
				"node.metadata.%s: WorkloadEntry %s/%s is of service account %q, and the proxy of %q", entryKey, c.namespace, c.entry, account,
				c.account)
		}
		return machines.Machine{Namespace: c.namespace, Name: c.entry, Account: c.account, Credential: c.credential}, nil
	}
	return machines.Machine{}, status.Errorf(codes.FailedPrecondition, "node.metadata.%s: WorkloadEntry %s/%s does not exist", entryKey,
		c.namespace, c.entry)
}

// groupOf returns a WorkloadGroup of the config cluster, or nil if it does not exist.
func groupOf(s *mirror.Snapshot, namespace, name string) *networkingv1.WorkloadGroup {
	for r := range s.WithPrefix(model.KindWorkloadGroup, namespace, name) {
		if g, is := r.(*model.WorkloadGroup); is && r.Meta().Key.Name == name && r.Meta().Key.Origin.Cluster() == "" {
			return g.Spec
		}
	}
	return nil
}

// addressTaken returns the error for an address that another object has.
func addressTaken(m machines.Machine, by string) error {
	return status.Errorf(codes.FailedPrecondition, "the machine claims address %s%s, which is that of %s", m.Spec.GetAddress(),
		inNetwork(m.Spec.GetNetwork()), by)
}

// inNetwork returns the words that name a network. For an empty network the result is empty.
func inNetwork(network string) string {
	if network == "" {
		return ""
	}
	return " of network " + strings.ToValidUTF8(network, "")
}
