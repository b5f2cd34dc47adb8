// Package access decides which proxies may have the private keys of Secrets. It stores which service accounts an
// authoriser permits to list the Secrets of a namespace, decides how long these answers are valid, and finds the
// objects that make a workload use a Secret. Certificates of authorities are no private keys, and are not its concern.
//
// Owns: the answers of the authoriser (Memory: one goroutine).  Reads: snapshots.  Never: a proxy's own statements; a
// clock; a socket.
//
// An authoriser (Authoriser) knows the rights to private keys. The plan loop queries it outside of the loop, by service
// account. If a Kubernetes cluster is served, the authoriser is that cluster's API server, by SubjectAccessReview.
// Otherwise RoleBindings and ClusterRoleBindings of the snapshot decide (records of kind SecretReader, which
// store/normal joins with their roles; a change of one leads to new queries). A further authoriser is a line in
// cmd/navarchd/kubernetes.go. Answers belong to one process: a process that starts while the authoriser is away has
// none.
package access

import (
	"context"
	"fmt"
	"slices"

	"navarch.io/navarch/push/view"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// Authoriser decides whether a service account may list the Secrets of its own namespace. istiod too requires this
// right of a proxy before it sends a private key (istio: pilot/pkg/credentials/kube/secrets.go, Authorize).
// Implementations have to be safe for concurrent use, and may block until the context ends. An error means that the
// right is unknown now.
type Authoriser interface {
	MayListSecrets(ctx context.Context, who view.Identity) (Answer, error)
}

// Answer is the result of an Authoriser.
type Answer struct {
	Allowed bool
	Why     string // for people, the reason of a refusal; empty if it is allowed
}

// Snapshots is an Authoriser that reads RoleBindings and ClusterRoleBindings of a configuration folder from the store.
// It applies the rules of Kubernetes' RBAC, in which only grants exist
// (https://kubernetes.io/docs/reference/access-authn-authz/rbac/). It never blocks, and returns no errors.
type Snapshots struct {
	Current func() *mirror.Snapshot // returns the newest snapshot
}

// MayListSecrets implements Authoriser.
func (s Snapshots) MayListSecrets(_ context.Context, who view.Identity) (Answer, error) {
	return Granted(s.Current(), who), nil
}

// Granted returns the right that the bindings of a snapshot grant to an identity. As in Istio, only bindings of the
// identity's own cluster count, even if the Secret is the config cluster's (istio:
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
