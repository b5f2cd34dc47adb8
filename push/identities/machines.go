package identities

import (
	"cmp"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"navarch.io/navarch/ca/attest"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// machineEndpoints is the prefix of the names of Endpoints that come from ServiceEntries (store/normal).
const machineEndpoints = "serviceentry:"

// Machines returns a function that reports whether an identity belongs to a machine outside of Kubernetes. A machine's
// identity has the service account of a WorkloadEntry, a WorkloadGroup's template, or a ServiceEntry's endpoint in the
// same namespace. WorkloadEntries of all clusters count, because the clusters of a mesh trust each other's identities.
// The trust domain is not compared. The function returns false for an identity that does not name a service account,
// and if snapshot returns nil.
func Machines(snapshot func() *mirror.Snapshot) func(spiffeid.ID) bool {
	return func(id spiffeid.ID) bool {
		s := snapshot()
		namespace, account, err := attest.ParsePath(id)
		if s == nil || err != nil {
			return false
		}
		for r := range s.WithPrefix(model.KindWorkload, namespace, model.WorkloadEntryPrefix) {
			if w, ok := r.(*model.Workload); ok && w.Spec.GetEndpoint().GetServiceAccount() == account {
				return true
			}
		}
		for r := range s.In(model.KindWorkloadGroup, namespace) {
			if g, ok := r.(*model.WorkloadGroup); ok && g.Spec.GetTemplate().GetServiceAccount() == account {
				return true
			}
		}
		for r := range s.WithPrefix(model.KindEndpoints, namespace, machineEndpoints) {
			endpoints, ok := r.(*model.Endpoints)
			if !ok {
				continue
			}
			for _, e := range endpoints.Spec.GetEndpoints() {
				if e.GetServiceAccount() == account && cmp.Or(e.GetNamespace(), namespace) == namespace {
					return true
				}
			}
		}
		return false
	}
}
