package normal

import (
	"encoding/json"
	"slices"
	"strings"

	securityv1 "istio.io/api/security/v1beta1"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
)

// DeniedID is the ID of the object with the identities that the CA has revoked. Only the keyring emits this object. No
// Kubernetes object can have the name, because the name contains a colon. DeniedID must not be modified.
var DeniedID = object.ID{Group: object.OwnGroup, Kind: "DeniedIdentities", Name: model.DeniedName}

const deniedVersion = "v1"

// deniedObject is the JSON content of the object DeniedID.
type deniedObject struct {
	Identities []string `json:"identities"` // SPIFFE IDs
}

// NewDenied returns the object DeniedID with a sorted copy of the given SPIFFE IDs. It neither validates the IDs nor
// removes duplicates. Normalisation reports an invalid ID as an error of the object. NewDenied fails only if the JSON
// cannot be encoded.
func NewDenied(identities []string) (*object.Object, error) {
	content := deniedObject{slices.Sorted(slices.Values(identities))}
	raw, err := json.Marshal(content)
	if err != nil {
		return nil, err
	}
	return &object.Object{ID: DeniedID, Version: deniedVersion, JSON: raw, Location: "keyring"}, nil
}

// deniedRecords returns a mesh-wide DENY policy for the revoked identities. An empty list makes no record. An invalid
// SPIFFE ID is reported as an error of the object.
func deniedRecords(_ *Normalizer, r *report, obj *object.Object, ctx Lookup) []model.Record {
	var content deniedObject
	if err := json.Unmarshal(obj.JSON, &content); err != nil {
		r.errorf("", "%v", err)
		return nil
	}
	if len(content.Identities) == 0 {
		return nil
	}
	source := &securityv1.Source{}
	for i, id := range content.Identities {
		principal, ok := strings.CutPrefix(id, "spiffe://")
		if !ok || strings.Contains(principal, "*") { // a star would be a wildcard
			r.errorf("identities", "%d: %.200q is no SPIFFE ID", i, id)
			return nil
		}
		source.Principals = append(source.Principals, principal)
	}
	r.mesh = true
	at := *obj
	at.ID.Namespace = ctx.Mesh().GetRootNamespace()
	p := &securityv1.AuthorizationPolicy{Action: securityv1.AuthorizationPolicy_DENY,
		Rules: []*securityv1.Rule{{From: []*securityv1.Rule_From{{Source: source}}}}}
	return r.policyRecord(model.KindAuthorizationPolicy, &at, &model.PolicySpec{MeshWide: true}, p)
}
