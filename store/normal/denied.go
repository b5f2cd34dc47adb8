package normal

import (
	"encoding/json"
	"slices"
	"strings"

	securityv1 "istio.io/api/security/v1beta1"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
)

// DeniedID names the one object that says which identities the CA has revoked (issue 12, item 4). Its name has a colon, which no
// file and no Kubernetes object may have: it comes from the keyring alone.
var DeniedID = object.ID{Group: object.OwnGroup, Kind: "DeniedIdentities", Name: model.DeniedName}

const deniedVersion = "v1"

// deniedObject is the object's content.
type deniedObject struct {
	Identities []string `json:"identities"` // SPIFFE IDs
}

// NewDenied makes the object; identities are SPIFFE IDs, in any order.
func NewDenied(identities []string) (*object.Object, error) {
	content := deniedObject{slices.Sorted(slices.Values(identities))}
	raw, err := json.Marshal(content)
	if err != nil {
		return nil, err
	}
	return &object.Object{ID: DeniedID, Version: deniedVersion, JSON: raw, Location: "keyring"}, nil
}

// deniedRecords is a policy of the whole mesh that denies the identities; none where there are none.
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
