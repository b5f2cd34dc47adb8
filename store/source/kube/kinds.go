package kube

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"navarch.io/navarch/store/object"
)

// kind describes one kind of objects, and the requests that list it.
type kind struct {
	group, version, kind string
	resource             string // name in request paths, for example services
	namespaced           bool
	expected             runtime.Object // an empty object of the Go type
	namespace            string         // the only namespace that is read; empty: all namespaces
	name                 string         // the only object in this namespace that is read; empty: all objects
	labels               string         // label selector of the objects that are read; empty: all objects
	nameOnly             bool           // only the metadata of the objects is read, to report that they have no effect
	referenced           bool           // a kind of one object, which is read because other objects refer to it
}

// kindID identifies a kind without its version.
type kindID struct {
	group, kind string
	only        string // the only object that is read, as namespace/name; empty: all objects
}

// id returns the identifier of the kind.
func (k kind) id() kindID {
	id := kindID{group: k.group, kind: k.kind}
	if k.name != "" {
		id.only = k.namespace + "/" + k.name
	}
	return id
}

// of returns the group and kind, and for a kind of one object also its namespace and name.
func (k kind) of() object.ID {
	id := object.ID{Group: k.group, Kind: k.kind}
	if k.name != "" {
		id.Namespace, id.Name = k.namespace, k.name
	}
	return id
}

func (k kind) gv() schema.GroupVersion {
	return schema.GroupVersion{Group: k.group, Version: k.version}
}

var namespaces = kind{version: "v1", kind: "Namespace", resource: "namespaces", expected: &corev1.Namespace{}}

// meshConfiguration returns a kind that consists of one ConfigMap with a mesh configuration.
func (s *Source) meshConfiguration(name string) kind {
	return kind{version: "v1", kind: "ConfigMap", resource: "configmaps", namespaced: true, expected: &corev1.ConfigMap{},
		namespace: s.SystemNamespace, name: name}
}

// isMesh reports whether the kind is a ConfigMap of the mesh configuration.
func (k kind) isMesh() bool { return k.kind == "ConfigMap" && !k.referenced }

// builtIn returns the kinds that every API server has, except Namespace, ConfigMap and Secret, which are read
// separately.
func (s *Source) builtIn() []kind {
	const rbac, slices = rbacv1.GroupName, discoveryv1.GroupName
	all := []kind{
		{version: "v1", kind: "Node", resource: "nodes", expected: &corev1.Node{}},
		{version: "v1", kind: "Service", resource: "services", namespaced: true, expected: &corev1.Service{}},
		{version: "v1", kind: "Pod", resource: "pods", namespaced: true, expected: &corev1.Pod{}},
		{version: "v1", kind: "ServiceAccount", resource: "serviceaccounts", namespaced: true, expected: &corev1.ServiceAccount{}},
		// EndpointSlices imported from other clusters are excluded, because each cluster's own source emits its
		// endpoints.
		{group: slices, version: "v1", kind: "EndpointSlice", resource: "endpointslices", namespaced: true,
			expected: &discoveryv1.EndpointSlice{},
			labels:   "!multicluster.kubernetes.io/service-name"},
		{group: rbac, version: "v1", kind: "Role", resource: "roles", namespaced: true, expected: &rbacv1.Role{}},
		{group: rbac, version: "v1", kind: "RoleBinding", resource: "rolebindings", namespaced: true, expected: &rbacv1.RoleBinding{}},
		{group: rbac, version: "v1", kind: "ClusterRole", resource: "clusterroles", expected: &rbacv1.ClusterRole{}},
		{group: rbac, version: "v1", kind: "ClusterRoleBinding", resource: "clusterrolebindings", expected: &rbacv1.ClusterRoleBinding{}},
	}
	for i := range all {
		if all[i].namespaced {
			all[i].namespace = s.Namespace
		}
	}
	return all
}

// need states whether a cluster can be complete without a list of a kind. When a cluster is complete, its source emits
// the event Synced.
type need int

const (
	needed   need = iota // the cluster is complete only after a list of the kind
	optional             // like needed, unless the API server forbids listing the kind
	reported             // the cluster is complete without the kind, whatever the error
)

// need classifies a kind.
//
// The token in a remote cluster's Secret usually belongs to Istio's reader account (chart istiod-remote,
// istio-reader-clusterrole). That account may read Services, EndpointSlices, Pods, Nodes and Namespaces, but not
// ServiceAccounts, roles and role bindings. Without these kinds all endpoints are still known. The account may also
// read WorkloadEntries, but these are optional too, for accounts with fewer rights.
//
// Kinds whose objects are only reported are never needed, because the documented rights do not cover these kinds. An
// example is IstioOperator (install.istio.io), whose definition remains after istioctl and older charts.
func (s *Source) need(k kind) need {
	switch {
	case k.nameOnly:
		return reported
	case s.Cluster != "" && (k.kind == "ServiceAccount" || k.group == rbacv1.GroupName || k.group == workloadEntries.group):
		return optional
	}
	return needed
}

// workloadEntries is the only kind of Istio that is read from clusters other than the config cluster.
var workloadEntries = kindID{group: "networking.istio.io", kind: "WorkloadEntry"}

// known lists, for each group whose objects become records, the versions that can be read, the best first. store/normal
// has the same list, and a test compares both. Of other groups only the metadata of objects is read, for reports.
var known = map[string][]string{
	"networking.istio.io": {"v1", "v1beta1", "v1alpha3"},
	"security.istio.io":   {"v1", "v1beta1"},
	"telemetry.istio.io":  {"v1", "v1alpha1"},
	"extensions.istio.io": {"v1alpha1"},
}

// wanted reports whether the kinds of a group are read. These are the groups in known, other groups of Istio, and the
// Gateway API.
func wanted(group string) bool {
	return known[group] != nil || strings.HasSuffix(group, ".istio.io") || group == object.GatewayAPI
}

// best returns the version of a group to read, out of the served versions (the preferred one first). It returns "" if
// no version can be read.
func best(group string, served []string) string {
	for _, v := range known[group] {
		if slices.Contains(served, v) {
			return v
		}
	}
	if len(served) == 0 || len(known[group]) > 0 {
		return ""
	}
	return served[0]
}

// custom returns a kind that is defined by a CustomResourceDefinition.
func (s *Source) custom(group, version, name, resource string, namespaced bool) kind {
	k := kind{group: group, version: version, kind: name, resource: resource, namespaced: namespaced, nameOnly: known[group] == nil}
	if namespaced {
		k.namespace = s.Namespace
	}
	like := &unstructured.Unstructured{}
	like.SetGroupVersionKind(k.gv().WithKind(name))
	k.expected = like
	return k
}
