package model

import (
	"google.golang.org/protobuf/proto"
	securityv1 "istio.io/api/security/v1beta1"
)

// MTLS is a mode of PeerAuthentication: how a workload takes connections
// (https://istio.io/latest/docs/reference/config/security/peer_authentication/#PeerAuthentication-MutualTLS-Mode).
type MTLS uint8

// The modes; unset inherits.
const (
	MTLSUnset MTLS = iota
	MTLSDisable
	MTLSPermissive
	MTLSStrict
)

// PeerModes are the modes that a PeerAuthentication states: for all ports, and for ports of the workload. A record whose
// message does not decode states none; such records are closed.
func PeerModes(p *Policy) (all MTLS, ports map[uint32]MTLS) {
	m := &securityv1.PeerAuthentication{}
	if p == nil || proto.Unmarshal(p.Spec.GetIstio(), m) != nil {
		return MTLSUnset, nil
	}
	for number, mode := range m.GetPortLevelMtls() {
		if stated := mtlsOf(mode); stated != MTLSUnset {
			if ports == nil {
				ports = map[uint32]MTLS{}
			}
			ports[number] = stated
		}
	}
	return mtlsOf(m.GetMtls()), ports
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

// Authorization is the message of an AuthorizationPolicy's record; nil where it does not decode.
func Authorization(p *Policy) *securityv1.AuthorizationPolicy {
	m := &securityv1.AuthorizationPolicy{}
	if p == nil || proto.Unmarshal(p.Spec.GetIstio(), m) != nil {
		return nil
	}
	return m
}

// DeniedName is the name of the AuthorizationPolicy, in the root namespace, that denies the identities which the CA has revoked.
// Nobody can write one of this name: no Kubernetes name has a colon in it.
const DeniedName = "navarch:denied-identities"

// DeniedIdentities are the principals of a policy as SPIFFE IDs, wherever they stand in it.
func DeniedIdentities(p *Policy) (out []string) {
	m := &securityv1.AuthorizationPolicy{}
	if proto.Unmarshal(p.Spec.GetIstio(), m) != nil {
		return nil
	}
	for _, rule := range m.GetRules() {
		for _, from := range rule.GetFrom() {
			for _, principal := range from.GetSource().GetPrincipals() {
				out = append(out, "spiffe://"+principal)
			}
		}
	}
	return out
}
