package status

import (
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Names that Istio's agents and istiod use (istio.io/istio, security/pkg/nodeagent/caclient and
// pilot/pkg/serviceregistry/kube/controller/namespacecontroller.go).
const (
	RootCertName = "istio-ca-root-cert" // ConfigMap with the mesh's root certificates
	rootCertKey  = "root-cert.pem"
	ListsName    = "istio-ca-crl" // ConfigMap with revocation lists
	listsKey     = "ca-crl.pem"
	configLabel  = "istio.io/config"
)

// withoutRoots are the namespaces that istiod leaves out too (pkg/kube/inject, IgnoredNamespaces), except kube-system,
// where ztunnel may run.
var withoutRoots = []string{"kube-public", "kube-node-lease", "local-path-storage"}

// RootCerts returns the target states of the ConfigMaps named RootCertName with the given root certificates (PEM). Each
// given namespace has one, except kube-public, kube-node-lease and local-path-storage. A write sets the data key
// root-cert.pem, the label istio.io/config and EpochAnnotation. Other fields of existing ConfigMaps stay.
func RootCerts(namespaces []string, roots string) map[Key]Desired[corev1.ConfigMap] {
	return everywhere(namespaces, RootCertName, rootCertKey, roots)
}

// Lists returns the target states of the ConfigMaps named ListsName with the given revocation lists (PEM). Each given
// namespace has one, with the same exceptions as in RootCerts. A write sets the data key ca-crl.pem, the label
// istio.io/config and EpochAnnotation.
func Lists(namespaces []string, lists string) map[Key]Desired[corev1.ConfigMap] {
	return everywhere(namespaces, ListsName, listsKey, lists)
}

// everywhere returns the target states of ConfigMaps with a text under a key, one in each namespace outside of
// withoutRoots.
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

// withText returns a ConfigMap with the fields that agents read and EpochAnnotation. It keeps all other fields, as
// istiod does. It returns nil if the fields that agents read already have the right values.
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
	delete(next.BinaryData, key) // the API refuses a key that is in both
	return next
}

func own(m map[string]string) map[string]string {
	if m == nil {
		return map[string]string{}
	}
	return maps.Clone(m)
}

// RootsOf returns the root certificates (PEM) in a ConfigMap named RootCertName. The result is empty if the ConfigMap
// lacks the key root-cert.pem. The ConfigMap must not be nil.
func RootsOf(m *corev1.ConfigMap) string { return m.Data[rootCertKey] }
