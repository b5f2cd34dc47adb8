// Package identities finds facts about proven identities in the configuration. It finds the workloads of an identity,
// the identities of machines, denied identities, credentials of deleted Pods, and the aliases of the trust domain.
//
// Owns: nothing.
// Reads: the newest snapshot of the records (store/mirror).
// Never: decides what an identity may do.
//
// # Deleted Pods
//
// The leader (one replica of Navarch) reads the objects of each cluster into records. It also writes the time up to
// which it has read each cluster (store/asof). A credential that was issued before that time names a Pod that existed
// at the time of issue. If there is no record of the Pod now, the Pod was deleted (Living). This also holds if another
// replica has become the leader.
//
// ServiceAccounts, Namespaces and WorkloadGroups do not influence the plans of configuration. WorkloadGroups are
// templates for the registration of machines (push/machines). WorkloadGroups, WorkloadEntries and endpoints of
// ServiceEntries decide which service accounts belong to machines (Machines).
package identities

import (
	"net/netip"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"navarch.io/navarch/ca/attest"
	"navarch.io/navarch/push/build/identity"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// Workloads returns a function that maps an identity (a SPIFFE ID) to the IP addresses of its workloads. The workloads
// are the Pods, WorkloadEntries and endpoints that have the service account and the namespace of the identity, in any
// cluster. The trust domain is not compared. Addresses that are not IPs are left out. The caller owns the map, which is
// empty if there are no workloads. The function returns nil if the identity does not name a service account, or if
// snapshot returns nil.
func Workloads(snapshot func() *mirror.Snapshot) func(identity string) map[netip.Addr]struct{} {
	return func(identity string) map[netip.Addr]struct{} {
		id, err := spiffeid.FromString(identity)
		if err != nil {
			return nil
		}
		namespace, account, err := attest.ParsePath(id)
		s := snapshot()
		if err != nil || s == nil {
			return nil
		}
		found := map[netip.Addr]struct{}{}
		add := func(e *model.Endpoint) {
			if at, err := netip.ParseAddr(e.GetAddress()); err == nil && e.GetServiceAccount() == account {
				found[at.Unmap()] = struct{}{}
			}
		}
		for r := range s.In(model.KindEndpoints, namespace) {
			for _, e := range r.(*model.Endpoints).Spec.GetEndpoints() {
				add(e)
			}
		}
		for r := range s.In(model.KindWorkload, namespace) {
			add(r.(*model.Workload).Spec.GetEndpoint())
		}
		return found
	}
}

// Aliases returns a function that returns the aliases of the mesh's trust domain in the newest snapshot. Callers of the
// CA may still have identities of these trust domains. Invalid aliases are omitted. The function returns nil if there
// are no aliases, or if snapshot returns nil.
func Aliases(snapshot func() *mirror.Snapshot) func() []spiffeid.TrustDomain {
	return func() []spiffeid.TrustDomain {
		s := snapshot()
		if s == nil {
			return nil
		}
		var out []spiffeid.TrustDomain
		for _, name := range identity.TrustDomains(s.Mesh().Spec)[1:] {
			if td, err := spiffeid.TrustDomainFromString(name); err == nil {
				out = append(out, td)
			}
		}
		return out
	}
}
