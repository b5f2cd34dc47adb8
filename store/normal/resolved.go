package normal

import (
	"encoding/json"
	"strings"

	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/origin"
	"navarch.io/navarch/store/problem"
)

// ResolvedID names the object that says which addresses a name has. Its origin is no source of configuration: it comes from the leader alone
// (store/hostnames).
func ResolvedID(name string) object.ID {
	return object.ID{Origin: origin.New("", origin.DNS), Group: object.OwnGroup, Kind: "ResolvedName", Name: name}
}

// resolvedObject is its content.
type resolvedObject struct {
	Addresses []string `json:"addresses"`
}

// NewResolved makes the object of a name and its IPs. Errors are those of encoding.
func NewResolved(name string, addresses []string) (*object.Object, error) {
	raw, err := json.Marshal(resolvedObject{addresses})
	if err != nil {
		return nil, err
	}
	return &object.Object{ID: ResolvedID(name), Version: "v1", JSON: raw, Location: "DNS"}, nil
}

// ParseResolved reads what NewResolved made; nil: it did not make it.
func ParseResolved(obj *object.Object) []string {
	var content resolvedObject
	if json.Unmarshal(obj.JSON, &content) != nil {
		return nil
	}
	return content.Addresses
}

// absolute is a name as it is asked for: lower case, without the dot at its end.
func absolute(name string) string { return strings.ToLower(strings.TrimSuffix(name, ".")) }

// gatewayName is the addresses that a gateway has whose address is a name.
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

// checkGatewayName says whether the name of a gateway is one that is resolved.
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
