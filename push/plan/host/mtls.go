package host

import (
	"slices"

	"navarch.io/navarch/push/build/cluster"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/traffic"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

// secure fills in how a cluster speaks mTLS where no rule asks for it. A proxy without a certificate never does.
func (t *Table) secure(spec *cluster.Outbound, q input.Selection, labels map[string]string) {
	if !t.key.Caps.Has(xds.CapIdentity) || q.Service.Spec.GetExternal() {
		return
	}
	spec.Accounts = t.in.Accounts(q.Host, q.Service.Key.Namespace)
	spec.Denied = t.in.Denied(spec.Accounts, func() []string {
		return slices.Concat(q.Service.Spec.GetSubjectAltNames(), input.NamesOf(spec.Rule), input.NamesOf(spec.SubsetRule))
	})
	if !t.in.Mesh.Spec.GetEnableAutoMtls().GetValue() {
		return
	}
	switch {
	case q.Service.Spec.GetResolution() == model.Resolution_RESOLUTION_NONE:
	case traffic.Headless(q.Service):
		all := t.in.Members(q, labels).All()
		mtls := func(m model.Member) bool { return m.Endpoint.GetMtls() }
		if len(all) > 0 && !slices.ContainsFunc(all, func(m model.Member) bool { return !mtls(m) }) && input.Plain(q, all).Len() == 0 {
			spec.TLS = traffic.AutoAll
		}
	default:
		spec.TLS = traffic.AutoEndpoints
		spec.MTLSDisabled = t.in.MTLSDisabled(q)
		spec.Plain = input.Plain(q, spec.Members.All())
	}
}
