// Package weight estimates the memory that each replica needs for what one record becomes, from what the record
// multiplies: hosts by ports, selected WorkloadEntries by hosts and ports, subsets by clusters and endpoints, routes by
// virtual hosts, patches by what they match. A record of a few hundred bytes may become 65,536 clusters. A record is
// read once (Measure); weighing it beside others (Index.Weigh) costs no more than what it depends on in them.
//
// Owns: nothing, it is pure.  Reads: store/model.  Never: what proxies are connected, so that every process comes to
// the same.
package weight

import "navarch.io/navarch/store/model"

// Estimates in KiB: what lives of one, and what planning and sending it needs meanwhile. They were measured with 500 services: a cluster of a
// ServiceEntry with its assignment and virtual host takes 2 to 4 KiB, and 10 KiB while it is planned and sent.
const (
	cluster = 8
	subset  = 8 // of one cluster
	route   = 4
	scope   = 80 // of a Sidecar: what a further scope has of its own
)

// Fractions of an estimate, as divisors.
const (
	perAddress  = 8    // domains of a virtual host that are addresses, in KiB for each host and port
	perEndpoint = 8    // endpoints of an assignment, in KiB for each cluster
	perPatch    = 4    // applying a patch, in KiB for each resource that it changes
	perByte     = 1024 // bytes of a record that each copy has, in KiB
)

// Weight is an estimate in KiB. Its parts are bounded, so sums of many do not overflow.
type Weight struct {
	Exported int // what proxies of other namespaces get too
	Own      int // what proxies of its own namespace alone get
}

// Plus returns the sum of two weights.
func (w Weight) Plus(o Weight) Weight { return Weight{w.Exported + o.Exported, w.Own + o.Own} }

// Minus returns the difference of two weights.
func (w Weight) Minus(o Weight) Weight { return Weight{w.Exported - o.Exported, w.Own - o.Own} }

// Each KiB that one object exports beyond freeOfExcess counts excess times: very much that comes at once holds up the
// whole mesh, while honest tenants, however large, have many objects that become little each. Configuration for
// proxies of its own namespace holds up these proxies alone.
const (
	freeOfExcess = 256
	excess       = 4
)

// Counted returns what the weight of one object counts for in a budget.
func (w Weight) Counted() Weight {
	w.Exported += max(0, w.Exported-freeOfExcess) * (excess - 1)
	return w
}

// most bounds each weight, in KiB.
const most = 1 << 40

// Of weighs a record in a mesh. Kinds that no proxy is told of, and those that controllers make of Pods, weigh nothing.
func Of(r model.Record, mesh *Index) Weight { return mesh.Weigh(Measure(r), nil) }

// Ports returns the clusters that a service has for each of its hosts.
func Ports(s *model.Service) int { return len(s.Spec.GetPorts()) }
