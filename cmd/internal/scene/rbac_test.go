package scene

import (
	"net/netip"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	httprbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	tcprbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/rbac/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"navarch.io/navarch/push/xds"
)

// handshake says whether TLS of the mesh ends at the chain, and whether the caller's certificate is taken there. A caller
// without one is not taken where it is asked for.
func (r *request) handshake(chain *listenerv3.FilterChain) bool {
	socket := chain.GetTransportSocket()
	if socket == nil {
		return true
	}
	context := &tlsv3.DownstreamTlsContext{}
	if err := socket.GetTypedConfig().UnmarshalTo(context); err != nil {
		r.say("%v", err)
		return false
	}
	if own := context.GetCommonTlsContext().GetTlsCertificateSdsSecretConfigs(); len(own) == 0 || own[0].GetName() != xds.SDSDefault {
		r.serverTLS(context)
		return true
	}
	r.say("asks for a certificate")
	validation := context.GetCommonTlsContext().GetCombinedValidationContext().GetDefaultValidationContext()
	for _, m := range validation.GetMatchTypedSubjectAltNames() {
		if r.as != "" && m.GetSanType() == tlsv3.SubjectAltNameMatcher_URI && stringMatches(m.GetMatcher(), r.as) {
			r.peer = r.as
			return true
		}
	}
	r.say("refuses the certificate")
	return false
}

// serverTLS says with which certificate TLS ends that is not the mesh's, and what clients are asked for.
func (r *request) serverTLS(context *tlsv3.DownstreamTlsContext) {
	for _, own := range context.GetCommonTlsContext().GetTlsCertificateSdsSecretConfigs() {
		r.say("ends TLS with %s", own.GetName())
	}
	if of := context.GetCommonTlsContext().GetCombinedValidationContext().GetValidationContextSdsSecretConfig().GetName(); of != "" {
		r.say("asks for a certificate of %s, required: %v", of, context.GetRequireClientCertificate().GetValue())
	}
}

// denied says whether an RBAC filter keeps the connection or the request out.
func (r *request) denied(any *anypb.Any) bool {
	http, tcp := &httprbacv3.RBAC{}, &tcprbacv3.RBAC{}
	var rules *rbacv3.RBAC
	switch {
	case any.MessageIs(http) && any.UnmarshalTo(http) == nil:
		rules = http.GetRules()
	case any.MessageIs(tcp) && any.UnmarshalTo(tcp) == nil:
		rules = tcp.GetRules()
	}
	if rules == nil || rules.GetAction() == rbacv3.RBAC_LOG {
		return false
	}
	hit := false
	for _, p := range rules.GetPolicies() {
		hit = hit || r.some(p)
	}
	if deny := rules.GetAction() == rbacv3.RBAC_DENY; deny && hit || !deny && !hit {
		r.say("denied")
		return true
	}
	return false
}

// some says whether one of the permissions and one of the principals of a policy match.
func (r *request) some(p *rbacv3.Policy) bool {
	can, is := false, false
	for _, one := range p.GetPermissions() {
		can = can || r.may(one)
	}
	for _, one := range p.GetPrincipals() {
		is = is || r.isPrincipal(one)
	}
	return can && is
}

func (r *request) may(p *rbacv3.Permission) bool {
	switch p := p.GetRule().(type) {
	case *rbacv3.Permission_Any:
		return p.Any
	case *rbacv3.Permission_AndRules:
		for _, one := range p.AndRules.GetRules() {
			if !r.may(one) {
				return false
			}
		}
		return true
	case *rbacv3.Permission_OrRules:
		for _, one := range p.OrRules.GetRules() {
			if r.may(one) {
				return true
			}
		}
		return false
	case *rbacv3.Permission_NotRule:
		return !r.may(p.NotRule)
	case *rbacv3.Permission_DestinationPort:
		return p.DestinationPort == r.port
	case *rbacv3.Permission_DestinationIp:
		return within(p.DestinationIp, r.ip)
	case *rbacv3.Permission_Header:
		return r.headersMatch(&routev3.RouteMatch{Headers: []*routev3.HeaderMatcher{p.Header}})
	case *rbacv3.Permission_Metadata:
		return false // nobody has found anything
	case *rbacv3.Permission_UriTemplate:
		return false // none of the requests here
	case *rbacv3.Permission_UrlPath:
		path, _, _ := strings.Cut(r.headers[":path"], "?")
		return stringMatches(p.UrlPath.GetPath(), path)
	}
	r.say("this scene does not know permission %T", p.GetRule())
	return false
}

func (r *request) isPrincipal(p *rbacv3.Principal) bool {
	switch p := p.GetIdentifier().(type) {
	case *rbacv3.Principal_Any:
		return p.Any
	case *rbacv3.Principal_AndIds:
		for _, one := range p.AndIds.GetIds() {
			if !r.isPrincipal(one) {
				return false
			}
		}
		return true
	case *rbacv3.Principal_OrIds:
		for _, one := range p.OrIds.GetIds() {
			if r.isPrincipal(one) {
				return true
			}
		}
		return false
	case *rbacv3.Principal_NotId:
		return !r.isPrincipal(p.NotId)
	case *rbacv3.Principal_Authenticated_:
		return r.peer != "" && stringMatches(p.Authenticated.GetPrincipalName(), r.peer)
	case *rbacv3.Principal_DirectRemoteIp:
		return within(p.DirectRemoteIp, r.from)
	case *rbacv3.Principal_RemoteIp:
		return within(p.RemoteIp, r.from)
	case *rbacv3.Principal_Metadata:
		return false // no request here has shown a token
	case *rbacv3.Principal_Header:
		return r.headersMatch(&routev3.RouteMatch{Headers: []*routev3.HeaderMatcher{p.Header}})
	}
	r.say("this scene does not know principal %T", p.GetIdentifier())
	return false
}

func within(c *corev3.CidrRange, ip string) bool {
	a, bad := netip.ParseAddr(c.GetAddressPrefix())
	b, worse := netip.ParseAddr(ip)
	return bad == nil && worse == nil && netip.PrefixFrom(a, int(c.GetPrefixLen().GetValue())).Contains(b)
}
