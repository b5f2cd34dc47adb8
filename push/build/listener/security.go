package listener

import (
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	configrbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	httprbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/rbac/v3"
	"google.golang.org/protobuf/proto"

	"navarch.io/navarch/push/build/authz"
	"navarch.io/navarch/push/build/extauthz"
	"navarch.io/navarch/push/build/jwt"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
)

// These are Envoy's names of the RBAC filters.
const (
	httpRBAC    = "envoy.filters.http.rbac"
	networkRBAC = "envoy.filters.network.rbac"
)

// dryRunPrefix maps an action to the prefix of the statistics of its dry runs, as in Istio.
var dryRunPrefix = map[configrbacv3.RBAC_Action]string{
	configrbacv3.RBAC_ALLOW: "istio_dry_run_allow_",
	configrbacv3.RBAC_DENY:  "istio_dry_run_deny_",
}

// policyFilters holds the filters that enforce security policies on traffic to a workload or through a gateway. All
// chains of an inbound listener share one policyFilters.
type policyFilters struct {
	http                  []*hcmv3.HttpFilter
	tcp                   []*listenerv3.Filter
	providers, tokens     int  // http[:providers] request external authorization, http[providers:tokens] verify tokens
	providersTCP          int  // tcp[:providersTCP] request external authorization
	closedHTTP, closedTCP bool // traffic is refused, because the proxy lacks a filter that the policies need
}

// buildPolicyFilters builds the filters of policies. Their order is Istio's: external authorization, tokens, rules.
// The parameter routed is true for a gateway, which routes requests by host and by claims of tokens.
func (c Common) buildPolicyFilters(
	policies, authentications intern.List[*model.Policy], authorizers intern.List[extauthz.Authorizer],
	routed bool,
) *policyFilters {
	s := &policyFilters{}
	requests := authz.Requests
	if routed {
		requests = authz.GatewayRequests
	}
	http := authz.Build(policies.All(), c.mesh(), requests)
	for _, custom := range http.Custom {
		s.closedHTTP = s.closedHTTP || !c.Caps.Has(xds.CapRBACHTTP)
		config := extauthz.HTTP(c.mesh(), authorizerOf(authorizers, custom.Provider))
		if config == nil || !c.Caps.Has(xds.CapExtAuthzHTTP) {
			s.addHTTP(httpRBAC, &httprbacv3.RBAC{Rules: custom.Refused()})
			continue
		}
		s.addHTTP(httpRBAC, &httprbacv3.RBAC{ShadowRules: custom.Rules, ShadowRulesStatPrefix: extauthz.ShadowPrefix})
		s.addHTTP(extauthz.HTTPFilter, config)
	}
	s.providers = len(s.http)
	if tokens := jwt.Filter(authentications.All(), routed); tokens != nil {
		s.closedHTTP = s.closedHTTP || !c.Caps.Has(xds.CapJWT)
		s.addHTTP(jwt.FilterName, tokens)
	}
	s.tokens = len(s.http)
	for _, f := range []*authz.Filter{http.Audit, http.Deny, http.Allow} {
		switch {
		case f == nil:
		case c.Caps.Has(xds.CapRBACHTTP):
			s.addHTTP(httpRBAC, &httprbacv3.RBAC{
				Rules: f.Rules, ShadowRules: f.Shadow, ShadowRulesStatPrefix: dryRunPrefix[f.Shadow.GetAction()]})
		case f != http.Audit && f.Rules != nil:
			s.closedHTTP = true
		}
	}
	c.addTCPPolicyFilters(s, policies, authorizers)
	return s
}

// splitPolicyFilters returns the HTTP filters of policies in three parts: external authorization, tokens, rules.
// Extensions are inserted between the parts. All parts are empty if the connection manager is closed, or has no
// policies.
func (h httpTraffic) splitPolicyFilters() (providers, tokens, rules []*hcmv3.HttpFilter) {
	if s := h.policyFilters; s != nil && !h.closed {
		return s.http[:s.providers], s.http[s.providers:s.tokens], s.http[s.tokens:]
	}
	return nil, nil, nil
}

// addTCPPolicyFilters adds the filters for connections whose protocol is not HTTP. As in Istio, these filters verify
// no tokens, and a CUSTOM policy has no effect on such connections if its provider is valid and uses HTTP.
func (c Common) addTCPPolicyFilters(
	s *policyFilters, policies intern.List[*model.Policy], authorizers intern.List[extauthz.Authorizer],
) {
	tcp := authz.Build(policies.All(), c.mesh(), authz.Connections)
	for _, custom := range tcp.Custom {
		by := authorizerOf(authorizers, custom.Provider)
		if by.Wrong == "" && extauthz.SpeaksHTTP(c.mesh(), custom.Provider) {
			continue
		}
		s.closedTCP = s.closedTCP || !c.Caps.Has(xds.CapRBACNetwork)
		config := extauthz.Network(c.mesh(), by)
		if config == nil || !c.Caps.Has(xds.CapExtAuthzNetwork) {
			s.addTCP(networkRBAC, &rbacv3.RBAC{Rules: custom.Refused(), StatPrefix: tcpStatistics})
			continue
		}
		s.addTCP(networkRBAC, &rbacv3.RBAC{
			ShadowRules: custom.Rules, ShadowRulesStatPrefix: extauthz.ShadowPrefix, StatPrefix: tcpStatistics})
		s.addTCP(extauthz.NetworkFilter, config)
	}
	s.providersTCP = len(s.tcp)
	for _, f := range []*authz.Filter{tcp.Audit, tcp.Deny, tcp.Allow} {
		switch {
		case f == nil:
		case c.Caps.Has(xds.CapRBACNetwork):
			s.addTCP(networkRBAC, &rbacv3.RBAC{
				Rules: f.Rules, ShadowRules: f.Shadow, ShadowRulesStatPrefix: dryRunPrefix[f.Shadow.GetAction()],
				StatPrefix: tcpStatistics})
		case f != tcp.Audit && f.Rules != nil:
			s.closedTCP = true
		}
	}
}

// tcpStatistics is the prefix of the statistics of network RBAC filters, as in Istio.
const tcpStatistics = "tcp."

// addHTTP appends an HTTP filter.
func (s *policyFilters) addHTTP(name string, config proto.Message) {
	s.http = append(s.http, &hcmv3.HttpFilter{Name: name, ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: xds.Any(config)}})
}

// addTCP appends a network filter.
func (s *policyFilters) addTCP(name string, config proto.Message) {
	s.tcp = append(s.tcp, filter(name, config))
}

// authorizerOf returns the Authorizer of a provider. If the list has no Authorizer of the provider, Wrong is set in
// the result, so that traffic is refused.
func authorizerOf(all intern.List[extauthz.Authorizer], provider string) extauthz.Authorizer {
	for _, a := range all.All() {
		if a.Provider == provider {
			return a
		}
	}
	return extauthz.Authorizer{Provider: provider, Wrong: "the provider is not known"}
}
