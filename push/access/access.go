// Package access decides which proxies may have the private keys of Secrets. It stores the answers of an authoriser,
// which decides whether a service account may list the Secrets of its namespace. It also finds the objects that make a
// workload use a Secret. The certificates of CAs are public, and need no right.
//
// Owns: the answers of the authoriser (Memory, which one goroutine uses).
// Reads: snapshots of the store.
// Never: uses a proxy's own statements, a clock or a socket.
//
// The goroutine that plans configuration does not query the authoriser itself, because a query may block. If navarchd
// can reach the API server of a service account's cluster, this API server decides, by SubjectAccessReview. Otherwise
// the RoleBindings and ClusterRoleBindings of the snapshot decide (Snapshots). In the snapshot, bindings and their
// roles are joined as records of kind SecretReader. Answers are kept only in memory. A process that cannot reach the
// authoriser at its start knows no answer.
package access

import (
	"context"
	"fmt"
	"slices"

	"navarch.io/navarch/push/view"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// Authoriser decides whether a service account may list the Secrets of its own namespace. istiod requires the same
// right of a proxy before it sends a private key (istio: pilot/pkg/credentials/kube/secrets.go, Authorize).
// Implementations must be safe for concurrent use.
type Authoriser interface {
	// MayListSecrets returns the right of a service account. It may block until ctx ends. An error means that the right
	// is not known now, and that the Answer must be ignored.
	MayListSecrets(ctx context.Context, who view.Identity) (Answer, error)
}

// Answer is the result of an Authoriser.
type Answer struct {
	Allowed bool
	Why     string // reason of a refusal, for operators; empty if Allowed
}

// Snapshots is an Authoriser that reads RoleBindings and ClusterRoleBindings from a snapshot, by the rules of
// Kubernetes' RBAC (https://kubernetes.io/docs/reference/access-authn-authz/rbac/).
type Snapshots struct {
	Current func() *mirror.Snapshot // returns the newest snapshot, not nil; must be safe for concurrent use
}

// MayListSecrets implements Authoriser. The answer is that of Granted for the newest snapshot. It does not block, and
// the error is always nil.
func (s Snapshots) MayListSecrets(_ context.Context, who view.Identity) (Answer, error) {
	return Granted(s.Current(), who), nil
}

// Granted returns the right of an identity to list the Secrets of its own namespace, by the bindings of a snapshot. As
// in Istio, only bindings of the identity's own cluster count, even for a Secret of the config cluster (istio:
// pilot/pkg/credentials/kube/multicluster.go, ForCluster).
func Granted(s *mirror.Snapshot, who view.Identity) Answer {
	subjects := []string{who.Namespace + "/" + who.Account, who.Namespace + "/*", "*/*"}
	for _, namespace := range []string{who.Namespace, ""} { // RoleBindings of its namespace, then ClusterRoleBindings
		for r := range s.In(model.KindSecretReader, namespace) {
			accounts := r.(*model.SecretReader).Spec.GetAccounts()
			bound := func(subject string) bool { return slices.Contains(accounts, subject) }
			if r.Meta().Key.Origin.Cluster() == who.Cluster && slices.ContainsFunc(subjects, bound) {
				return Answer{Allowed: true}
			}
		}
	}
	return Answer{Why: fmt.Sprintf("no RoleBinding of namespace %s and no ClusterRoleBinding gives it the verb list on secrets there",
		who.Namespace)}
}

// HasBindings reports whether a snapshot has bindings of a cluster. Without bindings, the snapshot does not state the
// rights of the cluster's service accounts.
func HasBindings(s *mirror.Snapshot, cluster string) bool {
	for r := range s.All(model.KindSecretReader) {
		if r.Meta().Key.Origin.Cluster() == cluster {
			return true
		}
	}
	return false
}
