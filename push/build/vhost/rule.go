package vhost

import (
	"fmt"
	"iter"
	"runtime"
	"slices"
	"sync"
	"weak"

	networkingv1 "istio.io/api/networking/v1alpha3"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"navarch.io/navarch/push/pool"
	"navarch.io/navarch/push/virtualservice"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/proxyconfig"
)

// routeBuilder builds the routes of one Spec.
type routeBuilder struct {
	Spec
	destinations map[virtualservice.Ref]Destination // the Spec's destinations by host, subset and port
}

// newRouteBuilder returns a routeBuilder for a Spec.
func newRouteBuilder(s Spec) *routeBuilder {
	d := &routeBuilder{Spec: s, destinations: make(map[virtualservice.Ref]Destination, s.Destinations.Len())}
	for _, dest := range s.Destinations.All() {
		d.destinations[virtualservice.Ref{Host: dest.Host, Subset: dest.Subset, Port: dest.Port}] = dest
	}
	return d
}

// reachable iterates over the rules that apply, up to and including the first rule that matches everything. Envoy uses
// the first route that matches, so it never uses a later rule.
func (d *routeBuilder) reachable() iter.Seq[Rule] {
	return func(yield func(Rule) bool) {
		for _, r := range d.Rules.All() {
			if !r.Applies() {
				continue
			}
			if !yield(r) || r.catchesAll() {
				return
			}
		}
	}
}

// Unreachable returns the routes of the rules that Fragment leaves out because an earlier rule matches everything. It
// returns nil if there are no such rules. Routes that Envoy would refuse are omitted. Patches are not applied. The
// caller owns the result.
func (s Spec) Unreachable() (out []*routev3.Route) {
	d, behind := newRouteBuilder(s), false
	for _, r := range s.Rules.All() {
		if behind && r.Applies() {
			out = append(out, d.routesOf(r)...)
		}
		behind = behind || r.Applies() && r.catchesAll()
	}
	return out
}

// catchesAll reports whether a match of the rule matches everything. Excluded matches do not count.
func (r Rule) catchesAll() bool {
	for j, m := range matchesOf(r.HTTP()) {
		if !slices.Contains(r.Excluded.All(), j) && virtualservice.CatchesAll(m) {
			return true
		}
	}
	return false
}

// routes builds all routes of the Spec, for proxyless gRPC clients.
func (d *routeBuilder) routes() (out []*routev3.Route) {
	if d.Rules.Len() == 0 {
		return d.defaultRoutes()
	}
	for r := range d.reachable() {
		out = append(out, d.routesOf(r)...)
	}
	return out
}

// routesOf builds one route for each match of a rule, up to the first match that matches everything. It leaves out
// excluded matches, and routes that Envoy would refuse.
func (d *routeBuilder) routesOf(r Rule) (out []*routev3.Route) {
	rule := r.HTTP()
	for j, m := range matchesOf(rule) {
		if slices.Contains(r.Excluded.All(), j) {
			continue
		}
		match, err := encodeMatch(m)
		if err != nil {
			continue
		}
		if route, err := d.route(r.VirtualService, rule, m, match); err == nil {
			out = append(out, route)
		}
		if virtualservice.CatchesAll(m) {
			return out
		}
	}
	return out
}

// matchesOf returns the alternative matches of a rule. For a rule without matches it returns one nil match, which
// stands for all requests.
func matchesOf(rule *networkingv1.HTTPRoute) []*networkingv1.HTTPMatchRequest {
	if len(rule.GetMatch()) == 0 {
		return []*networkingv1.HTTPMatchRequest{nil}
	}
	return rule.GetMatch()
}

// encodedRules caches the encoded routes of rules while the fragment of a virtual host refers to them. After an edit of
// one rule, only that rule is encoded, once for all virtual hosts with equal inputs. After a change of the order of
// rules, no rule is encoded.
var encodedRules pool.Pool

// ruleKey contains all inputs of the routes of a rule. It has the rule's hash in place of the VirtualService's record.
// The record changes when another rule of the VirtualService is edited, and this rule must not be encoded again then.
type ruleKey struct {
	rule            xds.Hash
	namespace, name string // key of the VirtualService
	excluded        intern.List[int]
	port, http3     uint32
	destinations    intern.List[Destination]
	mesh            *model.Mesh
	caps            xds.Caps
	proxy           proxyconfig.Routes
}

// destinations interns the lists in ruleKey.destinations, so that equal lists compare as equal.
var destinations intern.Table[Destination]

// fragment returns the encoded routes of a rule, from encodedRules if they are cached. It fails if a string of any http
// rule of the VirtualService is not valid UTF-8.
func (d *routeBuilder) fragment(r Rule) (*xds.Fragment, error) {
	sums, err := hashesOf(r.VirtualService)
	if err != nil {
		return nil, err
	}
	var to []Destination
	for _, ref := range virtualservice.Routed(r.HTTP()) {
		to = append(to, d.destinations[ref])
	}
	of := r.VirtualService.Key
	key := ruleKey{rule: sums[r.Index], namespace: of.Namespace, name: of.Name, excluded: r.Excluded, port: d.Port, http3: d.HTTP3,
		destinations: destinations.List(to...), mesh: d.Mesh, caps: d.Caps & (xds.CapFault | xds.CapCORS), proxy: d.Proxy}
	return encodedRules.FragmentOf(key, func() (*xds.Fragment, error) {
		return xds.EncodePart(of.Name, &routev3.VirtualHost{Routes: d.routesOf(r)})
	})
}

// hashes caches the result of hashesOf while the record is alive, because many virtual hosts have rules of the same
// record. It maps weak.Pointer[model.VirtualService] to []xds.Hash.
var hashes sync.Map

// hashesOf returns the hash of each http rule of a record, in the order of the rules. It fails if a string of a rule is
// not valid UTF-8. The error names the record and spec.http[i].
func hashesOf(vs *model.VirtualService) ([]xds.Hash, error) {
	key := weak.Make(vs)
	if known, ok := hashes.Load(key); ok {
		return known.([]xds.Hash), nil
	}
	all := make([]xds.Hash, 0, len(vs.Spec.GetHttp()))
	for i, rule := range vs.Spec.GetHttp() {
		sum, err := xds.HashOf(rule)
		if err != nil {
			return nil, fmt.Errorf("%v: spec.http[%d]: %w", vs.Key, i, err)
		}
		all = append(all, sum)
	}
	if _, again := hashes.LoadOrStore(key, all); !again {
		runtime.AddCleanup(vs, func(key weak.Pointer[model.VirtualService]) { hashes.Delete(key) }, key)
	}
	return all, nil
}
