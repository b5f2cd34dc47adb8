// Package origin identifies the cluster of an object and the source that read it.
//
// Owns: nothing; values are immutable. Reads: no other package of Navarch. Never: knows the name of the config cluster
// (the cluster with the mesh's configuration), which only the flag --cluster-id states.
package origin

import (
	"cmp"
	"fmt"
	"strings"
	"unique"
)

// Origin is a part of the identity of every object and record. So the Services shop/web of two clusters are two
// objects. Origin is comparable. It has only the size of one word, because every key contains an Origin. The zero
// Origin is the origin of data of the whole mesh that no object contains.
type Origin struct{ pair unique.Handle[pair] }

type pair struct{ cluster, source string }

// The kinds of sources.
const (
	Files = "files" // a folder of files
	Kube  = "kube"  // a Kubernetes API server
	// Machines is the source of the WorkloadEntries of machines that register themselves. No API server stores these
	// WorkloadEntries.
	Machines = "machines"
	// Addresses is the source of automatic addresses of ServiceEntries. No record has this origin.
	Addresses = "addresses"
	// DNS is the source of addresses that the leader resolved. No record has this origin.
	DNS = "dns"
	// JWKS is the source of key sets that the leader fetched. No record has this origin.
	JWKS = "jwks"
)

// New returns the origin of objects that a kind of source (such as Kube) reads from a cluster. The config cluster has
// the name "", whatever --cluster-id says. It therefore sorts first, and its records stay when it is renamed. For every
// other cluster, the name is the CLUSTER_ID in the metadata of its proxies (CheckCluster). New does not validate its
// arguments. For two empty arguments the result is zero.
func New(cluster, source string) Origin {
	if cluster == "" && source == "" {
		return Origin{}
	}
	return Origin{unique.Make(pair{cluster, source})}
}

func (o Origin) value() pair {
	if o == (Origin{}) {
		return pair{}
	}
	return o.pair.Value()
}

// Cluster returns the cluster's name. The name is empty for the config cluster, and for data of the whole mesh.
func (o Origin) Cluster() string { return o.value().cluster }

// Source returns the kind of source. The kind is empty for data that no object contains.
func (o Origin) Source() string { return o.value().source }

// before maps a kind of source to the kind that takes precedence over it.
var before = map[string]string{Files: Kube, Machines: Files}

// Before returns the origin that takes precedence over o. An object of that origin replaces an object of the same name
// in o. A cluster's API server takes precedence over a file, and a file over the entry of a machine. The result is
// false if no origin takes precedence over o.
func (o Origin) Before() (Origin, bool) {
	source, is := before[o.Source()]
	if !is {
		return Origin{}, false
	}
	return New(o.Cluster(), source), true
}

// After is the inverse of Before, and returns the origin over which o takes precedence. The second result is false if
// there is no such origin.
func (o Origin) After() (Origin, bool) {
	for after, source := range before {
		if source == o.Source() {
			return New(o.Cluster(), after), true
		}
	}
	return Origin{}, false
}

// Suffix returns " in cluster NAME", for messages. The result is empty for the config cluster, and for data of the
// whole mesh.
func (o Origin) Suffix() string {
	if cluster := o.Cluster(); cluster != "" {
		return " in cluster " + cluster
	}
	return ""
}

// Compare orders by cluster, the config cluster first, then by source.
func (o Origin) Compare(other Origin) int {
	if o == other {
		return 0
	}
	a, b := o.value(), other.value()
	return cmp.Or(cmp.Compare(a.cluster, b.cluster), cmp.Compare(a.source, b.source))
}

// longestCluster is the maximum length of a cluster's name in bytes. Keys of Secrets have the same maximum. Istio uses
// such a key as the name of a remote cluster (istioctl create-remote-secret).
const longestCluster = 253

// CheckCluster returns an error for an invalid name of a cluster, else nil. A valid name has 1 to 253 characters:
// letters, digits, "-", "_" and ".". The names "." and ".." are invalid.
func CheckCluster(name string) error {
	if name == "" || len(name) > longestCluster || name == "." || name == ".." || strings.ContainsFunc(name, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_.", r))
	}) {
		return fmt.Errorf(`%.80q is no name of a cluster: want letters, digits, "-", "_" and ".", at most %d`, name, longestCluster)
	}
	return nil
}
