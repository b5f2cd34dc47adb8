package model

import (
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	securityv1 "istio.io/api/security/v1beta1"
)

// Policy is the record of a PeerAuthentication, an AuthorizationPolicy or a RequestAuthentication. Its Istio message is
// decoded once, when the record is made (New, Decode). A Policy is immutable.
type Policy struct {
	Of[*PolicySpec]
	peer           *securityv1.PeerAuthentication    // of a PeerAuthentication; nil if it does not decode
	authorization  *securityv1.AuthorizationPolicy   // of an AuthorizationPolicy; nil if it does not decode
	authentication *securityv1.RequestAuthentication // of a RequestAuthentication; nil if it does not decode
}

func newPolicy(head Head, spec *PolicySpec) *Policy {
	p := &Policy{Of: Of[*PolicySpec]{head, spec}}
	if m := (&securityv1.PeerAuthentication{}); head.Key.Kind == KindPeerAuthentication && proto.Unmarshal(spec.GetIstio(), m) == nil {
		p.peer = m
	}
	if m := (&securityv1.AuthorizationPolicy{}); head.Key.Kind == KindAuthorizationPolicy && proto.Unmarshal(spec.GetIstio(), m) == nil {
		p.authorization = m
	}
	if m := (&securityv1.RequestAuthentication{}); head.Key.Kind == KindRequestAuthentication && proto.Unmarshal(spec.GetIstio(), m) == nil {
		p.authentication = m
	}
	return p
}

// MTLS is a mode of PeerAuthentication. It states which connections a workload accepts
// (https://istio.io/latest/docs/reference/config/security/peer_authentication/#PeerAuthentication-MutualTLS-Mode).
type MTLS uint8

// The modes.
const (
	MTLSUnset      MTLS = iota // the mode is inherited from a wider policy
	MTLSDisable                // plain text only
	MTLSPermissive             // plain text and mTLS
	MTLSStrict                 // mTLS only
)

// PeerModes returns the modes that a PeerAuthentication states: the mode for all ports, and the modes for single ports
// of the workload. The map ports lacks unset modes, is nil if no port has a mode, and belongs to the caller. If p is
// nil, is of another kind, or has a message that does not decode, the results are MTLSUnset and nil.
func PeerModes(p *Policy) (all MTLS, ports map[uint32]MTLS) {
	if p == nil || p.peer == nil {
		return MTLSUnset, nil
	}
	for number, mode := range p.peer.GetPortLevelMtls() {
		if stated := mtlsOf(mode); stated != MTLSUnset {
			if ports == nil {
				ports = map[uint32]MTLS{}
			}
			ports[number] = stated
		}
	}
	return mtlsOf(p.peer.GetMtls()), ports
}

func mtlsOf(m *securityv1.PeerAuthentication_MutualTLS) MTLS {
	switch m.GetMode() {
	case securityv1.PeerAuthentication_MutualTLS_DISABLE:
		return MTLSDisable
	case securityv1.PeerAuthentication_MutualTLS_PERMISSIVE:
		return MTLSPermissive
	case securityv1.PeerAuthentication_MutualTLS_STRICT:
		return MTLSStrict
	}
	return MTLSUnset
}

// Authorization returns the Istio message in the record of an AuthorizationPolicy. The result is nil if p is nil, is of
// another kind, or has a message that does not decode. Callers must not change the result.
func Authorization(p *Policy) *securityv1.AuthorizationPolicy {
	if p == nil {
		return nil
	}
	return p.authorization
}

// Authentication returns the Istio message in the record of a RequestAuthentication. The result is nil if p is nil, is
// of another kind, or has a message that does not decode. Callers must not change the result.
func Authentication(p *Policy) *securityv1.RequestAuthentication {
	if p == nil {
		return nil
	}
	return p.authentication
}

// ClaimPath parses the key request.auth.claims[a][b] of a condition. The key means the claim b inside of the claim a,
// and the path is a, b. If the text between the outer brackets has another form, the path is this text alone, which may
// contain brackets. For other keys, and for an empty text, ClaimPath returns nil and false.
func ClaimPath(key string) (path []string, ok bool) {
	rest, is := strings.CutPrefix(key, "request.auth.claims[")
	rest, closed := strings.CutSuffix(rest, "]")
	if !is || !closed || rest == "" {
		return nil, false
	}
	path = strings.Split(rest, "][")
	if slices.ContainsFunc(path, func(name string) bool { return name == "" || strings.ContainsAny(name, "[]") }) {
		return []string{rest}, true
	}
	return path, true
}

// ConditionHeader parses the keys request.headers[name] and request.experimental.inline.headers[name] of a condition.
// The name keeps its case, and may be that of a pseudo header (:authority). The result inline is true for the second
// key. A value of such a condition is compared with each of the values that commas separate in the header. For other
// keys and malformed names it returns "", false and false.
func ConditionHeader(key string) (name string, inline, ok bool) {
	rest, ok := strings.CutPrefix(key, "request.headers[")
	if !ok {
		rest, inline = strings.CutPrefix(key, "request.experimental.inline.headers[")
	}
	name, closed := strings.CutSuffix(rest, "]")
	plain := strings.TrimPrefix(name, ":")
	if !ok && !inline || !closed || plain == "" || strings.ContainsAny(plain, "[]: \t\r\n\x00") {
		return "", false, false
	}
	return name, inline, true
}

// IsPathTemplate reports whether a path of an AuthorizationPolicy is a template. In a template, {*} matches one
// segment, and {**} any number of segments. A path without {*} and {**} is literal, as in Istio (ContainsPathTemplate
// in its pkg/config/security).
func IsPathTemplate(path string) bool {
	return strings.Contains(path, "{*}") || strings.Contains(path, "{**}")
}

// claimHeader is the prefix of header names in matches of VirtualServices that stand for claims of the request's token.
const claimHeader = "@request.auth.claims"

// RoutedClaim parses the name of a header in a VirtualService's match that stands for a claim. The names
// @request.auth.claims.a.b and @request.auth.claims[a][b] mean the claim b inside of the claim a, and their path is a,
// b (https://istio.io/latest/docs/tasks/security/authentication/jwt-route/). The result named reports whether the
// header has the prefix of such names, in upper or lower case. If named is true and path is nil, the name is malformed.
func RoutedClaim(header string) (path []string, named bool) {
	if len(header) < len(claimHeader) || !strings.EqualFold(header[:len(claimHeader)], claimHeader) {
		return nil, false
	}
	rest := header[len(claimHeader):]
	if dotted, is := strings.CutPrefix(rest, "."); is {
		path = strings.Split(dotted, ".")
	} else if inner, is := strings.CutPrefix(rest, "["); is && strings.HasSuffix(inner, "]") {
		path = strings.Split(strings.TrimSuffix(inner, "]"), "][")
	}
	if slices.Contains(path, "") {
		return nil, true
	}
	return path, true
}

// IsPolicy reports whether records of a kind are policies (PolicySpec). A policy that cannot be enforced closes the
// workloads that it selects.
func (k Kind) IsPolicy() bool {
	return k == KindPeerAuthentication || k == KindAuthorizationPolicy || k == KindRequestAuthentication
}

// DeniedName is the name of the AuthorizationPolicy in the root namespace that denies the identities which the CA has
// revoked. Users cannot create an object of this name, because Kubernetes names contain no colon.
const DeniedName = "navarch:denied-identities"

// DeniedIdentities returns all source principals of a policy as SPIFFE IDs, in order. The result is nil without
// principals, and for a policy that is not an AuthorizationPolicy or does not decode. DeniedIdentities is for the
// policy with DeniedName, and does not read the action. The argument p must not be nil.
func DeniedIdentities(p *Policy) (out []string) {
	for _, rule := range p.authorization.GetRules() {
		for _, from := range rule.GetFrom() {
			for _, principal := range from.GetSource().GetPrincipals() {
				out = append(out, "spiffe://"+principal)
			}
		}
	}
	return out
}
