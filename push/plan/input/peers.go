package input

import (
	"cmp"
	"maps"
	"slices"

	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
)

// Peers returns the PeerAuthentications that may apply to endpoints of a namespace, the oldest first. They are the
// policies of the namespace and the mesh-wide policies. If no such policy disables mTLS, the list is empty, because
// clients need no policy to decide about mTLS. The result is cached.
func (in *Input) Peers(namespace string) intern.List[*model.Policy] {
	if found, ok := in.peers[namespace]; ok {
		return found
	}
	all := in.applicablePeers(namespace)
	if !slices.ContainsFunc(all, DisablesMTLS) {
		all = nil
	}
	list := policies.List(all...)
	in.peers[namespace] = list
	return list
}

// DisablesMTLS reports whether a PeerAuthentication disables mTLS, for all ports or for some port.
func DisablesMTLS(p *model.Policy) bool {
	mode, ports := model.PeerModes(p)
	return mode == model.MTLSDisable || slices.Contains(slices.Collect(maps.Values(ports)), model.MTLSDisable)
}

// applicablePeers lists the PeerAuthentications that may apply to endpoints of a namespace, the oldest first.
func (in *Input) applicablePeers(namespace string) []*model.Policy {
	out, known := in.applicable[namespace]
	if known {
		return out
	}
	for _, ns := range slices.Compact([]string{namespace, in.Root()}) {
		for r := range in.In(model.KindPeerAuthentication, ns) {
			if p := r.(*model.Policy); ns == namespace || p.Spec.GetMeshWide() {
				out = append(out, p)
			}
		}
	}
	slices.SortFunc(out, func(a, b *model.Policy) int { return a.Older(&b.Head) })
	in.applicable[namespace] = out
	return out
}

// Demands reports whether a member of a selection accepts only mTLS. It does if it supports mTLS and a
// PeerAuthentication sets STRICT for its port.
func (in *Input) Demands(q Selection, m model.Member) bool { return in.DemandedBy(q, m) != nil }

// DemandedBy returns the PeerAuthentication by which a member of a selection accepts only mTLS. The result is nil if
// the member accepts plain text.
func (in *Input) DemandedBy(q Selection, m model.Member) *model.Policy {
	if !m.Endpoint.GetMtls() {
		return nil
	}
	namespace := cmp.Or(m.Endpoint.GetNamespace(), q.Service.Key.Namespace)
	levels := levelsOf(in.applicablePeers(q.Service.Key.Namespace), namespace, m.Endpoint.GetLabels())
	mode, by, _ := FirstPeer(levels[:], m.Port)
	if mode != model.MTLSStrict {
		return nil
	}
	return by
}

// modeOf returns the mode of one port of a workload.
func modeOf(peers []*model.Policy, namespace string, labels map[string]string, port uint32) model.MTLS {
	levels := levelsOf(peers, namespace, labels)
	return FirstMode(levels[:], port)
}

// levelsOf returns the policies that apply to a workload. They are the oldest policy that selects the workload, the
// oldest policy of the namespace, and the oldest mesh-wide policy. An element is nil if there is no such policy. The
// first policy that states a mode decides. Within a policy, the mode of the port precedes the mode of all ports. The
// default is permissive (https://istio.io/latest/docs/reference/config/security/peer_authentication/).
func levelsOf(peers []*model.Policy, namespace string, labels map[string]string) (levels [3]*model.Policy) {
	for _, p := range peers {
		level := 2
		switch {
		case len(p.Spec.GetSelector()) > 0 && (p.Key.Namespace != namespace || !model.Matches(p.Spec.GetSelector(), labels)):
			continue
		case len(p.Spec.GetSelector()) > 0:
			level = 0
		case p.Key.Namespace == namespace:
			level = 1
		}
		if levels[level] == nil {
			levels[level] = p
		}
	}
	return levels
}

// PoliciesAt returns the policies with the given keys, in the order of the keys. Missing policies are skipped. All keys
// must be of kinds of policies. PoliciesAt panics if a record of another kind has one of the keys.
func (in *Input) PoliciesAt(keys intern.List[model.Key]) (out []*model.Policy) {
	for _, k := range keys.All() {
		if r, ok := in.Get(k); ok {
			out = append(out, r.(*model.Policy))
		}
	}
	return out
}

// FirstMode returns the mode of the first policy that states a mode for a port of a workload. If no policy states a
// mode, the result is MTLSPermissive. Within a policy, the mode of the port precedes the mode of all ports. Policies in
// the list may be nil.
func FirstMode(levels []*model.Policy, port uint32) model.MTLS {
	mode, _, _ := FirstPeer(levels, port)
	return mode
}

// FirstPeer returns the mode that FirstMode returns, and the policy that states the mode. The policy is nil if no
// policy states a mode. The result ofPort is true if the policy states the mode for this port alone.
func FirstPeer(levels []*model.Policy, port uint32) (mode model.MTLS, by *model.Policy, ofPort bool) {
	for _, p := range levels {
		all, ports := model.PeerModes(p)
		switch {
		case ports[port] != model.MTLSUnset:
			return ports[port], p, true
		case all != model.MTLSUnset:
			return all, p, false
		}
	}
	return model.MTLSPermissive, nil, false
}

// Plain returns the members in a list for which PeerAuthentications disable mTLS, in the order of the list. All members
// in the list must belong to the selection. Members that do not support mTLS are left out.
func Plain(q Selection, list []model.Member) intern.List[model.Member] {
	if q.Peers.Len() == 0 {
		return intern.List[model.Member]{}
	}
	var out []model.Member
	for _, m := range list {
		namespace := cmp.Or(m.Endpoint.GetNamespace(), q.Service.Key.Namespace)
		if m.Endpoint.GetMtls() && modeOf(q.Peers.All(), namespace, m.Endpoint.GetLabels(), m.Port) == model.MTLSDisable {
			out = append(out, m)
		}
	}
	return members.List(out...)
}
