package identities

import (
	"cmp"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"navarch.io/navarch/ca/attest"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// machineEndpoints is the prefix of the names of records of endpoints in ServiceEntries (store/normal).
const machineEndpoints = "serviceentry:"

// Machines returns a function that reports whether an identity is a machine's. A machine's identity is the service
// account of a WorkloadEntry, of the template of a WorkloadGroup, or of an endpoint of a ServiceEntry in its own
// namespace. WorkloadEntries of all clusters count, because clusters of one mesh trust each other's identities. Without
// a snapshot, as in a process with role ca alone, the function returns false.
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
