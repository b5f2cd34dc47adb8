package view

import (
	"cmp"

	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/origin"
)

// Identity is a service account that a proxy has proved to be its own, by a token or by a certificate of the mesh's
// trust domain.
type Identity struct {
	Namespace, Account string
	// Cluster is the proxy's cluster, whose Secrets and bindings are searched first. Empty means the config cluster.
	// Certificates name no cluster, so Index.View fills it in from the node.
	Cluster string
	// Bound means that the credential proves the Pod, and that the configuration knows that Pod.
	Bound bool
	// Labels are the configured labels of the Pod, if Bound: "key=value", sorted, only those that decide who may use a
	// Secret.
	Labels intern.List[string]
}

// OfAccount returns the identity without Bound and Labels: rights are granted to it, so to all proxies of the account.
func (i Identity) OfAccount() Identity {
	return Identity{Namespace: i.Namespace, Account: i.Account, Cluster: i.Cluster}
}

// String returns "service account NAMESPACE/ACCOUNT", followed by the cluster if it is not the config cluster.
func (i Identity) String() string {
	return "service account " + i.Namespace + "/" + i.Account + origin.New(i.Cluster, "").Suffix()
}

// Compare orders identities by namespace, then by account, then by cluster, as cmp.Compare does.
func (i Identity) Compare(o Identity) int {
	return cmp.Or(cmp.Compare(i.Namespace, o.Namespace), cmp.Compare(i.Account, o.Account), cmp.Compare(i.Cluster, o.Cluster))
}
