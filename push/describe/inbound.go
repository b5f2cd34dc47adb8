package describe

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	networkingv1 "istio.io/api/networking/v1alpha3"
	securityv1 "istio.io/api/security/v1beta1"

	"navarch.io/navarch/push/build/listener"
	"navarch.io/navarch/push/build/proxyless"
	"navarch.io/navarch/push/inspect"
	"navarch.io/navarch/push/meaning"
	"navarch.io/navarch/push/plan"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// workloadOf returns the inputs of the inbound configuration of a view (proxies with equal inputs). For a gateway,
// these are the inputs of its own Pod.
func workloadOf(v *view.View) *view.Workload {
	if v.Scope.Kind == view.Router && v.Scope.Edge.Value().Workload.Namespace != "" {
		w := v.Scope.Edge.Value().Workload
		return &w
	}
	return &v.Workload
}

// inboundOf describes how a proxy treats requests to its workload.
func inboundOf(s plan.Seen, o plan.Origins) []Section {
	w := workloadOf(&s.View)
	services := Section{Name: "services"}
	for _, key := range w.Services.All() {
		if svc := get[*model.Service](o.Snapshot, key); svc != nil {
			services.Facts = append(services.Facts, Fact{strings.Join(svc.Spec.GetHosts(), ", "), portsText(svc), []string{at(key, "")}})
		}
	}
	out := []Section{services}
	if s.View.Scope.Kind != view.Router {
		out = append(out, portsOf(w, o, s))
	}
	return append(out, policiesOf(w, o.Snapshot), extensionsOf(w), filtersOf(o.Snapshot, w.Filters.All()), telemetryOf(o))
}

// portsText lists the ports of a service.
func portsText(svc *model.Service) string {
	var texts []string
	for _, p := range svc.Spec.GetPorts() {
		texts = append(texts, fmt.Sprintf("%d %s", p.GetNumber(), inspect.Word(p.GetProtocol())))
	}
	return "ports " + strings.Join(texts, ", ")
}

// portsOf lists the mTLS mode of each port, with the PeerAuthentication that sets it.
func portsOf(w *view.Workload, o plan.Origins, s plan.Seen) Section {
	out := Section{Name: "ports and mTLS"}
	decides := deciderOf(w, o.Snapshot)
	var ports []listener.InboundPort
	closed, rest := false, ""
	for _, name := range slices.Sorted(maps.Keys(o.Listeners)) {
		if len(o.Listeners[name]) == 0 {
			continue
		}
		switch spec := o.Listeners[name][0].(type) {
		case listener.VirtualInbound:
			ports = append(ports, spec.Ports.All()...)
			closed, rest = closed || spec.Closed, modes[spec.Rest]
		case listener.Ingress:
			ports, closed = append(ports, spec.Inner), closed || spec.Closed
		case proxyless.Server:
			mode := listener.Plain
			if spec.MTLS {
				mode = listener.Strict
			}
			ports = append(ports, listener.InboundPort{Port: spec.Port, Protocol: model.Protocol_PROTOCOL_GRPC, MTLS: mode})
			closed = closed || spec.Closed
		}
	}
	if closed {
		by := keysText(view.Closing(o.Snapshot, s.Nodes[0]))
		out.Facts = append(out.Facts, Fact{"all ports", "closed: a policy that selects the workload cannot be enforced", by})
	}
	slices.SortStableFunc(ports, func(a, b listener.InboundPort) int { return cmp.Compare(a.Port, b.Port) })
	ports = slices.CompactFunc(ports, func(a, b listener.InboundPort) bool { return a.Port == b.Port })
	for _, p := range ports {
		out.Facts = append(out.Facts, Fact{fmt.Sprintf("port %d", p.Port), portText(p), decides(p.Port)})
	}
	if rest != "" {
		out.Facts = append(out.Facts, Fact{"others", "mTLS " + rest, decides(0)})
	}
	return out
}

// deciderOf returns a function that returns the PeerAuthentication and field that set the mode of a port. Port 0 stands
// for all ports that no policy names. The returned function returns nil if no PeerAuthentication sets the mode.
func deciderOf(w *view.Workload, s *mirror.Snapshot) func(port uint32) []string {
	var peers []*model.Policy
	for _, key := range w.Peers.All() {
		if p := get[*model.Policy](s, key); p != nil {
			peers = append(peers, p)
		}
	}
	return func(port uint32) []string {
		_, p, ofPort := input.FirstPeer(peers, port)
		switch {
		case p == nil:
			return nil
		case ofPort:
			return []string{at(p.Key, fmt.Sprintf("spec.portLevelMtls[%d]", port))}
		}
		return []string{at(p.Key, "spec.mtls")}
	}
}

// modes maps the mTLS modes of ports to words.
var modes = map[listener.MTLS]string{listener.Plain: "off", listener.Permissive: "permissive", listener.Strict: "strict",
	listener.Refused: "strict, but the proxy does not support mTLS and refuses all connections"}

// portText describes a port of a workload.
func portText(p listener.InboundPort) string {
	text := fmt.Sprintf("%s, mTLS %s", inspect.Word(p.Protocol), modes[p.MTLS])
	if p.Host != "" && p.ServicePort != 0 {
		text += fmt.Sprintf(", port %d of %s", p.ServicePort, p.Host)
	}
	if p.Ended != (listener.ServerTLS{}) {
		text += ", TLS " + p.Ended.Mode.String() + " ends here"
	}
	return text
}

// actions are the actions of AuthorizationPolicies in the order in which Envoy evaluates them.
var actions = []securityv1.AuthorizationPolicy_Action{securityv1.AuthorizationPolicy_CUSTOM, securityv1.AuthorizationPolicy_AUDIT,
	securityv1.AuthorizationPolicy_DENY, securityv1.AuthorizationPolicy_ALLOW}

// policiesOf lists the RequestAuthentications and AuthorizationPolicies of a workload, in the order of evaluation.
func policiesOf(w *view.Workload, s *mirror.Snapshot) Section {
	out := Section{Name: "policies in order of evaluation"}
	add := func(what, text string, key model.Key) {
		out.Facts = append(out.Facts, Fact{fmt.Sprintf("%d %s", len(out.Facts)+1, what), text, []string{at(key, "")}})
	}
	for _, key := range w.Authentications.All() {
		if m := model.Authentication(get[*model.Policy](s, key)); m != nil {
			var issuers []string
			for _, rule := range m.GetJwtRules() {
				issuers = append(issuers, rule.GetIssuer())
			}
			add("JWT", "tokens of "+strings.Join(issuers, ", ")+"; a request without a token passes", key)
		}
	}
	for _, action := range actions {
		for _, key := range w.Policies.All() {
			m := model.Authorization(get[*model.Policy](s, key))
			if m == nil || m.GetAction() != action {
				continue
			}
			add(action.String(), rulesText(m), key)
		}
	}
	return out
}

// rulesText returns a summary of an AuthorizationPolicy's rules.
func rulesText(m *securityv1.AuthorizationPolicy) string {
	n := len(m.GetRules())
	if n == 0 && m.GetAction() == securityv1.AuthorizationPolicy_ALLOW {
		return "no rules: it allows nothing"
	}
	const most = 3
	var texts []string
	for _, rule := range m.GetRules()[:min(n, most)] {
		if text := brief(rule); text != "{}" {
			texts = append(texts, text)
		} else {
			texts = append(texts, "every request")
		}
	}
	if n > most {
		texts = append(texts, fmt.Sprintf("%d more rules", n-most))
	}
	text := strings.Join(texts, " or ")
	if provider := m.GetProvider().GetName(); provider != "" {
		text = "asks " + provider + ": " + text
	}
	return text
}

// extensionsOf lists the WasmPlugins and TrafficExtensions of a workload, in order of application.
func extensionsOf(w *view.Workload) Section {
	out := Section{Name: "extensions in order"}
	for i, e := range w.Extensions.All() {
		text := "applies"
		if !e.Way.Runs() {
			text = "does not apply: " + e.Why
		}
		out.Facts = append(out.Facts, Fact{fmt.Sprint(i + 1), text, []string{at(e.Key, "")}})
	}
	return out
}

// filtersOf lists patches of EnvoyFilters with their matches, in order of application.
func filtersOf(s *mirror.Snapshot, patches []view.Patch) Section {
	out := Section{Name: "EnvoyFilters in order"}
	for i, p := range patches {
		filter := get[*model.EnvoyFilter](s, p.Filter)
		if filter == nil || p.Index >= len(filter.Spec.GetConfigPatches()) {
			continue
		}
		patch := filter.Spec.GetConfigPatches()[p.Index]
		text := fmt.Sprintf("%s %s in %s", patch.GetPatch().GetOperation(), patch.GetApplyTo(), patch.GetMatch().GetContext())
		if match := matchOf(patch.GetMatch()); match != "" {
			text += ", match " + match
		}
		out.Facts = append(out.Facts, Fact{fmt.Sprint(i + 1), text, []string{at(p.Filter, fmt.Sprintf("spec.configPatches[%d]", p.Index))}})
	}
	return out
}

// matchOf returns the match of a patch as text, without the context. It returns "" if the match has nothing but the
// context.
func matchOf(m *networkingv1.EnvoyFilter_EnvoyConfigObjectMatch) string {
	if m == nil {
		return ""
	}
	rest := proto.CloneOf(m)
	rest.Context = networkingv1.EnvoyFilter_ANY
	if proto.Size(rest) == 0 {
		return ""
	}
	return brief(rest)
}

// telemetryOf lists the Telemetries of a proxy. A later Telemetry overrides an earlier one.
func telemetryOf(o plan.Origins) Section {
	out := Section{Name: "Telemetry, the last one wins"}
	for _, t := range o.Telemetries {
		var parts []string
		for _, part := range []struct {
			name string
			n    int
		}{{"metrics", len(t.Spec.GetMetrics())}, {"tracing", len(t.Spec.GetTracing())}, {"accessLogging", len(t.Spec.GetAccessLogging())}} {
			if part.n > 0 {
				parts = append(parts, part.name)
			}
		}
		out.Facts = append(out.Facts, Fact{"states", strings.Join(parts, ", "), []string{at(t.Key, "")}})
	}
	if len(out.Facts) == 0 {
		if mesh := o.Snapshot.Mesh().Spec; mesh.GetAccessLogFile() != "" || mesh.GetDefaultProviders() != nil {
			out.Facts = append(out.Facts, Fact{"states", "accessLogFile or defaultProviders", []string{at(model.MeshKey, "")}})
		}
	}
	return out
}

// keysText returns "Kind namespace/name" for each key.
func keysText(keys []model.Key) (names []string) {
	for _, key := range keys {
		names = append(names, at(key, ""))
	}
	return names
}

// maxBrief is the maximum length of brief's result, in runes.
const maxBrief = 160

// brief returns a protobuf message as text on one line, shortened.
func brief(m proto.Message) string { return meaning.Brief(m, maxBrief) }
