package sidecar

import (
	"cmp"
	"fmt"
	"slices"

	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/build/listener"
	"navarch.io/navarch/push/build/telemetry"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/plan/layer"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/problem"
)

// listeners are the outbound listeners of a scope.
type listeners struct {
	*scope
	table   layer.Table[outbound] // by name
	changed map[string]bool       // to be planned again in this step
	// touched are those to which hosts of this step bring connections, the same or not: for variations these may be others.
	touched map[string]bool
	brings  *layer.Table[contribution] // the front's, for messages
}

func newListeners(s *scope) *listeners {
	return &listeners{scope: s, changed: map[string]bool{}, touched: map[string]bool{}}
}

// fork is the table of a forked scope.
func (ls *listeners) fork(to *scope) *listeners {
	next := newListeners(to)
	next.table = ls.table.Fork()
	return next
}

// outbound is one outbound listener and what is brought to it. What is for the first egress listener has it.
type outbound struct {
	layer.Unit
	of    *editor
	name  string
	route routeKey    // that it asks for
	http  []httpCount // by egress listener
	rest  []brought   // by egress listener, then the oldest first
}

// httpCount counts the hosts that bring plain HTTP: at one egress listener they all bring the same, but for those that want more.
type httpCount struct {
	traffic
	hosts int
	more  []wanting // by host
}

// wanting is a host that wants something of the listener that not all have.
type wanting struct {
	host string
	wants
}

func (c *httpCount) count(host string, w wants, by int) {
	c.hosts += by
	if w == (wants{}) {
		return
	}
	i, ok := slices.BinarySearchFunc(c.more, host, func(m wanting, host string) int { return cmp.Compare(m.host, host) })
	switch {
	case ok && by < 0:
		c.more = slices.Delete(c.more, i, i+1)
	case !ok && by > 0:
		c.more = slices.Insert(c.more, i, wanting{host, w})
	}
}

// brought is the traffic of one host.
type brought struct {
	host string
	traffic
}

func (b brought) compare(o brought) int {
	return cmp.Or(cmp.Compare(b.egress, o.egress), b.from.Older(&o.from.Head), cmp.Compare(b.host, o.host))
}

// get is a listener, or a new one of this name, that the scope may change.
func (ls *listeners) get(name string) *outbound {
	l := ls.table.Get(name)
	switch {
	case l == nil:
		l = &outbound{of: ls.own, name: name}
	case l.of != ls.own:
		l = &outbound{of: ls.own, name: name, Unit: l.Unit, route: l.route, http: slices.Clone(l.http), rest: slices.Clone(l.rest)}
		for i := range l.http {
			l.http[i].more = slices.Clone(l.http[i].more)
		}
	default:
		return l
	}
	ls.table.Put(name, l)
	return l
}

// touch marks the listeners to which a host brings connections.
func (ls *listeners) touch(all []traffic) {
	for _, t := range all {
		if !t.http {
			ls.touched[t.listener] = true
		}
	}
}

// exchange replaces what a host brought by what it brings now. Listeners to which it brings the same are left alone: a
// headless service has one for each endpoint.
func (ls *listeners) exchange(host string, was, now []traffic, rest func()) {
	more := make(map[traffic]int, len(now))
	for _, t := range now {
		more[t]++
	}
	for i, t := range was {
		if more[t]--; more[t] < 0 {
			ls.bring(host, t, -1)
		}
		between(i, rest)
	}
	for i, t := range now {
		if more[t] > 0 {
			ls.bring(host, t, 1)
			more[t]--
		}
		between(i, rest)
	}
}

// bring counts a host's traffic in or out, and marks the listener.
func (ls *listeners) bring(host string, t traffic, by int) {
	l := ls.get(t.listener)
	ls.changed[t.listener] = true
	if t.http {
		i, ok := slices.BinarySearchFunc(l.http, t.egress, func(c httpCount, egress int) int { return cmp.Compare(c.egress, egress) })
		if !ok {
			same := t
			same.wants, same.from = wants{}, nil
			l.http = slices.Insert(l.http, i, httpCount{traffic: same})
		}
		if l.http[i].count(host, t.wants, by); l.http[i].hosts == 0 {
			l.http = slices.Delete(l.http, i, i+1)
		}
		return
	}
	b := brought{host, t}
	i, ok := slices.BinarySearchFunc(l.rest, b, brought.compare)
	switch {
	case by > 0 && !ok:
		l.rest = slices.Insert(l.rest, i, b)
	case by > 0:
		l.rest[i] = b
	case ok:
		l.rest = slices.Delete(l.rest, i, i+1)
	}
}

// first is what is brought for the first egress listener; false: nothing is brought at all.
func (l *outbound) first() (http *httpCount, rest []brought, ok bool) {
	egress := -1
	if len(l.http) > 0 {
		egress = l.http[0].egress
	}
	if len(l.rest) > 0 && (egress < 0 || l.rest[0].egress < egress) {
		egress = l.rest[0].egress
	}
	if len(l.http) > 0 && l.http[0].egress == egress {
		http = &l.http[0]
	}
	end := slices.IndexFunc(l.rest, func(b brought) bool { return b.egress != egress })
	if end < 0 {
		end = len(l.rest)
	}
	return http, l.rest[:end], egress >= 0
}

// plan plans one outbound listener again from what is brought to it, and returns what it was: where its resource is another one, other
// route configurations may be used from now on (routeTable.useOf).
func (ls *listeners) plan(l *outbound) (was outbound) {
	was = *l
	l.Unit, l.route = layer.Unit{}, routeKey{}
	var found []input.Problem
	if spec, route, ok := ls.spec(l, &found); ok {
		l.Unit, _ = ls.in.Make(spec, ls.in.Mesh.Key, &found)
		l.route = route
	}
	ls.problems.Set("listener "+l.name, found)
	if was.Res != l.Res {
		ls.layer.Drop(was.Res)
		ls.layer.Put(l.Res)
	}
	if len(l.http)+len(l.rest) == 0 {
		ls.table.Put(l.name, nil)
	}
	return was
}

// bound is the traffic, of that which comes first to a listener, that decides where it is bound.
func bound(http *httpCount, rest []brought) *traffic {
	if http != nil {
		return &http.traffic
	}
	return &rest[0].traffic
}

// spec decides a listener, and the route configuration that it asks for. False: nothing is brought to it, or an EnvoyFilter removes it.
func (ls *listeners) spec(l *outbound, found *[]input.Problem) (spec listener.Outbound, asks routeKey, ok bool) {
	http, rest, ok := l.first()
	if !ok {
		return listener.Outbound{}, routeKey{}, false
	}
	t := bound(http, rest)
	var more []wanting
	if http != nil {
		more = slices.Clip(http.more)
	}
	spec = listener.Outbound{Common: ls.common(l.name, t.port), Name: l.name,
		Bind: t.bind, Port: t.port, BindToPort: t.direct}
	if ls.patches.RemovesListener(l.name, t.port, networkingv1.EnvoyFilter_SIDECAR_OUTBOUND) {
		return spec, asks, false
	}
	if http != nil {
		asks = http.route
	}
	var tcp []listener.Chain
	var ends *brought // the first that takes all connections
	for _, r := range rest {
		if r.route != (routeKey{}) && asks == (routeKey{}) {
			asks = r.route
		}
		spec.Sniff = spec.Sniff || r.route != (routeKey{})
		if r.route != (routeKey{}) && r.wants != (wants{}) {
			more = append(more, wanting{r.host, r.wants})
		}
		for _, c := range r.chains.All() {
			open := c.CIDRs.Len() == 0 && c.SNI.Len() == 0
			if open && (ends != nil || http != nil && r.route == (routeKey{})) {
				*found = append(*found, input.Warning(r.from.Key, problem.Duplicate, "spec.ports", "TCP at port "+xds.ListenerName(t.bind, t.port)+
					" is out of reach: "+ls.holder(l.name, ends)+" has the port"))
				continue
			}
			if open && ends == nil {
				ends = &r
			}
			spec.Sniff = spec.Sniff || http != nil
			tcp = append(tcp, c)
		}
	}
	spec.TCP = chains.List(tcp...)
	spec.GRPCWeb, spec.Dynamic = wanted(more)
	if asks != (routeKey{}) {
		spec.Unknown = ls.outbound().Unknown()
	}
	if !t.direct && ends == nil { // what was not redirected has nowhere to pass on to
		spec.Fallback = xds.BlackHole
		if ls.outbound().Passthrough() {
			spec.Fallback = cmp.Or(ls.outbound().EgressProxy(), xds.Passthrough)
		}
	}
	if asks != (routeKey{}) {
		spec.Route = asks.name()
	}
	return reporting(spec, ls.reports.spec), asks, true
}

// holder names who has the port of a listener: the service that takes all connections of TCP there, or, nil, the first host by name that brings HTTP.
func (ls *listeners) holder(name string, ends *brought) string {
	if ends != nil {
		return fmt.Sprintf("%v (host %s)", ends.from.Key, ends.host)
	}
	first := ""
	for host, c := range ls.brings.All() {
		if (first == "" || host < first) && slices.ContainsFunc(c.traffic, func(t traffic) bool { return t.http && t.listener == name }) {
			first = host
		}
	}
	if first == "" {
		return "the HTTP proxy of the mesh"
	}
	return "HTTP of host " + first
}

// reporting is a listener that reports this. One without HTTP has no spans.
func reporting(spec listener.Outbound, reports telemetry.Spec) listener.Outbound {
	if spec.Telemetry = reports; spec.Route == "" {
		spec.Telemetry = reports.WithoutSpans()
	}
	return spec
}

// wanted is what hosts want of a connection manager: whether one speaks gRPC-Web, and which are resolved as clients ask for them.
func wanted(more []wanting) (grpcWeb bool, dynamic intern.List[string]) {
	var names []string
	for _, m := range more {
		grpcWeb = grpcWeb || m.grpcWeb
		if m.dynamic {
			names = append(names, m.host)
		}
	}
	slices.Sort(names)
	return grpcWeb, strs.List(names...)
}

func (ls *listeners) common(name string, port uint32) listener.Common {
	c := ls.in.Common(ls.anonymous(), ls.key.Listening, ls.patches, name, port, networkingv1.EnvoyFilter_SIDECAR_OUTBOUND)
	c.Proxy, c.HeaderCase = ls.in.Defaults.Listeners, ls.key.HeaderCase
	return c
}

// planVirtual plans the listener that redirected connections arrive at, unless nothing is redirected. True: it asks for the route configuration of
// unknown hosts.
func (ls *listeners) planVirtual(found *[]input.Problem) bool {
	spec, ok := ls.virtual(ls.reports.spec)
	if ok {
		ls.outbound().Fixed(spec, found)
	}
	return ok && spec.ByName
}

// redirects says whether connections of the workload are redirected to the proxy.
func (ls *listeners) redirects() bool {
	return !input.Direct(ls.sidecar, ls.key.Mode)
}

// virtual is that listener, which reports this; false: there is none.
func (ls *listeners) virtual(reports telemetry.Spec) (spec listener.VirtualOutbound, ok bool) {
	port := ls.in.OutboundPort()
	if !ls.redirects() ||
		ls.patches.RemovesListener(xds.VirtualOutbound, port, networkingv1.EnvoyFilter_SIDECAR_OUTBOUND) {
		return spec, false
	}
	spec = listener.VirtualOutbound{Common: ls.common(xds.VirtualOutbound, port), Port: port,
		Passthrough: ls.outbound().Passthrough(), EgressProxy: ls.outbound().EgressProxy(), Transparent: ls.key.Mode == view.TProxy}
	spec.Telemetry = reports.WithoutSpans()
	if ls.key.Caps.Has(xds.CapHTTPInspector | xds.CapTLSInspector) { // by which HTTP is told from the rest
		if spec.Unknown = ls.outbound().Unknown(); spec.ByName {
			spec.Telemetry = reports
		}
	}
	return spec, true
}
