// Package identities finds properties of proven identities in the configuration. They are the workloads of an identity,
// whether it is a machine's or denied, and the other trust domains that callers may use.
//
// Owns: nothing.  Reads: the newest snapshot.  Never: decides what an identity may do.
//
// # Deleted Pods
//
// A Pod is known as deleted by a time, not by a lease. The leader writes the time up to which it has read the cluster
// (store/asof), once that state is in the records. A credential that was issued before names a Pod that existed then.
// If there is no record of the Pod now, the Pod is gone, whichever process is the leader (Living).
//
// No plan reads ServiceAccounts, Namespaces or WorkloadGroups. WorkloadGroups state what machines are registered as
// (push/machines). Together with WorkloadEntries and endpoints of ServiceEntries they decide which service accounts are
// machines' (Machines).
package identities

import (
	"net/netip"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"navarch.io/navarch/ca/attest"
	"navarch.io/navarch/push/build/identity"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// Workloads returns a function that returns the addresses of an identity's known workloads. They are the Pods,
// WorkloadEntries and endpoints of ServiceEntries of its service account in its namespace. The function returns nil for
// an invalid identity, or without a snapshot.
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

// Aliases returns a function that returns the aliases of the trust domain in the newest snapshot, which callers of the
// CA may still use.
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
