// Package weight estimates the memory that each replica needs because of one record. The estimate multiplies hosts by
// ports, and selected WorkloadEntries by hosts and ports. It multiplies subsets by clusters and endpoints, routes by
// virtual hosts, and patches by the resources that they match. A record of a few hundred bytes may become thousands of
// clusters.
//
// Measure reads a record once. Index.Weigh computes the weight from the result and from facts about the other records.
//
// Owns: nothing; it is pure.
// Reads: store/model.
// Never: depends on the connected proxies.
package weight

import "navarch.io/navarch/store/model"

// Estimates in KiB for one resource: its permanent memory, and the memory for planning and sending it. They were
// measured with 500 services. A cluster of a ServiceEntry with its assignment and virtual host needs 2 to 4 KiB, and 10
// KiB while it is planned and sent.
const (
	cluster = 8
	subset  = 8 // in each cluster
	route   = 4
	scope   = 80 // for each Sidecar

	server     = 16 // for each server of a Gateway
	serverHost = 1
)

// Divisors. Each constant is the number of the named things that need 1 KiB together.
const (
	perAddress  = 2    // addresses among the domains of a virtual host, for each host and port
	perSharing  = 64   // pairs of hosts that share an address, for each port
	perImport   = 8    // hosts of the egress listeners of a Sidecar
	perEndpoint = 8    // endpoints of an assignment, for each cluster
	perPatch    = 4    // applications of a patch to a resource
	perEntry    = 40   // entries of a ring of consistent hashing, for each cluster and subset
	perByte     = 1024 // bytes of a record, for each copy
	perGuarded  = 3    // names of hosts that require client certificates in route configurations of other servers
)

// Weight is an estimate of memory in KiB. Weigh bounds each amount that it adds, so sums do not overflow. Weight is
// comparable.
type Weight struct {
	Exported int // for configuration that proxies of other namespaces receive too
	Own      int // for configuration that only proxies of its own namespace receive
}

// Plus returns the sum of two weights.
func (w Weight) Plus(o Weight) Weight { return Weight{w.Exported + o.Exported, w.Own + o.Own} }

// Minus returns the difference of two weights. Its parts may be negative.
func (w Weight) Minus(o Weight) Weight { return Weight{w.Exported - o.Exported, w.Own - o.Own} }

// Beyond reports whether a weight exceeds a bound. A field of bound that is 0 sets no bound.
func (w Weight) Beyond(bound Weight) bool {
	return bound.Exported > 0 && w.Exported > bound.Exported || bound.Own > 0 && w.Own > bound.Own
}

// Each exported KiB of one object above freeOfExcess counts excess times, because a large amount at once delays the
// whole mesh. Even large tenants usually have many objects of small weight. KiB that are not exported count once,
// because they delay only proxies of the object's own namespace.
const (
	freeOfExcess = 256
	excess       = 4
)

// Counted returns the amount that one object uses of a budget, given the weight of the object. Each KiB of Exported
// above 256 counts four times. Own is unchanged.
func (w Weight) Counted() Weight {
	w.Exported += max(0, w.Exported-freeOfExcess) * (excess - 1)
	return w
}

// most is the upper bound of each amount that is added to a weight, in KiB.
const most = 1 << 40

// Of returns the weight of a record, given the other records in an index. The index may contain an earlier version of
// the record. The weight is zero for Pods and for all kinds that Measure does not measure, such as Secrets. The weight
// of EndpointSlices is a part of the weights of services, except in an index of NewTogether.
func Of(r model.Record, mesh *Index) Weight { return mesh.Weigh(Measure(r), nil) }

// Ports returns the number of ports of a service, which is the number of clusters for each of its hosts.
func Ports(s *model.Service) int { return len(s.Spec.GetPorts()) }
