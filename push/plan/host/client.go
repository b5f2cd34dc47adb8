package host

import (
	"slices"

	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

// Client is proxies that are alike, as far as it decides which clusters they have: for what their listeners send of themselves (spans, logs,
// questions to an authorizer). An Envoy refuses listeners whose tracer names a cluster that it does not know.
type Client struct {
	Namespace string
	Imports   []*Imports     // which services it sees
	Patches   input.PatchSet // of its outbound side; of these, the ones that remove clusters are looked at
}

// Find is the host to whose cluster a client sends what is for a port of the host `name`: this one, or the one that it is another name of (a
// Service of type ExternalName). The client has to see one of the services `named`, which are some of those with the host `name`. False: it
// sees none, or has no such cluster. `asked` are the hosts by which this is decided: where a service of one of them comes, goes or changes, the
// answer may be another.
func (c Client) Find(in *input.Input, name string, named []*model.Service, port uint32) (host string, asked []string, ok bool) {
	for range longestAlias {
		asked = append(asked, name)
		svc := meaning(in, name, c.Namespace, c.has)
		if svc == nil || len(asked) == 1 && !slices.ContainsFunc(named, func(svc *model.Service) bool { return c.sees(svc, name, port) }) {
			return "", asked, false
		}
		alias := svc.Spec.GetAliasFor()
		if alias == "" {
			return name, asked, c.hasCluster(in, svc, name, port)
		}
		name = alias
	}
	return "", asked, false
}

// hasCluster says whether there is a cluster of a port of a host that means a service to the client, wherever VirtualServices send: a
// destination of one is seen from any namespace, and another service may be the one that the host means then.
func (c Client) hasCluster(in *input.Input, svc *model.Service, name string, port uint32) bool {
	other := meaning(in, name, c.Namespace, func(*model.Service, string) bool { return true })
	return c.sees(svc, name, port) && portOf(in, svc, name, port) && (other == svc || other.Spec.GetAliasFor() == "" && portOf(in, other, name, port)) &&
		!c.Patches.Any(func(p model.Patch) bool {
			return input.RemovesCluster(p, networkingv1.EnvoyFilter_SIDECAR_OUTBOUND, xds.OutboundCluster(port, "", name))
		})
}

// sees says whether a service is exported to the client, and imported at one of its hosts with a port.
func (c Client) sees(svc *model.Service, name string, port uint32) bool {
	return exported(svc.Spec.GetExportTo(), nil, svc.Key.Namespace, c.Namespace) &&
		slices.ContainsFunc(c.Imports, func(im *Imports) bool { return im.Has(svc, name) && im.hasPort(name, port) })
}

// portOf says whether a host has a port, where it means a service.
func portOf(in *input.Input, svc *model.Service, name string, port uint32) bool {
	h := Host{Name: name, Service: svc, joined: joined(in, name, svc)}
	return h.At(port) != nil
}

// has says whether a host of a service is imported.
func (c Client) has(svc *model.Service, host string) bool {
	return slices.ContainsFunc(c.Imports, func(im *Imports) bool { return im.Has(svc, host) })
}
