// Package access decides who may have the private keys of Secrets: which identities an authoriser lets list the Secrets of a namespace, for
// how long its answers are valid, and which objects make a workload use a Secret (issue 12, item 1). Certificates of authorities are no
// private keys, and not its concern.
//
// Owns: what the authoriser answered (Memory: one goroutine).  Reads: snapshots.  Never: what a proxy says of itself; a clock; a
// socket.
//
// An authoriser (Authoriser) has the right to private keys. The plan loop asks it outside of the loop, by service
// account. Where a Kubernetes cluster is served it is that cluster's API server, by SubjectAccessReview. Otherwise
// RoleBindings and ClusterRoleBindings of the snapshot decide (records of kind SecretReader, which store/normal joins
// with their roles; a change of one asks again). A further authoriser is a line in cmd/navarchd/kubernetes.go. Answers
// belong to one process: a process that starts while the authoriser is away has none.
package access

import (
	"context"
	"fmt"
	"slices"

	"navarch.io/navarch/push/view"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// Authoriser says whether a service account may list the Secrets of its own namespace, which is the right that istiod, too, wants
// of a proxy before it hands out a private key (istio: pilot/pkg/credentials/kube/secrets.go, Authorize). Safe for concurrent use.
// It may block until the context ends. An error: it cannot say now; nothing follows from that about the right.
type Authoriser interface {
	MayListSecrets(ctx context.Context, who view.Identity) (Answer, error)
}

// Answer is what an Authoriser says.
type Answer struct {
	Allowed bool
	Why     string // for people: why not; empty where it is allowed
}

// Snapshots is an Authoriser for what is in the store: RoleBindings and ClusterRoleBindings of a configuration folder, by the rules
// of Kubernetes' RBAC, of which only grants matter: there is nothing that takes a right away again
// (https://kubernetes.io/docs/reference/access-authn-authz/rbac/). It answers at once, and always.
type Snapshots struct {
	Current func() *mirror.Snapshot // the newest
}

// MayListSecrets implements Authoriser.
func (s Snapshots) MayListSecrets(_ context.Context, who view.Identity) (Answer, error) {
	return Granted(s.Current(), who), nil
}

// Granted says what the bindings of a snapshot grant: those of the identity's own cluster, as in Istio, also where the Secret is the
// config cluster's (istio: pilot/pkg/credentials/kube/multicluster.go, ForCluster).
func Granted(s *mirror.Snapshot, who view.Identity) Answer {
	subjects := []string{who.Namespace + "/" + who.Account, who.Namespace + "/*", "*/*"}
	for _, namespace := range []string{who.Namespace, ""} { // RoleBindings of its namespace, then ClusterRoleBindings
		for r := range s.In(model.KindSecretReader, namespace) {
			accounts := r.(*model.SecretReader).Spec.GetAccounts()
			if r.Meta().Key.Origin.Cluster() == who.Cluster && slices.ContainsFunc(subjects, func(of string) bool { return slices.Contains(accounts, of) }) {
				return Answer{Allowed: true}
			}
		}
	}
	return Answer{Why: fmt.Sprintf("no RoleBinding of namespace %s and no ClusterRoleBinding gives it the verb list on secrets there", who.Namespace)}
}
