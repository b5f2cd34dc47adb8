package meaning

import (
	"context"

	"google.golang.org/protobuf/proto"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"

	"navarch.io/navarch/push/xds"
)

// maxKnown is the maximum number of pairs whose facts a memo stores. The same limit holds for the pairs whose models it
// stores.
const maxKnown = 20_000

// known identifies a pair by its type, name and versions.
type known struct {
	t        xds.Type
	name     string
	versions [2]string
}

// memo caches the facts and models of pairs, because several views may have the same pair. A model is a form of a pair
// from which facts and risks are derived. Pairs without versions are not cached.
type memo struct {
	*parts
	facts  map[known][]Fact
	models map[known]any // *routesChange, *listenerChange or *clusterChange
	budget *budget       // limits the comparisons of authorization rules
}

// newMemo returns an empty memo. When ctx ends, the memo's budget is exhausted.
func newMemo(ctx context.Context) *memo {
	return &memo{parts: newParts(), facts: map[known][]Fact{}, models: map[known]any{}, budget: newBudget(ctx, mostSteps)}
}

// compare returns the result of the function compare, and caches it. Callers must not change the result.
func (m *memo) compare(p Pair) []Fact {
	return remember(m.facts, p, func() []Fact { return compare(p, m) })
}

// remember returns the value that is stored for a pair. If no value is stored, remember computes it. It stores the
// value if the pair has versions and the map has room.
func remember[V any](in map[known]V, p Pair, compute func() V) V {
	key := known{p.Type, p.Name, p.Versions}
	if p.Versions == [2]string{} {
		return compute()
	}
	v, is := in[key]
	if !is {
		if v = compute(); len(in) < maxKnown {
			in[key] = v
		}
	}
	return v
}

// routesChange is the model of a pair of route configurations.
type routesChange struct {
	changed []hostPair // the new and the modified virtual hosts, without the removed ones
	served  map[string]served
}

// routes returns the model of a pair of route configurations.
func (m *memo) routes(p Pair) *routesChange {
	return remember(m.models, p, func() any {
		old, new := routesOf(p.Old), routesOf(p.New)
		c, before := &routesChange{served: servedHTTP(old, new)}, hostsOf(old)
		for _, vh := range new.GetVirtualHosts() {
			was := before[vh.GetName()]
			if was != nil && proto.Equal(was, vh) {
				continue
			}
			pair := hostPair{configuration: p.Name, subject: hostSubject(p.Name, vh.GetName()), old: was, new: vh, a: rulesOf(was), b: rulesOf(vh)}
			pair.pairs = pairRules(pair.a, pair.b)
			c.changed = append(c.changed, pair)
		}
		return c
	}).(*routesChange)
}

// listenerChange is the model of a pair of listeners.
type listenerChange struct {
	before, after []chain
	old, new      map[string]group
	inbound       bool
	head          string // differences outside of the filter chains
	replaced      bool   // Envoy replaces the listener because of the differences in head
	served        map[string]served
}

// listener returns the model of a pair of listeners.
func (m *memo) listener(p Pair) *listenerChange {
	return remember(m.models, p, func() any {
		old, new := as[*listenerv3.Listener](p.Old), as[*listenerv3.Listener](p.New)
		c := &listenerChange{before: m.chainsOf(old), after: m.chainsOf(new), inbound: isInbound(new)}
		c.old = groupsOf(c.before, p.Name, c.inbound, destinationPort(old))
		c.new = groupsOf(c.after, p.Name, c.inbound, destinationPort(new))
		c.served = servedTCP(c.before, c.after)
		if old != nil && new != nil {
			var head change
			head, c.replaced = headChange(old, new)
			c.head = head.String()
		}
		return c
	}).(*listenerChange)
}

// clusterChange is the model of a pair of clusters. Both clusters exist.
type clusterChange struct{ old, new cluster }

// cluster returns the model of a pair of clusters. Neither cluster may be nil.
func (m *memo) cluster(p Pair) *clusterChange {
	return remember(m.models, p, func() any {
		return &clusterChange{clusterOf(as[*clusterv3.Cluster](p.Old)), clusterOf(as[*clusterv3.Cluster](p.New))}
	}).(*clusterChange)
}
