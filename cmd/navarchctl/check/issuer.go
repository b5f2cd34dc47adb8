package check

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// issuer is who signs for the control plane's workloads (the chart's issuer.kind): with another one than its own CA the operator sees to what the
// leader does else (deploy/docs/security.md, Another CA; deploy/docs/kubernetes.md, Certificates of signers of Kubernetes).
type issuer int

// The issuers; ownCA also where nothing is known of the control plane's Pods.
const (
	ownCA   issuer = iota
	signers        // of Kubernetes, which role ca asks (EXTERNAL_CA)
	otherCA        // beside the control plane: no process has role ca
)

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

func hasEnv(pod *corev1.Pod, name, value string) bool {
	return slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool {
		return slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == name && e.Value == value })
	})
}

// failurePolicy is what to do where a validation webhook has Ignore.
func (i issuer) failurePolicy() string {
	if i == ownCA {
		return "the leader sets Fail once its dry run was refused: /debug/problems of the leader says what is missing"
	}
	return "nobody sets Fail where the certificate is not the mesh's: do it once wrong objects are refused, or leave it"
}

// bundle is what to do where API servers do not believe a webhook by its caBundle.
func (i issuer) bundle() string {
	if i == ownCA {
		return "the leader writes the mesh's roots into caBundle: see the leader's log, and --write-webhook-configurations"
	}
	return "caBundle is yours where the certificate is not the mesh's: the chart's issuer.servingRoots"
}

// roots is what it means where the control plane's namespace has no roots for workloads, and what to do. Of another issuer only namespaces that have workloads need them.
func (i issuer) roots() (Status, string) {
	if i == ownCA {
		return Failure, "the leader writes it: see its log, and --write-root-certs"
	}
	return Unknown, "to have it looked at, give this namespace the roots, too: with this issuer you or the issuer write them"
}
