package host

import (
	"slices"

	"navarch.io/navarch/push/build/cluster"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/traffic"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/problem"
)

// secure fills in how a cluster speaks mTLS where no rule asks for it. A proxy without a certificate never does.
func (t *Table) secure(spec *cluster.Outbound, q input.Selection, labels map[string]string, found *[]input.Problem) {
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
	case traffic.Headless(q.Service), t.form.Whole:
		takes := taking(t.in, q, labels)
		if takes.all {
			spec.TLS = traffic.AutoAll
		} else if takes.some && t.form.Whole {
			*found = append(*found, input.Warning(q.Service.Key, problem.NotSupported, "spec.ports",
				"of the endpoints of "+xds.OutboundCluster(q.Port, q.Subset, q.Host)+" some take mTLS and others do not: clients speak to all in the clear (proxyless gRPC)"))
		}
	default:
		spec.TLS = traffic.AutoEndpoints
		spec.MTLSDisabled = t.in.MTLSDisabled(q)
		spec.Plain = input.Plain(q, spec.Members.All())
	}
}

// mtls says whether some, and all, of what a cluster selects take mTLS; neither where there is nothing.
type mtls struct{ some, all bool }

func taking(in *input.Input, q input.Selection, labels map[string]string) mtls {
	members := in.Members(q, labels).All()
	plain := input.Plain(q, members)
	n := 0
	for _, m := range members {
		if m.Endpoint.GetMtls() && !slices.Contains(plain.All(), m) {
			n++
		}
	}
	return mtls{n > 0, n > 0 && n == len(members)}
}

// SecuresOtherwise says whether endpoints as another input has them change the mTLS of a cluster that is decided for all of them at once:
// they have to come together with the cluster.
func (t *Table) SecuresOtherwise(in *input.Input, name string) bool {
	return t.form.Whole && t.Get(name).securesOtherwise(in)
}

// SecuresOtherwise is Table.SecuresOtherwise.
func (v *Variation) SecuresOtherwise(in *input.Input, name string) bool {
	return v.table.form.Whole && v.hosts[name].securesOtherwise(in)
}

func (h *Host) securesOtherwise(in *input.Input) bool {
	return h != nil && slices.ContainsFunc(h.clusters, func(c clusterUnit) bool {
		return c.takes != taking(in, c.selection, c.labels)
	})
}
