// Package origin says which cluster an object belongs to, and which source it was read from.
//
// Owns: nothing; values are immutable.  Reads: nothing of ours.  Never: which cluster is the config cluster (a flag, --cluster-id).
package origin

import (
	"cmp"
	"fmt"
	"strings"
	"unique"
)

// Origin is a part of the identity of every object and every record: two clusters' Service shop/web are two. Comparable, and one
// word, since it is in every key. The zero Origin is that of what no object says: it belongs to the mesh.
type Origin struct{ pair unique.Handle[pair] }

type pair struct{ cluster, source string }

// The kinds of source.
const (
	Files = "files" // a folder of files
	Kube  = "kube"  // a Kubernetes API server
	// Machines is what the leader makes of machines that register themselves, where there is no API server to keep their WorkloadEntries.
	Machines = "machines"
	// Addresses is what the leader says of automatic addresses of ServiceEntries; no record has this origin.
	Addresses = "addresses"
	// DNS is what the leader has resolved; no record has this origin.
	DNS = "dns"
	// JWKS is what the leader has fetched of key sets; no record has this origin.
	JWKS = "jwks"
)

// New is the origin of what a source emits of a cluster. The config cluster, which alone gives configuration kinds, is "", whatever
// --cluster-id calls it: so it comes first in every order, and keeps its records where it gets another name. Others have the name that
// CLUSTER_ID has in the metadata of their proxies (see CheckCluster). Source is the kind of source: Files or Kube.
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

// Cluster is empty for the config cluster, and for what belongs to the mesh.
func (o Origin) Cluster() string { return o.value().cluster }

// Source is the kind of source; empty: no object says it.
func (o Origin) Source() string { return o.value().source }

// before says which source stands before which.
var before = map[string]string{Files: Kube, Machines: Files}

// Before is the origin whose object stands in place of an object of the same name of this origin: a cluster's API server is believed before a
// file that says the same of it, and a file before what is made of a machine. False: there is none.
func (o Origin) Before() (Origin, bool) {
	source, is := before[o.Source()]
	if !is {
		return Origin{}, false
	}
	return New(o.Cluster(), source), true
}

// After is the inverse of Before.
func (o Origin) After() (Origin, bool) {
	for after, source := range before {
		if source == o.Source() {
			return New(o.Cluster(), after), true
		}
	}
	return Origin{}, false
}

// Suffix is what tells an object of this origin apart for people: " in cluster NAME"; empty for the config cluster.
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

// longestCluster bounds names of clusters, as Kubernetes bounds keys of Secrets: Istio takes a remote cluster's name from one
// (istioctl create-remote-secret).
const longestCluster = 253

// CheckCluster says what is wrong with a name of a cluster: it has to be letters, digits, "-", "_" and ".", as a key of a Secret has.
func CheckCluster(name string) error {
	if name == "" || len(name) > longestCluster || name == "." || name == ".." || strings.ContainsFunc(name, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_.", r))
	}) {
		return fmt.Errorf(`%.80q is no name of a cluster: want letters, digits, "-", "_" and ".", at most %d`, name, longestCluster)
	}
	return nil
}
