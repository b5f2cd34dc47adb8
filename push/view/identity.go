package view

import (
	"cmp"

	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/origin"
)

// Identity is the service account of a proxy, which the proxy's credential has verified. It is comparable. The zero
// Identity means no verified identity.
type Identity struct {
	Namespace, Account string
	// Cluster is the proxy's cluster, whose Secrets and bindings are searched first. It is "" for the config cluster.
	// In View.Secrets it is the cluster of the node.
	Cluster string
	// Bound is true if the credential is bound to a Pod of the configuration.
	Bound bool
	// Labels lists labels of that Pod as sorted "key=value". It is empty unless Bound is true. Only labels that decide
	// about the use of Secrets are included.
	Labels intern.List[string]
}

// OfAccount returns the identity without Bound and Labels. Rights that hold for all proxies of the account are granted
// to this identity.
func (i Identity) OfAccount() Identity {
	return Identity{Namespace: i.Namespace, Account: i.Account, Cluster: i.Cluster}
}

// String returns "service account NAMESPACE/ACCOUNT" for messages. If Cluster is not "", its name follows.
func (i Identity) String() string {
	return "service account " + i.Namespace + "/" + i.Account + origin.New(i.Cluster, "").Suffix()
}

// Compare compares identities by namespace, account and cluster, as cmp.Compare does. It ignores Bound and Labels.
func (i Identity) Compare(o Identity) int {
	return cmp.Or(cmp.Compare(i.Namespace, o.Namespace), cmp.Compare(i.Account, o.Account), cmp.Compare(i.Cluster, o.Cluster))
}
