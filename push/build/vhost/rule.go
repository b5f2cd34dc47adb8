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

// drawing is one Spec, with its destinations by name.
type drawing struct {
	Spec
	destinations map[virtualservice.Ref]Destination
}

func newDrawing(s Spec) *drawing {
	d := &drawing{Spec: s, destinations: make(map[virtualservice.Ref]Destination, s.Destinations.Len())}
	for _, dest := range s.Destinations.All() {
		d.destinations[virtualservice.Ref{Host: dest.Host, Subset: dest.Subset, Port: dest.Port}] = dest
	}
	return d
}

// reachable iterates over the rules that apply, up to the first that matches everything: Envoy takes the first match,
// so the rules behind it are unreachable.
func (d *drawing) reachable() iter.Seq[Rule] {
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

// catchesAll says whether one of the matches that are not excluded matches everything.
func (r Rule) catchesAll() bool {
	for j, m := range matchesOf(r.HTTP()) {
		if !slices.Contains(r.Excluded.All(), j) && virtualservice.CatchesAll(m) {
			return true
		}
	}
	return false
}

// routes draws all routes of a Spec.
func (d *drawing) routes() (out []*routev3.Route) {
	if d.Rules.Len() == 0 {
		return d.defaultRoutes()
	}
	for r := range d.reachable() {
		out = append(out, d.routesOf(r)...)
	}
	return out
}

// routesOf draws a rule: a route for each match that is not excluded, up to the first that matches everything.
func (d *drawing) routesOf(r Rule) (out []*routev3.Route) {
	rule := r.HTTP()
	for j, m := range matchesOf(rule) {
		if slices.Contains(r.Excluded.All(), j) {
			continue
		}
		match, err := drawMatch(m)
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

// drawn has the encoded routes of rules, as long as the fragment of a virtual host is made of them. So an edit of one
// rule encodes that rule, in all virtual hosts and scopes together, and a new order encodes nothing.
var drawn pool.Pool

// ruleKey is all that the routes of a rule depend on. It has the content of the rule and not its record, because an
// edit of one rule makes another record of the VirtualService.
type ruleKey struct {
	rule            xds.Hash
	namespace, name string // of the VirtualService
	excluded        intern.List[int]
	port            uint32
	destinations    intern.List[Destination]
	mesh            *model.Mesh
	caps            xds.Caps
	proxy           proxyconfig.Routes
}

// destinations are lists of the destinations of one rule.
var destinations intern.Table[Destination]

// fragment is the encoded routes of a rule. An error: a string of the rule is not UTF-8.
func (d *drawing) fragment(r Rule) (*xds.Fragment, error) {
	sums, err := hashesOf(r.VirtualService)
	if err != nil {
		return nil, err
	}
	var to []Destination
	for _, ref := range virtualservice.Routed(r.HTTP()) {
		to = append(to, d.destinations[ref])
	}
	of := r.VirtualService.Key
	key := ruleKey{rule: sums[r.Index], namespace: of.Namespace, name: of.Name, excluded: r.Excluded, port: d.Port,
		destinations: destinations.List(to...), mesh: d.Mesh, caps: d.Caps & (xds.CapFault | xds.CapCORS), proxy: d.Proxy}
	return drawn.FragmentOf(key, func() (*xds.Fragment, error) {
		return xds.EncodePart(of.Name, &routev3.VirtualHost{Routes: d.routesOf(r)})
	})
}

// hashes has the hashes of the http rules of records that are alive: weak.Pointer[model.VirtualService] to
// []xds.Hash. Virtual hosts of many hosts and scopes have rules of the same record.
var hashes sync.Map

// hashesOf is the hash of each http rule of a record. An error: a string of a rule is not UTF-8.
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
