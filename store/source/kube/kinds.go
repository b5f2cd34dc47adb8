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

// kind is one kind of objects, and how it is asked for.
type kind struct {
	group, version, kind string
	resource             string // its name in paths: services
	namespaced           bool
	expected             runtime.Object // an empty one
	namespace            string         // all that are read are of it; empty: of every one
	name                 string         // the only one of namespace that is read; empty: all are
	labels               string         // selector of what is read
	nameOnly             bool           // no record needs more than that the object is there
}

// kindID is what a kind is known by, whatever its version.
type kindID struct {
	group, kind string
	only        string // the one object that is read, as namespace/name; empty: all are
}

func (k kind) id() kindID {
	id := kindID{group: k.group, kind: k.kind}
	if k.name != "" {
		id.only = k.namespace + "/" + k.name
	}
	return id
}

// of is what is read, as objects are named: a kind, or one object.
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

// meshConfiguration is a ConfigMap of the system namespace that has mesh configuration; no other is read.
func (s *Source) meshConfiguration(name string) kind {
	return kind{version: "v1", kind: "ConfigMap", resource: "configmaps", namespaced: true, expected: &corev1.ConfigMap{},
		namespace: s.SystemNamespace, name: name}
}

// builtIn is Kubernetes' own kinds, which every API server has, without namespaces and meshConfiguration.
func (s *Source) builtIn() []kind {
	const rbac, slices = rbacv1.GroupName, discoveryv1.GroupName
	all := []kind{
		{version: "v1", kind: "Node", resource: "nodes", expected: &corev1.Node{}},
		{version: "v1", kind: "Service", resource: "services", namespaced: true, expected: &corev1.Service{}},
		{version: "v1", kind: "Pod", resource: "pods", namespaced: true, expected: &corev1.Pod{}},
		{version: "v1", kind: "ServiceAccount", resource: "serviceaccounts", namespaced: true, expected: &corev1.ServiceAccount{}},
		// What another cluster exports is that cluster's, which emits it itself.
		{group: slices, version: "v1", kind: "EndpointSlice", resource: "endpointslices", namespaced: true, expected: &discoveryv1.EndpointSlice{},
			labels: "!multicluster.kubernetes.io/service-name"},
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

// need is how much the reading of a cluster depends on a kind.
type need int

const (
	needed   need = iota // the cluster is not read whole without it
	optional             // unless the API server says that it may not be read
	reported             // it holds nothing up, whatever is wrong with it
)

// need says which of these a kind is. The account whose token a remote cluster's Secret has is Istio's reader as a rule, which may
// read Services, EndpointSlices, Pods, Nodes and Namespaces, and neither ServiceAccounts nor bindings (its chart istiod-remote,
// istio-reader-clusterrole). Without these there are all endpoints, and who may have private keys the API server is asked. That role has WorkloadEntries too, but
// one that somebody wrote for what is read beside them is enough for the rest. Of no cluster are those kinds needed whose objects are only reported, as IstioOperator
// (install.istio.io), whose definition istioctl and older charts of Istio leave: the documented rights are not about them.
func (s *Source) need(k kind) need {
	switch {
	case k.nameOnly:
		return reported
	case s.Cluster != "" && (k.kind == "ServiceAccount" || k.group == rbacv1.GroupName || k.group == workloadEntries.group):
		return optional
	}
	return needed
}

// workloadEntries is the only kind of Istio's that is read of another cluster than the config cluster.
var workloadEntries = kindID{group: "networking.istio.io", kind: "WorkloadEntry"}

// known are the versions that records are made of, the best first (normal has the same list; a test compares them). Of other groups
// only the names of objects are read, to report them: see wanted.
var known = map[string][]string{
	"networking.istio.io": {"v1", "v1beta1", "v1alpha3"},
	"security.istio.io":   {"v1", "v1beta1"},
	"telemetry.istio.io":  {"v1", "v1alpha1"},
	"extensions.istio.io": {"v1alpha1"},
}

// wanted says whether a group's kinds are looked for: Istio's, and those of the Gateway API.
func wanted(group string) bool {
	return strings.HasSuffix(group, ".istio.io") || group == object.GatewayAPI
}

// best is the version of a group that is read, of those that are served (the preferred one first); empty: none.
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

// custom is a kind that a CustomResourceDefinition defines.
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
