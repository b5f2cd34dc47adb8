package plan

import (
	"encoding/base64"
	"fmt"
	"testing"

	"google.golang.org/protobuf/proto"
	securityv1 "istio.io/api/security/v1beta1"

	"navarch.io/navarch/store/model"
)

// deniedText returns the policy that denies the account sa of the namespaces.
func deniedText(t testing.TB, namespaces ...string) string {
	source := &securityv1.Source{}
	for _, ns := range namespaces {
		source.Principals = append(source.Principals, "cluster.local/ns/"+ns+"/sa/sa")
	}
	raw, err := proto.Marshal(&securityv1.AuthorizationPolicy{Action: securityv1.AuthorizationPolicy_DENY, Rules: []*securityv1.Rule{{From: []*securityv1.Rule_From{{Source: source}}}}})
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("{meshWide: true, istio: '%s'}", base64.StdEncoding.EncodeToString(raw))
}

// policy returns the body of a policy; it has no selector if it applies to the whole mesh.
func (m *mesh) policy(kind model.Kind) string {
	var message proto.Message = m.authorization()
	if kind == model.KindPeerAuthentication {
		modes := func() *securityv1.PeerAuthentication_MutualTLS {
			return &securityv1.PeerAuthentication_MutualTLS{Mode: securityv1.PeerAuthentication_MutualTLS_Mode(m.r.IntN(4))}
		}
		p := &securityv1.PeerAuthentication{Mtls: modes()}
		if m.one(3) {
			p.PortLevelMtls = map[uint32]*securityv1.PeerAuthentication_MutualTLS{uint32(8080 + m.r.IntN(2)): modes()}
		}
		message = p
	}
	raw, err := proto.MarshalOptions{Deterministic: true}.Marshal(message)
	if err != nil {
		m.t.Fatal(err)
	}
	return fmt.Sprintf("{closed: %v, meshWide: %v, selector: {%s}, istio: '%s'%s}", m.one(8), m.one(2), m.pick("", "app: s0", "app: s1"),
		base64.StdEncoding.EncodeToString(raw), m.targeted(kind, "gateways: [%s]", "front"))
}

// targeted sometimes returns a further field of a record, with the Gateways that it is for.
func (m *mesh) targeted(kind model.Kind, field, gateway string) string {
	if m.targets == nil || kind == model.KindPeerAuthentication || m.targets.IntN(3) > 0 {
		return ""
	}
	return fmt.Sprintf(", "+field, []string{gateway, "other", "other, " + gateway}[m.targets.IntN(3)])
}

func (m *mesh) authorization() *securityv1.AuthorizationPolicy {
	rule := &securityv1.Rule{From: []*securityv1.Rule_From{{Source: &securityv1.Source{Namespaces: []string{m.pick(namespaces...)}}}}}
	p := &securityv1.AuthorizationPolicy{Action: securityv1.AuthorizationPolicy_Action(m.r.IntN(2)), Rules: []*securityv1.Rule{rule}}
	if m.one(3) {
		rule.To = []*securityv1.Rule_To{{Operation: &securityv1.Operation{Paths: []string{"/" + m.pick("x", "y")}}}}
	}
	return p
}
