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

// Names of the RBAC filters.
const (
	httpRBAC    = "envoy.filters.http.rbac"
	networkRBAC = "envoy.filters.network.rbac"
)

// What the names of statistics of dry runs begin with (Istio's).
var dryRunPrefix = map[configrbacv3.RBAC_Action]string{configrbacv3.RBAC_ALLOW: "istio_dry_run_allow_", configrbacv3.RBAC_DENY: "istio_dry_run_deny_"}

// demands is what policies demand of what comes in: the filters, drawn once for all chains of a listener.
type demands struct {
	http                  []*hcmv3.HttpFilter
	tcp                   []*listenerv3.Filter
	providers, tokens     int  // filters of http that ask providers, and those up to the tokens: extensions stand between
	providersTCP          int  // of tcp, the same
	closedHTTP, closedTCP bool // the proxy has not all the filters that the policies need
}

// demanded draws policies, in the order in which Istio has them asked: providers of external authorization, tokens, rules.
func (c Common) demanded(policies, authentications intern.List[*model.Policy], authorizers intern.List[extauthz.Authorizer]) *demands {
	s := &demands{}
	http := authz.Draw(policies.All(), c.mesh(), true)
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
	if tokens := jwt.Filter(authentications.All()); tokens != nil {
		s.closedHTTP = s.closedHTTP || !c.Caps.Has(xds.CapJWT)
		s.addHTTP(jwt.FilterName, tokens)
	}
	s.tokens = len(s.http)
	for _, f := range []*authz.Filter{http.Audit, http.Deny, http.Allow} {
		switch {
		case f == nil:
		case c.Caps.Has(xds.CapRBACHTTP):
			s.addHTTP(httpRBAC, &httprbacv3.RBAC{Rules: f.Rules, ShadowRules: f.Shadow, ShadowRulesStatPrefix: dryRunPrefix[f.Shadow.GetAction()]})
		case f != http.Audit && f.Rules != nil:
			s.closedHTTP = true
		}
	}
	c.demandedTCP(s, policies, authorizers)
	return s
}

// demanded is the filters of policies, in three parts between which extensions stand: providers of external authorization, tokens, rules. A closed
// connection manager has none.
func (h httpTraffic) demanded() (providers, tokens, rules []*hcmv3.HttpFilter) {
	if s := h.demands; s != nil && !h.closed {
		return s.http[:s.providers], s.http[s.providers:s.tokens], s.http[s.tokens:]
	}
	return nil, nil, nil
}

// demandedTCP draws them for connections that are not HTTP: there are no tokens, and a provider that speaks HTTP is not asked, as with Istio's control plane.
func (c Common) demandedTCP(s *demands, policies intern.List[*model.Policy], authorizers intern.List[extauthz.Authorizer]) {
	tcp := authz.Draw(policies.All(), c.mesh(), false)
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
		s.addTCP(networkRBAC, &rbacv3.RBAC{ShadowRules: custom.Rules, ShadowRulesStatPrefix: extauthz.ShadowPrefix, StatPrefix: tcpStatistics})
		s.addTCP(extauthz.NetworkFilter, config)
	}
	s.providersTCP = len(s.tcp)
	for _, f := range []*authz.Filter{tcp.Audit, tcp.Deny, tcp.Allow} {
		switch {
		case f == nil:
		case c.Caps.Has(xds.CapRBACNetwork):
			s.addTCP(networkRBAC, &rbacv3.RBAC{Rules: f.Rules, ShadowRules: f.Shadow, ShadowRulesStatPrefix: dryRunPrefix[f.Shadow.GetAction()], StatPrefix: tcpStatistics})
		case f != tcp.Audit && f.Rules != nil:
			s.closedTCP = true
		}
	}
}

// tcpStatistics is what the names of statistics of network RBAC filters begin with (Istio's).
const tcpStatistics = "tcp."

func (s *demands) addHTTP(name string, config proto.Message) {
	s.http = append(s.http, &hcmv3.HttpFilter{Name: name, ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: xds.Any(config)}})
}

func (s *demands) addTCP(name string, config proto.Message) {
	s.tcp = append(s.tcp, filter(name, config))
}

// authorizerOf is what was found of a provider; of one that nobody looked for it is as if it were not there.
func authorizerOf(all intern.List[extauthz.Authorizer], provider string) extauthz.Authorizer {
	for _, a := range all.All() {
		if a.Provider == provider {
			return a
		}
	}
	return extauthz.Authorizer{Provider: provider, Wrong: "it is not known"}
}
