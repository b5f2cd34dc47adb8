package normal

import (
	"encoding/json"
	"strings"

	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/origin"
	"navarch.io/navarch/store/problem"
)

// ResolvedID returns the ID of the object with the addresses of a host name. The name must be in lower case, without a
// final dot. Such objects are not in Kubernetes: package store/hostnames makes them.
func ResolvedID(name string) object.ID {
	return object.ID{Origin: origin.New("", origin.DNS), Group: object.OwnGroup, Kind: "ResolvedName", Name: name}
}

// resolvedObject is the JSON of an object with the addresses of a host name.
type resolvedObject struct {
	Addresses []string `json:"addresses"`
}

// NewResolved returns the object with the IP addresses of a host name. The name must be in lower case, without a final
// dot. The addresses are copied and not validated. The error is that of encoding JSON.
func NewResolved(name string, addresses []string) (*object.Object, error) {
	raw, err := json.Marshal(resolvedObject{addresses})
	if err != nil {
		return nil, err
	}
	return &object.Object{ID: ResolvedID(name), Version: "v1", JSON: raw, Location: "DNS"}, nil
}

// ParseResolved returns the addresses in an object that NewResolved made. It returns nil if the JSON cannot be decoded
// or has no list of addresses. For an empty list it returns an empty slice that is not nil.
func ParseResolved(obj *object.Object) []string {
	var content resolvedObject
	if json.Unmarshal(obj.JSON, &content) != nil {
		return nil
	}
	return content.Addresses
}

// absolute returns a host name in the form in which it is resolved: lower case, without a final dot.
func absolute(name string) string { return strings.ToLower(strings.TrimSuffix(name, ".")) }

// gatewayName returns the IP addresses of a network gateway, given its host name. It warns if the name is invalid, or
// if no address is known.
func (n *Normalizer) gatewayName(r *report, field, name string, ctx Lookup) []string {
	if n.checkGatewayName(r, field, name) {
		id := ResolvedID(absolute(name))
		r.ref(id)
		addresses := ctx.Resolved(id)
		if len(addresses) == 0 {
			r.warnf(problem.Pending, field, "%q is not resolved: the gateway is not used at this address until then", name)
		}
		return addresses
	}
	return nil
}

// checkGatewayName reports whether the host name of a network gateway is valid and Options.ResolveGateways is set. If
// not, it warns.
func (n *Normalizer) checkGatewayName(r *report, field, name string) bool {
	switch wrong := plainHost(absolute(name)); {
	case wrong != "":
		r.warnf(problem.Invalid, field, "%q %s: the gateway is not used at this address", name, wrong)
	case !n.ResolveGateways:
		r.warnf(problem.NotSupported, field, "%q is no IP address, and names of gateways are not resolved (RESOLVE_HOSTNAME_GATEWAYS): the "+
			"gateway is not used at this address", name)
	default:
		return true
	}
	return false
}
