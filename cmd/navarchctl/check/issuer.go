package check

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// issuer is the kind of CA that signs certificates for workloads (the chart's issuer.kind). With an issuer other than
// Navarch's own CA, the operator must write the root certificates for workloads and the caBundles of webhooks. With
// Navarch's own CA, the leader writes them (deploy/docs/security-ca.md, Another CA; deploy/docs/kubernetes-ca.md,
// Certificates of signers of Kubernetes).
type issuer int

// The issuers.
const (
	ownCA   issuer = iota
	signers        // Kubernetes signers, which role ca uses (EXTERNAL_CA)
	otherCA        // a separate CA: no process has role ca
)

// issuer determines the issuer from the roles and environment of the control plane's Pods. The first Pod with role ca
// decides. It returns ownCA if there are no Pods.
func (k *checker) issuer() issuer {
	if len(k.pods) == 0 {
		return ownCA
	}
	for _, pod := range k.pods {
		switch {
		case !slices.Contains(rolesOf(&pod), "ca") || hasEnv(&pod, "ENABLE_CA_SERVER", "false"):
		case hasEnv(&pod, "EXTERNAL_CA", "ISTIOD_RA_KUBERNETES_API"):
			return signers
		default:
			return ownCA
		}
	}
	return otherCA
}

// hasEnv reports whether a container of the Pod has an environment variable with this value.
func hasEnv(pod *corev1.Pod, name, value string) bool {
	return slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool {
		return slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == name && e.Value == value })
	})
}

// failurePolicy returns the advice for a validation webhook whose failurePolicy is Ignore.
func (i issuer) failurePolicy() string {
	if i == ownCA {
		return "the leader sets Fail once its dry run was refused: /debug/problems of the leader says what is missing"
	}
	return "the control plane sets Fail only for a certificate of the mesh's CA: set it once invalid objects are refused, or keep Ignore"
}

// bundle returns the advice for a webhook whose caBundle does not verify the webhook's certificate.
func (i issuer) bundle() string {
	if i == ownCA {
		return "the leader writes the mesh's roots into caBundle: see the leader's log, and --write-webhook-configurations"
	}
	return "the control plane writes caBundle only for a certificate of the mesh's CA: set the chart's issuer.servingRoots"
}

// roots returns the status and the advice if the control plane's namespace has no root certificates for workloads. With
// an issuer other than ownCA, only namespaces with workloads need them.
func (i issuer) roots() (Status, string) {
	if i == ownCA {
		return Failure, "the leader writes it: see its log, and --write-root-certs"
	}
	return Unknown, "to enable this check, write the roots into this namespace too"
}
