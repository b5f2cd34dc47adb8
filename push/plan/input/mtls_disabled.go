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

// served is a service at one of its hosts.
type served struct {
	service *model.Service
	host    string
}

// MTLSDisabled is a digest of where PeerAuthentications turn mTLS off for what a cluster selects (see mtlsDisabledAt), computed once in
// a step.
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

// withoutMTLS is the digest of a service for all endpoints of which mTLS is off, whatever their labels and ports.
var withoutMTLS = model.HashOf([]byte("0: others true\n")).String()

// WithoutMTLS says whether the PeerAuthentication of a namespace or the mesh turns mTLS off for all that a cluster may ever select.
func (in *Input) WithoutMTLS(q Selection) bool {
	return in.MTLSDisabled(q) == withoutMTLS && modeOf(q.Peers.All(), q.Service.Key.Namespace, nil, 0) == model.MTLSDisable
}

// mtlsDisabledAt is a digest of where PeerAuthentications turn mTLS off for a service's endpoints; empty: nowhere. It is another one
// wherever the mode of an endpoint becomes another one by an edit of a policy, which is what the service's clusters have to
// show; and it is about endpoints that may come as well as those that are there, or each that comes would change clusters.
// What decides for no endpoint is not in it: policies that select other workloads, that say what holds without them, or
// whether mTLS is asked for or only taken.
func mtlsDisabledAt(s *mirror.Snapshot, peers []*model.Policy, of served) string {
	outside := outOfSelector(s, of)
	foreign := slices.ContainsFunc(outside, func(e *model.Endpoint) bool { return !at(e, of.service) })
	var levels [3]*model.Policy // of endpoints that nothing in selecting picks, as FirstMode takes them
	var selecting []*model.Policy
	ports := map[uint32]bool{0: true} // 0: all that are not named
	for _, p := range peers {
		selector, own := p.Spec.GetSelector(), p.Key.Namespace == of.service.Key.Namespace
		switch {
		case len(selector) > 0 && (!own || !mayPick(selector, of.service, outside)):
			continue
		case len(selector) > 0 && levels[0] != nil:
			continue // an older one picks all
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

// disabledRow says for which selectors, the first of which decides, and for whom else mTLS is off at a port; empty: for nobody.
func disabledRow(selecting []*model.Policy, levels [3]*model.Policy, port uint32, foreign bool) string {
	off := func(levels ...*model.Policy) bool { return FirstMode(levels, port) == model.MTLSDisable }
	picked := func(p *model.Policy) bool { return off(p, levels[1], levels[2]) }
	others, elsewhere := off(levels[:]...), foreign && off(levels[2])
	for n := len(selecting); n > 0 && picked(selecting[n-1]) == others; n-- {
		selecting = selecting[:n-1] // without it the same would hold
	}
	if !others && !elsewhere && len(selecting) == 0 {
		return ""
	}
	row := fmt.Sprintf("others %t", others)
	if foreign {
		row += fmt.Sprintf(", elsewhere %t", elsewhere)
	}
	for _, p := range selecting {
		row += fmt.Sprintf(", %q %t", p.Spec.GetSelector(), picked(p)) // maps are printed in order of keys
	}
	return row
}

// mayPick says whether a policy's selector may pick an endpoint of a service. Endpoints that are not out-of-selector endpoints have the labels
// that the service selects.
func mayPick(selector map[string]string, svc *model.Service, outside []*model.Endpoint) bool {
	for k, v := range svc.Spec.GetSelector() {
		if other, ok := selector[k]; ok && other != v {
			return slices.ContainsFunc(outside, func(e *model.Endpoint) bool { return model.Matches(selector, e.GetLabels()) })
		}
	}
	return true
}

// outOfSelector are the endpoints of a service that are not of its namespace, or have other labels than it selects: somebody
// wrote them by hand, or a pod's labels have just changed.
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

// at says whether an endpoint is of a service's namespace.
func at(e *model.Endpoint, svc *model.Service) bool {
	return cmp.Or(e.GetNamespace(), svc.Key.Namespace) == svc.Key.Namespace
}

// MTLSDisabledDiffers says whether the digest of a host's endpoints without mTLS (MTLSDisabled), which is a part of its clusters, is another one at
// another snapshot: endpoints came or went that a service of the host does not select by its labels. The policies are those of this one.
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
