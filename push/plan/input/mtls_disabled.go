package input

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// served identifies a service at one of its hosts.
type served struct {
	service *model.Service
	host    string
}

// MTLSDisabled returns a digest of the endpoints and ports for which PeerAuthentications disable mTLS, for the service
// and host of a selection. The result is "" if no PeerAuthentication disables mTLS, or if q.Peers is empty. Equal
// digests mean equal modes (see mtlsDisabledAt). The result is cached by service and host. So q.Peers must be empty or
// the result of Input.Peers for the service's namespace.
func (in *Input) MTLSDisabled(q Selection) string {
	if q.Peers.Len() == 0 {
		return ""
	}
	key := served{q.Service, q.Host}
	digest, ok := in.mtlsDisabled[key]
	if !ok {
		digest = mtlsDisabledAt(in.Snapshot, q.Peers.All(), key)
		in.mtlsDisabled[key] = digest
	}
	return digest
}

// withoutMTLS is the digest of a service with mTLS disabled for all endpoints, with any labels and at any port.
var withoutMTLS = model.HashOf([]byte("0: others true\n")).String()

// WithoutMTLS reports whether the PeerAuthentication of a namespace or of the mesh disables mTLS for every endpoint
// that a cluster may ever select.
func (in *Input) WithoutMTLS(q Selection) bool {
	return in.MTLSDisabled(q) == withoutMTLS && modeOf(q.Peers.All(), q.Service.Key.Namespace, nil, 0) == model.MTLSDisable
}

// mtlsDisabledAt returns a digest of the selectors and ports for which PeerAuthentications disable mTLS, or "" if no
// PeerAuthentication disables it. The list peers is sorted by age, the oldest first.
//
// The digest is a part of the service's clusters. It changes whenever an edit of a policy switches mTLS off or on for
// an endpoint. It covers future endpoints as well as present endpoints, so a new endpoint does not change clusters.
// Policies that switch mTLS for no endpoint are left out. STRICT and PERMISSIVE count as the same mode.
func mtlsDisabledAt(s *mirror.Snapshot, peers []*model.Policy, of served) string {
	outside := outOfSelector(s, of)
	foreign := slices.ContainsFunc(outside, func(e *model.Endpoint) bool { return !at(e, of.service) })
	var levels [3]*model.Policy // for endpoints that no policy in selecting selects; see FirstMode
	var selecting []*model.Policy
	ports := map[uint32]bool{0: true} // 0 stands for all ports that no policy names
	for _, p := range peers {
		selector, own := p.Spec.GetSelector(), p.Key.Namespace == of.service.Key.Namespace
		switch {
		case len(selector) > 0 && (!own || !mayPick(selector, of.service, outside)):
			continue
		case len(selector) > 0 && levels[0] != nil:
			continue // an older policy with a selector selects all endpoints
		case len(selector) > 0 && len(outside) == 0 && model.Matches(selector, of.service.Spec.GetSelector()):
			levels[0] = p
		case len(selector) > 0:
			selecting = append(selecting, p)
		case own:
			levels[1] = cmp.Or(levels[1], p)
		default:
			levels[2] = cmp.Or(levels[2], p)
		}
		_, named := model.PeerModes(p)
		for port := range named {
			ports[port] = true
		}
	}
	var text strings.Builder
	rest := ""
	for _, port := range slices.Sorted(maps.Keys(ports)) {
		row := disabledRow(selecting, levels, port, foreign)
		if port == 0 {
			rest = row
		}
		if port == 0 && row != "" || row != rest {
			fmt.Fprintf(&text, "%d: %s\n", port, row)
		}
	}
	if text.Len() == 0 {
		return ""
	}
	return model.HashOf([]byte(text.String())).String()
}

// disabledRow describes the endpoints for which mTLS is disabled at a port. Without such endpoints it returns "". The
// text has one value for each selector. The first selector that matches an endpoint decides. "others" are endpoints
// that no selector matches, and "elsewhere" are endpoints in other namespaces.
func disabledRow(selecting []*model.Policy, levels [3]*model.Policy, port uint32, foreign bool) string {
	off := func(levels ...*model.Policy) bool { return FirstMode(levels, port) == model.MTLSDisable }
	picked := func(p *model.Policy) bool { return off(p, levels[1], levels[2]) }
	others, elsewhere := off(levels[:]...), foreign && off(levels[2])
	for n := len(selecting); n > 0 && picked(selecting[n-1]) == others; n-- {
		selecting = selecting[:n-1] // the policy changes nothing
	}
	if !others && !elsewhere && len(selecting) == 0 {
		return ""
	}
	row := fmt.Sprintf("others %t", others)
	if foreign {
		row += fmt.Sprintf(", elsewhere %t", elsewhere)
	}
	for _, p := range selecting {
		row += fmt.Sprintf(", %q %t", p.Spec.GetSelector(), picked(p)) // fmt prints maps in order of keys
	}
	return row
}

// mayPick reports whether a policy's selector may match an endpoint of a service. All endpoints have the labels that
// the service selects, except the endpoints in the parameter outside.
func mayPick(selector map[string]string, svc *model.Service, outside []*model.Endpoint) bool {
	for k, v := range svc.Spec.GetSelector() {
		if other, ok := selector[k]; ok && other != v {
			return slices.ContainsFunc(outside, func(e *model.Endpoint) bool { return model.Matches(selector, e.GetLabels()) })
		}
	}
	return true
}

// outOfSelector returns the endpoints of a service that its selector does not match, or that belong to another
// namespace. Examples are endpoints written by hand, and Pods whose labels have just changed.
func outOfSelector(s *mirror.Snapshot, of served) (out []*model.Endpoint) {
	for r := range s.ByHost(model.KindEndpoints, of.host) {
		slice := r.(*model.Endpoints)
		if slice.Key.Namespace != of.service.Key.Namespace {
			continue
		}
		for _, e := range slice.Spec.GetEndpoints() {
			if !at(e, of.service) || !model.Matches(of.service.Spec.GetSelector(), e.GetLabels()) {
				out = append(out, e)
			}
		}
	}
	return out
}

// at reports whether an endpoint belongs to a service's namespace.
func at(e *model.Endpoint, svc *model.Service) bool {
	return cmp.Or(e.GetNamespace(), svc.Key.Namespace) == svc.Key.Namespace
}

// MTLSDisabledDiffers reports whether a service of a host has a different digest (MTLSDisabled) with the endpoints of
// another snapshot. The services are those of the other snapshot. The policies are those of the Input for the
// namespace. Only endpoints that the service's selector does not match, or that belong to another namespace, can change
// the digest.
func (in *Input) MTLSDisabledDiffers(s *mirror.Snapshot, host, namespace string) bool {
	peers := in.Peers(namespace)
	if peers.Len() == 0 {
		return false
	}
	for _, kind := range []model.Kind{model.KindService, model.KindServiceEntry} {
		for r := range s.ByHost(kind, host) {
			of := served{r.(*model.Service), host}
			if mtlsDisabledAt(in.Snapshot, peers.All(), of) != mtlsDisabledAt(s, peers.All(), of) {
				return true
			}
		}
	}
	return false
}
