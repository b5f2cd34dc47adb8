package analyze

import (
	"fmt"
	"iter"

	networkingv1 "istio.io/api/networking/v1alpha3"

	planinput "navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/pool"
	"navarch.io/navarch/push/traffic"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/problem"
)

// strictServers reports DestinationRules by which clients send no mTLS to endpoints whose PeerAuthentication is STRICT.
func strictServers(w *world) {
	if len(w.records[model.KindPeerAuthentication]) == 0 {
		return
	}
	var in *planinput.Input // an index of all records, made for the first rule that needs it
	automatic := w.known.Mesh().Spec.GetEnableAutoMtls().GetValue()
	for rule := range each[*model.DestinationRule](w, model.KindDestinationRule) {
		if !mayRefuse(rule, automatic) {
			continue
		}
		if in == nil {
			in = planinput.New(w.known, &pool.Pool{}, "")
		}
		reported := map[string]bool{} // fields
		for service, host := range w.ruledServices(in, rule) {
			w.strictPorts(in, rule, service, host, reported)
		}
	}
}

// mayRefuse reports whether a rule may make clients send no mTLS. The result is true if the rule states mode DISABLE or
// SIMPLE anywhere, or if automatic mTLS is off. Mode MUTUAL does not count, because the mesh may have signed the
// client's certificates.
func mayRefuse(rule *model.DestinationRule, automatic bool) bool {
	if !automatic {
		return true
	}
	for _, settings := range traffic.All(rule.Spec) {
		if withoutMTLS(settings.GetTls(), automatic) {
			return true
		}
	}
	return false
}

// withoutMTLS reports whether clients send no client certificate by the tls of a rule. The argument tls is nil if the
// rule states no tls.
func withoutMTLS(tls *networkingv1.ClientTLSSettings, automatic bool) bool {
	if tls == nil {
		return !automatic
	}
	return tls.GetMode() == networkingv1.ClientTLSSettings_DISABLE || tls.GetMode() == networkingv1.ClientTLSSettings_SIMPLE
}

// ruledServices yields the services of a rule's host, each with the host. If the rule's host is a wildcard, hosts with
// a more specific rule are left out, because only the more specific rule applies to them.
func (w *world) ruledServices(in *planinput.Input, rule *model.DestinationRule) iter.Seq2[*model.Service, string] {
	return func(yield func(*model.Service, string) bool) {
		for _, of := range []model.Kind{model.KindService, model.KindServiceEntry} {
			for r := range w.known.ByHost(of, rule.Spec.GetHost()) {
				if !yield(r.(*model.Service), rule.Spec.GetHost()) {
					return
				}
			}
			if !planinput.IsWildcard(rule.Spec.GetHost()) {
				continue
			}
			for svc := range each[*model.Service](w, of) {
				for _, host := range svc.Spec.GetHosts() {
					if !model.Covers(rule.Spec.GetHost(), host) || w.ruleFor(in, host) != rule.Spec.GetHost() {
						continue
					}
					if !yield(svc, host) {
						return
					}
				}
			}
		}
	}
}

// ruleFor returns the host of the most specific DestinationRules for a host: the host itself, or the longest wildcard
// that covers it. The result is "" without such a rule.
func (w *world) ruleFor(in *planinput.Input, host string) (found string) {
	in.Index.Covering(model.KindDestinationRule, host, func(pattern string) (more bool) {
		if w.hasRule(pattern) {
			found = pattern
		}
		return found == ""
	})
	return found
}

// hasRule reports whether a DestinationRule has exactly this host.
func (w *world) hasRule(host string) bool {
	for range w.known.ByHost(model.KindDestinationRule, host) {
		return true
	}
	return false
}

// strictPorts reports the first refused port of each field of a rule. reported has the fields that were reported.
func (w *world) strictPorts(in *planinput.Input, rule *model.DestinationRule, service *model.Service, host string,
	reported map[string]bool) {
	for _, port := range service.Spec.GetPorts() {
		if port.GetProtocol() == model.Protocol_PROTOCOL_UDP {
			continue
		}
		q := planinput.Selection{Service: service, Host: host, Port: port.GetNumber(), NotReady: true}
		w.strictCluster(in, rule, q, nil, traffic.Effective(rule, nil, -1, q.Port), reported)
		for i, subset := range rule.Spec.GetSubsets() {
			q.Rule, q.Subset = rule, subset.GetName()
			w.strictCluster(in, rule, q, subset.GetLabels(), traffic.Effective(rule, rule, i, q.Port), reported)
		}
	}
}

// strictCluster reports a policy without mTLS if an endpoint of the selection (the endpoints of one Envoy cluster)
// accepts only mTLS.
func (w *world) strictCluster(in *planinput.Input, rule *model.DestinationRule, q planinput.Selection, labels map[string]string,
	policy traffic.Policy, reported map[string]bool) {
	field, states := "spec.host", "the rule states no tls, and enableAutoMtls is false"
	if policy.TLS != nil {
		field, states = policy.TLSAt.Field, fmt.Sprintf("mode %v", policy.TLS.GetMode())
	}
	if reported[field] || !withoutMTLS(policy.TLS, in.Mesh.Spec.GetEnableAutoMtls().GetValue()) {
		return
	}
	for _, m := range in.Members(q, labels).All() {
		if by := in.DemandedBy(q, m); by != nil {
			reported[field] = true
			w.foundRecord(problem.PlaintextToStrict, rule, field,
				"%s sends no client certificate, and endpoints of %q accept only mTLS at port %d by %v: "+
					"they close the connection, and calls are answered 503",
				states, q.Host, q.Port, by.Key)
			return
		}
	}
}
