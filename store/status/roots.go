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
	configLabel  = "istio.io/config"
)

// withoutRoots are the namespaces that istiod leaves out, too (pkg/kube/inject, IgnoredNamespaces, without kube-system: ztunnel may be there).
var withoutRoots = []string{"kube-public", "kube-node-lease", "local-path-storage"}

// RootCerts is the ConfigMap istio-ca-root-cert in each of these namespaces but those that istiod leaves out, with these roots (PEM).
func RootCerts(namespaces []string, roots string) map[Key]Desired[corev1.ConfigMap] {
	all := make(map[Key]Desired[corev1.ConfigMap], len(namespaces))
	for _, namespace := range namespaces {
		if slices.Contains(withoutRoots, namespace) {
			continue
		}
		k := Key{namespace, RootCertName}
		all[k] = Desired[corev1.ConfigMap]{Version: roots, Draw: func(there *corev1.ConfigMap, epoch int64) *corev1.ConfigMap { return rootCert(k, there, roots, epoch) }}
	}
	return all
}

// rootCert leaves what is in the way as it is but for what agents read, as istiod does.
func rootCert(k Key, there *corev1.ConfigMap, roots string, epoch int64) *corev1.ConfigMap {
	if there != nil && there.Data[rootCertKey] == roots && there.Labels[configLabel] == "true" {
		return nil
	}
	next := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: k.Namespace, Name: k.Name}}
	if there != nil {
		next = there.DeepCopy()
	}
	next.Data, next.Labels, next.Annotations = own(next.Data), own(next.Labels), own(next.Annotations)
	next.Data[rootCertKey], next.Labels[configLabel], next.Annotations[EpochAnnotation] = roots, "true", strconv.FormatInt(epoch, 10)
	delete(next.BinaryData, rootCertKey) // no key may be in both
	return next
}

func own(m map[string]string) map[string]string {
	if m == nil {
		return map[string]string{}
	}
	return maps.Clone(m)
}
