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
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/problem"
)

// listeners contains the outbound listeners of a scope (a group of proxies with the same outbound configuration).
type listeners struct {
	*scope
	table   layer.Table[outbound] // by name
	changed map[string]bool       // listeners to be planned again in this step
	// touched has the listeners with TCP or TLS traffic of hosts that this step plans. The traffic may be unchanged in
	// the scope, but changed in variations (for proxies with certain labels, for example).
	touched map[string]bool
	entries *layer.Table[hostEntries] // the entries of the Front, for messages
}

// newListeners returns an empty collection of listeners for a scope.
func newListeners(s *scope) *listeners {
	return &listeners{scope: s, changed: map[string]bool{}, touched: map[string]bool{}}
}

// fork returns the listeners of a forked scope.
func (ls *listeners) fork(to *scope) *listeners {
	next := newListeners(to)
	next.table = ls.table.Fork()
	return next
}

// outbound is one outbound listener with the traffic of its hosts. If several egress listeners of the Sidecar have
// traffic for it, only the traffic of the first is used (leading).
type outbound struct {
	layer.Unit
	of    *editor
	name  string
	route routeKey      // the route configuration that the listener requests
	http  []httpCount   // plain HTTP, sorted by egress listener
	rest  []hostTraffic // all other traffic, sorted by egress listener and then by age of the service
}

// httpCount counts the hosts with plain HTTP at one egress listener. The hosts have equal traffic, except for the
// features that some hosts need.
type httpCount struct {
	traffic
	hosts int
	more  []hostFeatures // the hosts with features, sorted by host
}

// hostFeatures contains the optional features that one host needs.
type hostFeatures struct {
	host string
	features
}

// count adds (delta = 1) or removes (delta = -1) one host with its features.
func (c *httpCount) count(host string, w features, delta int) {
	c.hosts += delta
	if w == (features{}) {
		return
	}
	i, ok := slices.BinarySearchFunc(c.more, host, func(m hostFeatures, host string) int { return cmp.Compare(m.host, host) })
	switch {
	case ok && delta < 0:
		c.more = slices.Delete(c.more, i, i+1)
	case !ok && delta > 0:
		c.more = slices.Insert(c.more, i, hostFeatures{host, w})
	}
}

// hostTraffic is the traffic of one host.
type hostTraffic struct {
	host string
	traffic
}

// compare orders traffic by egress listener, then by age of the service, then by host, as cmp.Compare does.
func (b hostTraffic) compare(o hostTraffic) int {
	return cmp.Or(cmp.Compare(b.egress, o.egress), b.from.Older(&o.from.Head), cmp.Compare(b.host, o.host))
}

// get returns a listener that the scope may change in place. A missing listener is created.
func (ls *listeners) get(name string) *outbound {
	l := ls.table.Get(name)
	switch {
	case l == nil:
		l = &outbound{of: ls.own, name: name}
	case l.of != ls.own:
		l = &outbound{of: ls.own, name: name, Unit: l.Unit, route: l.route, http: slices.Clone(l.http),
			rest: slices.Clone(l.rest)}
		for i := range l.http {
			l.http[i].more = slices.Clone(l.http[i].more)
		}
	default:
		return l
	}
	ls.table.Put(name, l)
	return l
}

// touch adds to ls.touched the listeners of all traffic that is not plain HTTP.
func (ls *listeners) touch(all []traffic) {
	for _, t := range all {
		if !t.http {
			ls.touched[t.listener] = true
		}
	}
}

// exchange replaces the traffic of a host. It marks only listeners for which the traffic of the host differs, because a
// headless service with one changed endpoint has many unchanged listeners.
func (ls *listeners) exchange(host string, was, now []traffic, yield func()) {
	more := make(map[traffic]int, len(now))
	for _, t := range now {
		more[t]++
	}
	for i, t := range was {
		if more[t]--; more[t] < 0 {
			ls.count(host, t, -1)
		}
		pauseAt(i, yield)
	}
	for i, t := range now {
		if more[t] > 0 {
			ls.count(host, t, 1)
			more[t]--
		}
		pauseAt(i, yield)
	}
}

// count adds (delta = 1) or removes (delta = -1) the traffic of a host, and marks the listener of the traffic as
// changed.
func (ls *listeners) count(host string, t traffic, delta int) {
	l := ls.get(t.listener)
	ls.changed[t.listener] = true
	if t.http {
		i, ok := slices.BinarySearchFunc(l.http, t.egress, func(c httpCount, egress int) int {
			return cmp.Compare(c.egress, egress)
		})
		if !ok {
			same := t
			same.features, same.from = features{}, nil
			l.http = slices.Insert(l.http, i, httpCount{traffic: same})
		}
		if l.http[i].count(host, t.features, delta); l.http[i].hosts == 0 {
			l.http = slices.Delete(l.http, i, i+1)
		}
		return
	}
	b := hostTraffic{host, t}
	i, ok := slices.BinarySearchFunc(l.rest, b, hostTraffic.compare)
	switch {
	case delta > 0 && !ok:
		l.rest = slices.Insert(l.rest, i, b)
	case delta > 0:
		l.rest[i] = b
	case ok:
		l.rest = slices.Delete(l.rest, i, i+1)
	}
}

// leading returns the traffic of the first egress listener that has traffic. The result ok is false without traffic.
func (l *outbound) leading() (http *httpCount, rest []hostTraffic, ok bool) {
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
	end := slices.IndexFunc(l.rest, func(b hostTraffic) bool { return b.egress != egress })
	if end < 0 {
		end = len(l.rest)
	}
	return http, l.rest[:end], egress >= 0
}

// plan plans one outbound listener again from its traffic, and returns the previous version. If the previous and the
// new resource differ, the caller has to call Front.useRoutes.
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

// bound returns the traffic that decides the address and port of a listener. The arguments are results of leading, and
// must not both be empty.
func bound(http *httpCount, rest []hostTraffic) *traffic {
	if http != nil {
		return &http.traffic
	}
	return &rest[0].traffic
}

// spec returns the Spec (the inputs of the build) of a listener, and the route configuration that the listener
// requests. The result ok is false if the listener has no traffic, or if an EnvoyFilter removes the listener.
func (ls *listeners) spec(l *outbound, found *[]input.Problem) (spec listener.Outbound, asks routeKey, ok bool) {
	http, rest, ok := l.leading()
	if !ok {
		return listener.Outbound{}, routeKey{}, false
	}
	t := bound(http, rest)
	var more []hostFeatures
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
	var ends *hostTraffic // the first traffic with a chain for all connections
	for _, r := range rest {
		if r.route != (routeKey{}) && asks == (routeKey{}) {
			asks = r.route
		}
		spec.Sniff = spec.Sniff || r.route != (routeKey{})
		if r.route != (routeKey{}) && r.features != (features{}) {
			more = append(more, hostFeatures{r.host, r.features})
		}
		for _, c := range r.chains.All() {
			open := c.CIDRs.Len() == 0 && c.SNI.Len() == 0
			if open && (ends != nil || http != nil && r.route == (routeKey{})) {
				*found = append(*found, input.WarningAbout(r.from.Key, problem.Duplicate, "spec.ports",
					"TCP at %s has no effect: %v already receives all connections of this port", xds.ListenerName(t.bind, t.port),
					ls.holder(l.name, ends)))
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
	spec.GRPCWeb, spec.Dynamic = mergeFeatures(more)
	if asks != (routeKey{}) {
		spec.Unknown = ls.outbound().Unknown()
	}
	if !t.direct && ends == nil { // direct connections have no original destination, so they have no fallback
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

// holder describes the owner of a listener's port for a message. If ends is not nil, the owner is its service, which
// has the chain for all connections. If ends is nil, the owner is the first host by name with HTTP at the listener.
func (ls *listeners) holder(name string, ends *hostTraffic) any {
	if ends != nil {
		of := model.OtherOf(ends.from)
		of.Text = fmt.Sprintf("%v (host %s)", ends.from.Key, ends.host)
		return of
	}
	first, by := "", (*model.Service)(nil)
	for host, c := range ls.entries.All() {
		if first != "" && host >= first {
			continue
		}
		if i := slices.IndexFunc(c.traffic, func(t traffic) bool { return t.http && t.listener == name }); i >= 0 {
			first, by = host, c.traffic[i].from
		}
	}
	if by == nil {
		return "the HTTP proxy of the mesh"
	}
	of := model.OtherOf(by)
	of.Text = "HTTP of host " + first
	return of
}

// reporting returns the Spec of a listener with the given telemetry. A listener without HTTP reports no spans.
func reporting(spec listener.Outbound, reports telemetry.Spec) listener.Outbound {
	if spec.Telemetry = reports; spec.Route == "" {
		spec.Telemetry = reports.WithoutSpans()
	}
	return spec
}

// mergeFeatures combines the features of hosts. The result grpcWeb is true if some host needs gRPC-Web. The result
// dynamic lists the hosts whose names proxies resolve for each request, sorted.
func mergeFeatures(more []hostFeatures) (grpcWeb bool, dynamic intern.List[string]) {
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

// common returns the part of a listener's Spec that all kinds of listeners have.
func (ls *listeners) common(name string, port uint32) listener.Common {
	c := ls.in.Common(ls.anonymous(), ls.key.Listening, ls.patches, name, port, networkingv1.EnvoyFilter_SIDECAR_OUTBOUND)
	c.Proxy, c.HeaderCase = ls.in.Defaults.Listeners, ls.key.HeaderCase
	return c
}

// planVirtual plans the listener that receives redirected connections, if connections are redirected. It reports
// whether the listener requests the route configuration of unknown hosts.
func (ls *listeners) planVirtual(found *[]input.Problem) bool {
	spec, ok := ls.virtual(ls.reports.spec)
	if ok {
		ls.outbound().Fixed(spec, found)
	}
	return ok && spec.ByName
}

// redirects reports whether connections of the workload are redirected to the proxy.
func (ls *listeners) redirects() bool {
	return !input.Direct(ls.sidecar, ls.key.Mode)
}

// virtual returns the Spec of the listener that receives redirected connections, with the given telemetry. The result
// ok is false if no connections are redirected, or if an EnvoyFilter removes the listener.
func (ls *listeners) virtual(reports telemetry.Spec) (spec listener.VirtualOutbound, ok bool) {
	port := ls.in.OutboundPort()
	if !ls.redirects() ||
		ls.patches.RemovesListener(xds.VirtualOutbound, port, networkingv1.EnvoyFilter_SIDECAR_OUTBOUND) {
		return spec, false
	}
	spec = listener.VirtualOutbound{Common: ls.common(xds.VirtualOutbound, port), Port: port,
		Passthrough: ls.outbound().Passthrough(), EgressProxy: ls.outbound().EgressProxy(), Transparent: ls.key.Mode == view.TProxy}
	spec.Telemetry = reports.WithoutSpans()
	if ls.key.Caps.Has(xds.CapHTTPInspector | xds.CapTLSInspector) { // the inspectors detect HTTP
		if spec.Unknown = ls.outbound().Unknown(); spec.ByName {
			spec.Telemetry = reports
		}
	}
	return spec, true
}
