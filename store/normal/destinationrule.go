package normal

//lint:file-ignore SA1019 users' YAML and deployed proxies still use deprecated fields

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	networkingv1 "istio.io/api/networking/v1alpha3"
	"k8s.io/apimachinery/pkg/util/validation"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
)

// destinationRuleRecords validates a DestinationRule, and returns its record with the host as FQDN and the subsets
// sorted.
func destinationRuleRecords(n *Normalizer, r *report, obj *object.Object, ctx Lookup) []model.Record {
	rule := &networkingv1.DestinationRule{}
	if !r.spec(obj, rule) {
		return nil
	}
	if wrong := wildcardHost(rule.Host); wrong != "" {
		r.errorf("spec.host", "%q %s", rule.Host, wrong)
	} else {
		r.hostname("spec.host", rule.Host)
	}
	checkTrafficPolicy(r, "spec.trafficPolicy", rule.TrafficPolicy)
	seen := map[string]bool{}
	for i, s := range rule.Subsets {
		at := fmt.Sprintf("spec.subsets[%d]", i)
		switch {
		case s.Name == "":
			r.requiredf(at+".name", "must not be empty")
		case len(validation.IsValidLabelValue(s.Name)) > 0:
			r.errorf(at+".name", "%q is no valid name", s.Name)
		case seen[s.Name]:
			r.duplicatef(at+".name", "%q is used twice", s.Name)
		default:
			r.name(at+".name", s.Name)
		}
		seen[s.Name] = true
		r.labels(at+".labels", s.Labels)
		checkTrafficPolicy(r, at+".trafficPolicy", s.TrafficPolicy)
	}
	r.selector("spec.workloadSelector.matchLabels", rule.WorkloadSelector.GetMatchLabels())
	r.checkExportTo(rule.ExportTo, obj.ID.Namespace, false)
	if others := func(ns string) bool { return ns != "." && ns != obj.ID.Namespace }; rule.WorkloadSelector != nil &&
		slices.ContainsFunc(rule.ExportTo, others) {
		r.refusef(problem.NoEffect, "spec.exportTo", "a rule with a workloadSelector is for its own namespace alone")
	}
	rule.ExportTo = r.exportTo("spec.exportTo", rule.ExportTo, ctx.Mesh().GetDefaultDestinationRuleExportTo(), obj.ID.Namespace)
	if r.spoiled {
		return nil
	}
	rule.Host = n.fqdn(rule.Host, obj.ID.Namespace)
	slices.SortFunc(rule.Subsets, func(a, b *networkingv1.Subset) int { return cmp.Compare(a.Name, b.Name) })
	return r.record(model.KindDestinationRule, obj, obj.ID.Name, rule)
}

// checkTrafficPolicy validates a traffic policy; nil is valid.
func checkTrafficPolicy(r *report, at string, p *networkingv1.TrafficPolicy) {
	if p == nil {
		return
	}
	if p.LoadBalancer == nil && p.ConnectionPool == nil && p.OutlierDetection == nil && p.Tls == nil && len(p.PortLevelSettings) == 0 &&
		p.Tunnel == nil &&
		p.ProxyProtocol == nil && p.RetryBudget == nil {
		r.refusef(problem.Required, at, "must have at least one field")
	}
	checkSettings(r, at, p.LoadBalancer, p.ConnectionPool, p.OutlierDetection, p.Tls)
	ports := map[uint32]bool{}
	for i, port := range p.PortLevelSettings {
		path := fmt.Sprintf("%s.portLevelSettings[%d]", at, i)
		number := port.GetPort().GetNumber()
		r.port(path+".port.number", number)
		if ports[number] {
			r.warnf(problem.Duplicate, path+".port.number", "port %d is used twice: the first one counts", number)
		}
		ports[number] = true
		if port.LoadBalancer == nil && port.ConnectionPool == nil && port.OutlierDetection == nil && port.Tls == nil {
			r.refusef(problem.Required, path, "must have at least one field beside port")
		}
		checkSettings(r, path, port.LoadBalancer, port.ConnectionPool, port.OutlierDetection, port.Tls)
	}
	if p.Tunnel != nil && p.ProxyProtocol != nil {
		r.refusef(problem.Invalid, at+".proxyProtocol", "cannot be combined with tunnel")
	}
	if t := p.Tunnel; t != nil {
		if t.Protocol != "" && t.Protocol != "CONNECT" && t.Protocol != "POST" {
			r.refusef(problem.Invalid, at+".tunnel.protocol", "%q is neither CONNECT nor POST", t.Protocol)
		}
		if wrong := plainHost(t.TargetHost); wrong != "" {
			r.errorf(at+".tunnel.targetHost", "%q %s", t.TargetHost, wrong)
		}
		r.port(at+".tunnel.targetPort", t.TargetPort)
	}
}

// checkSettings validates the fields that a traffic policy and a port-level setting have in common; nil fields are
// valid.
func checkSettings(r *report, at string, lb *networkingv1.LoadBalancerSettings, pool *networkingv1.ConnectionPoolSettings,
	outlier *networkingv1.OutlierDetection, tls *networkingv1.ClientTLSSettings) {
	checkLoadBalancer(r, at+".loadBalancer", lb)
	checkPool(r, at+".connectionPool", pool)
	checkOutlier(r, at+".outlierDetection", outlier)
	checkTLS(r, at+".tls", tls)
}

// checkLoadBalancer validates load-balancer settings; nil is valid.
func checkLoadBalancer(r *report, at string, lb *networkingv1.LoadBalancerSettings) {
	if lb == nil {
		return
	}
	checkHash(r, at+".consistentHash", lb.GetConsistentHash())
	r.duration1ms(at+".warmupDurationSecs", lb.WarmupDurationSecs, true) //nolint:staticcheck // deprecated, still in use
	if w := lb.Warmup; w != nil {
		r.duration1ms(at+".warmup.duration", w.Duration, false)
		if w.Duration == nil {
			r.requiredf(at+".warmup.duration", "must not be empty")
		}
		if p := w.MinimumPercent; p != nil && !(p.Value >= 0 && p.Value <= 100) {
			r.errorf(at+".warmup.minimumPercent", "%v is not in 0-100", p.Value)
		}
		if a := w.Aggression; a != nil && !(a.Value > 0) { // Envoy's bound, which Istio has from 1.31 on
			r.errorf(at+".warmup.aggression", "must be greater than 0")
		}
	}
	checkLocality(r, at+".localityLbSetting", lb.LocalityLbSetting)
	checkZones(r, at+".zoneAwareLbSetting", lb.ZoneAwareLbSetting)
	if lb.LocalityLbSetting != nil && lb.ZoneAwareLbSetting != nil {
		r.errorf(at+".zoneAwareLbSetting", "cannot be combined with localityLbSetting")
	}
}

// checkHash validates consistent-hash settings; nil is valid.
func checkHash(r *report, at string, h *networkingv1.LoadBalancerSettings_ConsistentHashLB) {
	if h == nil {
		return
	}
	if h.HashKey == nil {
		r.warnf(problem.NoEffect, at, "sets none of httpHeaderName, httpCookie, useSourceIp and httpQueryParameterName: "+
			"requests are spread at random")
	}
	if c := h.GetHttpCookie(); c != nil {
		checkCookie(r, at+".httpCookie", c)
	}
	if k, ok := h.HashKey.(*networkingv1.LoadBalancerSettings_ConsistentHashLB_HttpHeaderName); ok {
		checkHeaderName(r, at+".httpHeaderName", k.HttpHeaderName)
	}
	switch m := h.GetMaglev(); {
	case m == nil:
	case m.TableSize == 0 || m.TableSize == largestTable: // accepted by Envoy
		r.refusef(problem.Invalid, at+".maglev.tableSize", "%d is no prime number below %d", m.TableSize, largestTable)
	case m.TableSize < 2 || m.TableSize > largestTable || !prime(m.TableSize):
		r.errorf(at+".maglev.tableSize", "%d is no prime number below %d", m.TableSize, largestTable)
	}
	if h.GetRingHash().GetMinimumRingSize() > 8<<20 || h.MinimumRingSize > 8<<20 { //nolint:staticcheck // deprecated, still in use
		r.errorf(at+".ringHash.minimumRingSize", "must be at most 8388608")
	}
	if h.MinimumRingSize != 0 && h.HashAlgorithm != nil { //nolint:staticcheck // as above
		r.refusef(problem.Duplicate, at+".minimumRingSize", "cannot be combined with ringHash or maglev")
	}
}

// largestTable is the largest Maglev table that Envoy accepts (MaglevLbConfig.table_size).
const largestTable = 5000011

// checkZones validates a zone-aware setting. failoverPriority must not name labels of zones and regions, because the
// setting considers zones and regions anyway
// (https://istio.io/latest/docs/reference/config/networking/destination-rule/#ZoneAwareLoadBalancerSetting).
func checkZones(r *report, at string, s *networkingv1.ZoneAwareLoadBalancerSetting) {
	if !withinBounds(r, at, s.GetFailoverPriority(), len(s.GetFailover()), nil) {
		return
	}
	checkFailover(r, at, s.GetFailover())
	for i, label := range s.GetFailoverPriority() {
		key, _, _ := strings.Cut(label, "=")
		if _, locality := model.LocalityLabel("", key); locality {
			r.errorf(fmt.Sprintf("%s.failoverPriority[%d]", at, i), "%s is decided by zones and regions themselves", key)
		}
	}
}

// checkLocality validates a locality setting; nil is valid.
func checkLocality(r *report, at string, s *networkingv1.LocalityLoadBalancerSetting) {
	if s == nil || !withinBounds(r, at, s.FailoverPriority, len(s.Failover), s.Distribute) {
		return
	}
	if len(s.Distribute) > 0 && len(s.Failover) > 0 {
		r.errorf(at, "distribute cannot be combined with failover")
	} else if len(s.Distribute) > 0 && len(s.FailoverPriority) > 0 {
		r.warnf(problem.NoEffect, at+".failoverPriority", "has no effect beside distribute")
	}
	if topology := func(label string) bool { _, is := model.LocalityLabel("", label); return is }; len(s.Failover) > 0 &&
		slices.ContainsFunc(s.FailoverPriority, topology) {
		r.refusef(problem.Invalid, at+".failoverPriority", "labels of regions and zones do not go with failover")
	}
	from := make([]string, len(s.Distribute))
	for i, d := range s.Distribute {
		from[i] = d.From
		if wrong := overlapping(sortedKeys(d.To)); wrong != "" {
			r.refusef(problem.Invalid, fmt.Sprintf("%s.distribute[%d].to", at, i), "%s", wrong)
		}
	}
	if wrong := overlapping(from); wrong != "" {
		r.refusef(problem.Invalid, at+".distribute", "%s", wrong)
	}
	for i, d := range s.Distribute {
		path := fmt.Sprintf("%s.distribute[%d]", at, i)
		if d.From == "" {
			r.requiredf(path+".from", "must not be empty")
		}
		total := uint64(0)
		for _, to := range sortedKeys(d.To) {
			if d.To[to] == 0 || d.To[to] > 100 {
				r.errorf(fmt.Sprintf("%s.to[%s]", path, to), "%d is not in 1-100", d.To[to])
			}
			total += uint64(d.To[to])
		}
		if total != 100 {
			r.errorf(path+".to", "the weights add up to %d, not 100", total)
		}
	}
	checkFailover(r, at, s.Failover)
}

// overlapping returns the reason why Istio's webhook refuses a list of localities (validateLocalities). It returns ""
// for a valid list. A part must not be empty, "*" must be at the end, and no locality may cover another one.
func overlapping(localities []string) string {
	stated, first := map[string]string{}, map[string]string{} // first: first locality within each region, zone or subzone
	for _, l := range localities {
		if n := strings.Count(l, "*"); n > 1 || n == 1 && !strings.HasSuffix(l, "*") {
			return fmt.Sprintf(`%q: "*" is possible only at the end`, l)
		}
		if l != "" && slices.Contains(strings.SplitN(l, "/", 3), "") {
			return fmt.Sprintf("%q has an empty part", l)
		}
		around := localitiesAround(l)
		other, is := first[around[len(around)-1]]
		for _, wide := range around {
			if o, has := stated[wide]; has {
				other, is = o, true
			}
		}
		if is {
			return fmt.Sprintf("%q and %q overlap", other, l)
		}
		for _, wide := range around {
			if _, has := first[wide]; !has {
				first[wide] = l
			}
		}
		stated[around[len(around)-1]] = l
	}
	return ""
}

// localitiesAround returns the localities that contain a locality, from "" (all) to the locality itself without "*".
func localitiesAround(locality string) []string {
	locality = strings.TrimSuffix(strings.TrimSuffix(locality, "*"), "/")
	if locality == "" {
		return []string{""}
	}
	around, end := []string{""}, 0
	for _, part := range strings.SplitN(locality, "/", 3) {
		end += len(part)
		around = append(around, locality[:end])
		end++
	}
	return around
}

// checkFailover validates the regions of a locality setting or a zone-aware setting.
func checkFailover[F interface {
	GetFrom() string
	GetTo() string
}](r *report, at string, failover []F) {
	for i, f := range failover {
		if f.GetFrom() == f.GetTo() {
			r.errorf(fmt.Sprintf("%s.failover[%d]", at, i), "from and to are both %q", f.GetFrom())
		} else if strings.ContainsAny(f.GetFrom()+f.GetTo(), "/*") {
			r.refusef(problem.Invalid, fmt.Sprintf("%s.failover[%d]", at, i),
				"from %q to %q: want names of regions, which have neither zones nor wildcards", f.GetFrom(), f.GetTo())
		}
	}
}

// prime reports whether n is a prime number.
func prime(n uint64) bool {
	for d := uint64(2); d*d <= n; d++ {
		if n%d == 0 {
			return false
		}
	}
	return n > 1
}

// checkPool validates connection-pool settings; nil is valid.
func checkPool(r *report, at string, p *networkingv1.ConnectionPoolSettings) {
	if p != nil && p.Tcp == nil && p.Http == nil {
		r.refusef(problem.Required, at, "must have at least one field")
	}
	if t := p.GetTcp(); t != nil {
		r.notNegative(at+".tcp.maxConnections", t.MaxConnections)
		r.duration1ms(at+".tcp.connectTimeout", t.ConnectTimeout, false)
		r.duration1ms(at+".tcp.maxConnectionDuration", t.MaxConnectionDuration, true)
		r.duration1ms(at+".tcp.idleTimeout", t.IdleTimeout, true)
		r.duration1ms(at+".tcp.tcpKeepalive.time", t.TcpKeepalive.GetTime(), true)
		r.duration1ms(at+".tcp.tcpKeepalive.interval", t.TcpKeepalive.GetInterval(), true)
	}
	if h := p.GetHttp(); h != nil {
		r.notNegative(at+".http.http1MaxPendingRequests", h.Http1MaxPendingRequests)
		r.notNegative(at+".http.http2MaxRequests", h.Http2MaxRequests)
		r.notNegative(at+".http.maxRequestsPerConnection", h.MaxRequestsPerConnection)
		r.notNegative(at+".http.maxRetries", h.MaxRetries)
		r.notNegative(at+".http.maxConcurrentStreams", h.MaxConcurrentStreams)
		r.duration1ms(at+".http.idleTimeout", h.IdleTimeout, true)
		if h.H2UpgradePolicy == networkingv1.ConnectionPoolSettings_HTTPSettings_UPGRADE && h.UseClientProtocol {
			r.errorf(at+".http.useClientProtocol", "cannot be combined with h2UpgradePolicy UPGRADE")
		}
	}
}

// notNegative reports a negative number.
func (r *report) notNegative(at string, v int32) {
	if v < 0 {
		r.errorf(at, "must not be negative")
	}
}

// checkOutlier validates outlier detection; nil is valid.
func checkOutlier(r *report, at string, o *networkingv1.OutlierDetection) {
	if o == nil {
		return
	}
	r.duration1ms(at+".interval", o.Interval, true)
	r.duration1ms(at+".baseEjectionTime", o.BaseEjectionTime, true)
	for field, v := range map[string]int32{".maxEjectionPercent": o.MaxEjectionPercent, ".minHealthPercent": o.MinHealthPercent} {
		if v < 0 || v > 100 {
			r.errorf(at+field, "%d is not in 0-100", v)
		}
	}
	if n := o.FailurePercentageThreshold.GetValue(); n > 100 {
		r.errorf(at+".failurePercentageThreshold", "%d is not in 0-100", n)
	}
	for i, code := range o.OutlierDetectionHttpErrorCodes {
		if code < 100 || code > 599 {
			r.errorf(fmt.Sprintf("%s.outlierDetectionHttpErrorCodes[%d]", at, i), "%d is not in 100-599", code)
		}
	}
	r.notNegative(at+".consecutiveErrors", o.ConsecutiveErrors) //nolint:staticcheck // deprecated, still in use
	if o.ConsecutiveLocalOriginFailures.GetValue() > 0 && !o.SplitExternalLocalOriginErrors {
		r.errorf(at+".consecutiveLocalOriginFailures", "needs splitExternalLocalOriginErrors")
	}
}

// checkTLS validates the TLS settings of clients by the rules of Istio's webhook (ValidateTLS in
// pkg/config/validation/agent).
func checkTLS(r *report, at string, t *networkingv1.ClientTLSSettings) {
	mutual, simple := t.GetMode() == networkingv1.ClientTLSSettings_MUTUAL, t.GetMode() == networkingv1.ClientTLSSettings_SIMPLE
	for _, of := range []struct {
		field string
		set   bool
		skip  bool // the field has no effect with insecureSkipVerify
		named bool // the field has no effect with credentialName
	}{
		{"caCertificates", t.GetCaCertificates() != "", true, true}, {"subjectAltNames", len(t.GetSubjectAltNames()) > 0, true, false},
		{"credentialName", t.GetCredentialName() != "", simple, false}, {"clientCertificate", t.GetClientCertificate() != "", false, true},
		{"privateKey", t.GetPrivateKey() != "", false, true}, {"caCrl", t.GetCaCrl() != "", false, true},
	} {
		switch {
		case !of.set || !mutual && !simple:
		case of.skip && t.GetInsecureSkipVerify().GetValue():
			r.refusef(problem.NoEffect, at+"."+of.field, "has no effect with insecureSkipVerify, which disables verification")
		case of.named && t.GetCredentialName() != "":
			r.refusef(problem.NoEffect, at+"."+of.field, "has no effect with credentialName")
		}
	}
	r.oneLine(at+".sni", t.GetSni())
	if mutual || simple {
		checkCredential(r, at+".caCertCredentialName", t.GetCaCertCredentialName(), false)
	}
	if !mutual || t.CredentialName != "" {
		return
	}
	if t.ClientCertificate == "" {
		r.requiredf(at+".clientCertificate", "mode MUTUAL needs it, or credentialName")
	}
	if t.PrivateKey == "" {
		r.requiredf(at+".privateKey", "mode MUTUAL needs it, or credentialName")
	}
}
