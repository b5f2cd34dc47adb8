package status

import (
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Names that Istio's agents and istiod have (istio.io/istio, security/pkg/nodeagent/caclient and pilot/pkg/serviceregistry/kube/controller/namespacecontroller.go).
const (
	RootCertName = "istio-ca-root-cert"
	rootCertKey  = "root-cert.pem"
	ListsName    = "istio-ca-crl"
	listsKey     = "ca-crl.pem"
	configLabel  = "istio.io/config"
)

// withoutRoots are the namespaces that istiod leaves out, too (pkg/kube/inject, IgnoredNamespaces, without kube-system: ztunnel may be there).
var withoutRoots = []string{"kube-public", "kube-node-lease", "local-path-storage"}

// RootCerts is the ConfigMap istio-ca-root-cert in each of these namespaces but those that istiod leaves out, with these roots (PEM).
func RootCerts(namespaces []string, roots string) map[Key]Desired[corev1.ConfigMap] {
	return everywhere(namespaces, RootCertName, rootCertKey, roots)
}

// Lists is the ConfigMap istio-ca-crl in the same namespaces, with these revocation lists (PEM).
func Lists(namespaces []string, lists string) map[Key]Desired[corev1.ConfigMap] {
	return everywhere(namespaces, ListsName, listsKey, lists)
}

// everywhere is a ConfigMap whose key has a text, in each namespace.
func everywhere(namespaces []string, name, key, text string) map[Key]Desired[corev1.ConfigMap] {
	all := make(map[Key]Desired[corev1.ConfigMap], len(namespaces))
	for _, namespace := range namespaces {
		if slices.Contains(withoutRoots, namespace) {
			continue
		}
		k := Key{namespace, name}
		all[k] = Desired[corev1.ConfigMap]{Version: text, Draw: func(there *corev1.ConfigMap, epoch int64) *corev1.ConfigMap {
			return withText(k, there, key, text, epoch)
		}}
	}
	return all
}

// withText leaves what is in the way as it is but for what agents read, as istiod does.
func withText(k Key, there *corev1.ConfigMap, key, text string, epoch int64) *corev1.ConfigMap {
	if there != nil && there.Data[key] == text && there.Labels[configLabel] == "true" {
		return nil
	}
	next := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: k.Namespace, Name: k.Name}}
	if there != nil {
		next = there.DeepCopy()
	}
	next.Data, next.Labels, next.Annotations = own(next.Data), own(next.Labels), own(next.Annotations)
	next.Data[key], next.Labels[configLabel], next.Annotations[EpochAnnotation] = text, "true", strconv.FormatInt(epoch, 10)
	delete(next.BinaryData, key) // no key may be in both
	return next
}

func own(m map[string]string) map[string]string {
	if m == nil {
		return map[string]string{}
	}
	return maps.Clone(m)
}

// RootsOf returns the roots (PEM) that a ConfigMap istio-ca-root-cert has; empty: none.
func RootsOf(m *corev1.ConfigMap) string { return m.Data[rootCertKey] }
