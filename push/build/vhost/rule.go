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

// routeBuilder builds the routes of one Spec; it holds the Spec's destinations by name.
type routeBuilder struct {
	Spec
	destinations map[virtualservice.Ref]Destination
}

func newRouteBuilder(s Spec) *routeBuilder {
	d := &routeBuilder{Spec: s, destinations: make(map[virtualservice.Ref]Destination, s.Destinations.Len())}
	for _, dest := range s.Destinations.All() {
		d.destinations[virtualservice.Ref{Host: dest.Host, Subset: dest.Subset, Port: dest.Port}] = dest
	}
	return d
}

// reachable iterates over the rules that apply, up to the first that matches everything: Envoy takes the first match,
// so the rules behind it are unreachable.
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

// Unreachable returns the routes of the rules that Fragment leaves out because an earlier rule matches everything, for
// reports.
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

// catchesAll reports whether one of the matches that are not excluded matches everything.
func (r Rule) catchesAll() bool {
	for j, m := range matchesOf(r.HTTP()) {
		if !slices.Contains(r.Excluded.All(), j) && virtualservice.CatchesAll(m) {
			return true
		}
	}
	return false
}

// routes builds all routes of a Spec, for proxyless gRPC clients.
func (d *routeBuilder) routes() (out []*routev3.Route) {
	if d.Rules.Len() == 0 {
		return d.defaultRoutes()
	}
	for r := range d.reachable() {
		out = append(out, d.routesOf(r)...)
	}
	return out
}

// routesOf builds the routes of a rule: one for each match that is not excluded, up to the first that matches
// everything. Routes that Envoy would refuse are left out.
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

// matchesOf returns the matches of a rule, of which one suffices. A rule without matches has one nil match, for all
// requests.
func matchesOf(rule *networkingv1.HTTPRoute) []*networkingv1.HTTPMatchRequest {
	if len(rule.GetMatch()) == 0 {
		return []*networkingv1.HTTPMatchRequest{nil}
	}
	return rule.GetMatch()
}

// encodedRules holds the encoded routes of rules while the fragment of a virtual host refers to them. So an edit of one
// rule encodes that rule once for all virtual hosts and scopes, and a new order of rules encodes nothing.
var encodedRules pool.Pool

// ruleKey holds all inputs of the routes of a rule. It has the hash of the rule instead of its record, because an edit
// of another rule also replaces the record of the VirtualService.
type ruleKey struct {
	rule            xds.Hash
	namespace, name string // of the VirtualService
	excluded        intern.List[int]
	port, http3     uint32
	destinations    intern.List[Destination]
	mesh            *model.Mesh
	caps            xds.Caps
	proxy           proxyconfig.Routes
}

// destinations interns the lists of the destinations of one rule.
var destinations intern.Table[Destination]

// fragment returns the encoded routes of a rule. It fails if a string of any http rule of the VirtualService is not
// valid UTF-8.
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

// hashes maps weak.Pointer[model.VirtualService] to the []xds.Hash of its http rules, while the record is alive. The
// virtual hosts of many hosts and scopes have rules of the same record.
var hashes sync.Map

// hashesOf returns the hash of each http rule of a record, by index. It fails if a string of a rule is not valid UTF-8;
// the error names the record and spec.http[i].
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
