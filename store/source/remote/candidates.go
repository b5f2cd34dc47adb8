package remote

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/origin"
	"navarch.io/navarch/store/problem"
)

// candidate is one cluster and its kubeconfig, as a Secret names them.
type candidate struct {
	cluster, secret string
	kubeconfig      []byte            // contains a private key
	digest          [sha256.Size]byte // SHA-256 of kubeconfig
}

// candidatesOf returns the clusters that the Secrets name, sorted by cluster name. Each key of a Secret is the name of
// a cluster, and the value is its kubeconfig. If two Secrets name one cluster, the older Secret applies, and at equal
// times the Secret whose name sorts first. The parameter configCluster is the name of the config cluster, which no
// Secret may name. Each refused entry yields one problem of its Secret. An entry is refused for an invalid cluster
// name, a kubeconfig above MostBytes, the name of the config cluster, a duplicate, or a cluster beyond Most.
func candidatesOf(secrets []*corev1.Secret, configCluster string) (all []candidate, problems []object.Problem) {
	secrets = slices.SortedFunc(slices.Values(secrets), func(a, b *corev1.Secret) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	by := map[string]candidate{}
	for _, secret := range secrets {
		for _, name := range slices.Sorted(maps.Keys(secret.Data)) {
			c := candidate{cluster: name, secret: secret.Name, kubeconfig: secret.Data[name], digest: sha256.Sum256(secret.Data[name])}
			report := func(code problem.Code, message string) {
				problems = append(problems, c.problem(secret.Namespace, code, message))
			}
			before, is := by[name]
			switch err := origin.CheckCluster(name); {
			case err != nil:
				report(problem.Invalid, err.Error())
			case len(c.kubeconfig) > MostBytes:
				report(problem.Invalid, fmt.Sprintf("the kubeconfig of cluster %s has %d bytes, and at most %d are read",
					name, len(c.kubeconfig), MostBytes))
			case name == configCluster:
				report(problem.Duplicate, fmt.Sprintf("it names cluster %s, which is the config cluster: "+
					"this process reads that cluster with its own credentials", name))
			case is:
				report(problem.Duplicate, fmt.Sprintf("cluster %s is already named by Secret %s, whose kubeconfig is used", name, before.secret))
			case len(by) == Most:
				report(problem.Pending, fmt.Sprintf("it names cluster %s, and at most %d other clusters are read", name, Most))
			default:
				by[name] = c
			}
		}
	}
	return slices.SortedFunc(maps.Values(by), func(a, b candidate) int { return cmp.Compare(a.cluster, b.cluster) }), problems
}

// problem returns a problem of severity Error whose object is the candidate's Secret, in the given namespace.
func (c candidate) problem(namespace string, code problem.Code, message string) object.Problem {
	id := object.ID{Origin: origin.New("", origin.Kube), Kind: "Secret", Namespace: namespace, Name: c.secret}
	return object.Problem{ID: id, Location: "Kubernetes",
		Code: code, Severity: problem.Error, Message: message}
}
