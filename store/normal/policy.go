package normal

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
	securityv1 "istio.io/api/security/v1beta1"
	typev1 "istio.io/api/type/v1beta1"
	"k8s.io/apimachinery/pkg/util/validation"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
)

// IsPolicy says whether an object is a policy: one that is left out would open what it closes.
func IsPolicy(id object.ID) bool {
	kind, _ := model.ParseKind(id.Kind)
	return id.Group == model.GroupSecurity && kind.IsPolicy()
}

// Closed is the record of a policy of which no good version was ever seen: what it selects is closed. obj is what was
// read of it; with a nil JSON or an unreadable selector it selects all of its namespace (of the mesh, in the root
// namespace). Nil for objects that are no policies or for no sidecar (targetRefs), have no name or are not of the config cluster.
func (n *Normalizer) Closed(obj *object.Object, root string) model.Record {
	if !IsPolicy(obj.ID) || obj.ID.Name == "" || obj.ID.Origin.Cluster() != "" {
		return nil
	}
	kind, _ := model.ParseKind(obj.ID.Kind)
	selector, targeted := readableSelector(obj.JSON)
	if targeted {
		return nil
	}
	spec := policySpec(obj.ID, selector, root)
	spec.Closed = true
	records := (&report{}).record(kind, obj, obj.ID.Name, spec)
	if len(records) == 0 { // a label that cannot be encoded: select everything
		spec.Selector = nil
		records = (&report{}).record(kind, obj, obj.ID.Name, spec)
	}
	if len(records) == 0 {
		return nil
	}
	return records[0]
}

// readableSelector is the labels of a policy's selector; empty (everything) unless all of it can be read. targeted: it has targetRefs.
func readableSelector(raw []byte) (labels map[string]string, targeted bool) {
	var whole struct {
		Spec struct {
			Selector struct {
				MatchLabels map[string]string `json:"matchLabels"`
			} `json:"selector"`
			TargetRef  map[string]any   `json:"targetRef"`
			TargetRefs []map[string]any `json:"targetRefs"`
		} `json:"spec"`
	}
	if json.Unmarshal(raw, &whole) != nil {
		return nil, false
	}
	targeted = whole.Spec.TargetRef != nil || len(whole.Spec.TargetRefs) > 0
	for key, value := range whole.Spec.Selector.MatchLabels {
		if len(validation.IsQualifiedName(key)) > 0 || len(validation.IsValidLabelValue(value)) > 0 {
			return nil, targeted
		}
	}
	return whole.Spec.Selector.MatchLabels, targeted
}

// policySpec decides whom a policy reaches. One in the root namespace reaches the whole mesh: without a selector always,
// with a selector unless it is a PeerAuthentication, which then stays in the root namespace.
// https://istio.io/latest/docs/reference/config/security/authorization-policy/, selector.
func policySpec(id object.ID, selector map[string]string, root string) *model.PolicySpec {
	inRoot := id.Namespace == root
	return &model.PolicySpec{Selector: selector, MeshWide: inRoot && (len(selector) == 0 || id.Kind != "PeerAuthentication")}
}

// targeted says whether an object is for what it names, Gateways and Services with a waypoint, and so for no sidecar, whatever its selector (Istio:
// ShouldAttachPolicy in pilot/pkg/model/policyattachment.go).
func targeted(one *typev1.PolicyTargetReference, all []*typev1.PolicyTargetReference) bool {
	return one != nil || len(all) > 0
}

// attachable are the groups and kinds that a policy may be for (PolicyTargetReference in istio.io/api; istio: pkg/config/validation,
// validatePolicyTargetReference).
var attachable = []string{"gateway.networking.k8s.io/Gateway", "gateway.networking.k8s.io/GatewayClass", "/Service", "core/Service",
	"networking.istio.io/ServiceEntry"}

// targetRefs refuses what Istio's webhook refuses of whom an object is for: more than one of selector, targetRef and targetRefs, and what no object of that kind
// can be for.
func (r *report) targetRefs(selector *typev1.WorkloadSelector, one *typev1.PolicyTargetReference, all []*typev1.PolicyTargetReference) {
	switch {
	case selector != nil && (one != nil || len(all) > 0):
		r.refusef(problem.Invalid, "spec.targetRefs", "stands with selector: one of the two")
	case one != nil && len(all) > 0:
		r.refusef(problem.Invalid, "spec.targetRefs", "stands with targetRef: one of the two")
	}
	r.eachTarget(one, all)
}

func (r *report) eachTarget(one *typev1.PolicyTargetReference, all []*typev1.PolicyTargetReference) {
	if one != nil {
		r.target("spec.targetRef", one)
	}
	for i, t := range all {
		r.target(fmt.Sprintf("spec.targetRefs[%d]", i), t)
	}
}

func (r *report) target(at string, t *typev1.PolicyTargetReference) {
	if t.GetName() == "" {
		r.refusef(problem.Required, at+".name", "must not be empty")
	}
	if t.GetNamespace() != "" {
		r.refusef(problem.Invalid, at+".namespace", "a policy is for what its own namespace has, and names none")
	}
	if of := t.GetGroup() + "/" + t.GetKind(); !slices.Contains(attachable, of) {
		r.refusef(problem.Invalid, at+".kind", "%q is nothing that a policy can be for: want one of %s", of, strings.Join(attachable, ", "))
	}
}

// policy decodes a policy. An unknown field is an error here: ignoring a misspelt restriction would open what it was
// meant to close.
func (r *report) policy(obj *object.Object, into proto.Message, selector func() *typev1.WorkloadSelector) bool {
	if !r.spec(obj, into) {
		return false
	}
	for i, p := range r.problems {
		if p.Severity == problem.Warning && p.Code == problem.Invalid {
			r.problems[i].Severity, r.spoiled = problem.Error, true
		}
	}
	r.selector("spec.selector.matchLabels", selector().GetMatchLabels())
	return !r.spoiled
}

// authorizationPolicyRecords understands what this version enforces. Anything else that might refuse closes what it
// selects. A dry run is kept as AUDIT, which refuses nothing, beside what it would be.
func authorizationPolicyRecords(_ *Normalizer, r *report, obj *object.Object, ctx Lookup) []model.Record {
	p := &securityv1.AuthorizationPolicy{}
	if !r.policy(obj, p, p.GetSelector) {
		return nil
	}
	r.mesh = true
	spec := policySpec(obj.ID, p.Selector.GetMatchLabels(), ctx.Mesh().GetRootNamespace())
	action := p.Action
	if r.dryRun(obj, action) {
		p.Action, spec.DryRun = securityv1.AuthorizationPolicy_AUDIT, dryRuns[action]
	}
	r.targetRefs(p.Selector, p.TargetRef, p.TargetRefs)
	r.authorization(p, action)
	if r.spoiled {
		return nil
	}
	if targeted(p.TargetRef, p.TargetRefs) {
		return nil
	}
	if field, why := unenforced(p); why != "" && !harmless(p) {
		spec.Closed = true
		r.warnf(problem.NotSupported, field, "%s: what the policy selects is closed to all requests", why)
	}
	return r.policyRecord(model.KindAuthorizationPolicy, obj, spec, p)
}

// dryRun is the annotation of a policy that is tried.
const dryRun = "istio.io/dry-run"

var dryRuns = map[securityv1.AuthorizationPolicy_Action]model.DryRun{
	securityv1.AuthorizationPolicy_ALLOW: model.DryRun_DRY_RUN_ALLOW, securityv1.AuthorizationPolicy_DENY: model.DryRun_DRY_RUN_DENY,
	securityv1.AuthorizationPolicy_AUDIT: model.DryRun_DRY_RUN_AUDIT, securityv1.AuthorizationPolicy_CUSTOM: model.DryRun_DRY_RUN_AUDIT,
}

// dryRun says whether a policy is tried, and refuses nothing. Istio's webhook takes the annotation for the actions ALLOW and DENY (checkDryRunAnnotation in its
// pkg/config/validation).
func (r *report) dryRun(obj *object.Object, action securityv1.AuthorizationPolicy_Action) bool {
	const at = "metadata.annotations[" + dryRun + "]"
	stated, has := obj.Annotations[dryRun]
	is, err := strconv.ParseBool(stated)
	switch {
	case has && err != nil:
		r.refusef(problem.Invalid, at, "%q is neither true nor false: the policy is enforced", stated)
	case has && action == securityv1.AuthorizationPolicy_CUSTOM:
		r.refusef(problem.NotSupported, at, "is for the actions ALLOW and DENY: the provider of a dry run is not asked, and what the rules "+
			"match is counted")
	case has && action == securityv1.AuthorizationPolicy_AUDIT:
		r.refusef(problem.NoEffect, at, "is for the actions ALLOW and DENY: AUDIT refuses nothing")
	}
	return is
}

// harmless says whether the policy certainly refuses nothing.
func harmless(p *securityv1.AuthorizationPolicy) bool {
	switch p.Action {
	case securityv1.AuthorizationPolicy_ALLOW:
		for _, rule := range p.Rules {
			if len(rule.GetFrom()) == 0 && len(rule.GetTo()) == 0 && len(rule.GetWhen()) == 0 {
				return true // a rule without conditions matches every request
			}
		}
		return false
	case securityv1.AuthorizationPolicy_DENY:
		return len(p.Rules) == 0
	case securityv1.AuthorizationPolicy_AUDIT:
		return true
	}
	return false
}

// peerAuthenticationRecords understands every mode that this version knows; another closes.
func peerAuthenticationRecords(_ *Normalizer, r *report, obj *object.Object, ctx Lookup) []model.Record {
	p := &securityv1.PeerAuthentication{}
	if !r.policy(obj, p, p.GetSelector) {
		return nil
	}
	r.mesh = true
	if len(p.PortLevelMtls) > 0 && len(p.Selector.GetMatchLabels()) == 0 {
		r.requiredf("spec.portLevelMtls", "needs a selector")
		return nil
	}
	spec := policySpec(obj.ID, p.Selector.GetMatchLabels(), ctx.Mesh().GetRootNamespace())
	known := func(m *securityv1.PeerAuthentication_MutualTLS) bool {
		return m.GetMode() >= securityv1.PeerAuthentication_MutualTLS_UNSET && m.GetMode() <= securityv1.PeerAuthentication_MutualTLS_STRICT
	}
	spec.Closed = !known(p.Mtls)
	for _, port := range slices.Sorted(maps.Keys(p.PortLevelMtls)) {
		m := p.PortLevelMtls[port]
		if spec.Closed = spec.Closed || !known(m); port < 1 || port > 65535 {
			r.refusef(problem.Invalid, fmt.Sprintf("spec.portLevelMtls[%d]", port), "is no port: want 1 to 65535")
		}
	}
	if spec.Closed {
		r.warnf(problem.NotSupported, "spec.mtls.mode", "is not known: what it selects is closed to all requests")
	}
	return r.policyRecord(model.KindPeerAuthentication, obj, spec, p)
}

func (r *report) policyRecord(kind model.Kind, obj *object.Object, spec *model.PolicySpec, p proto.Message) []model.Record {
	raw, err := deterministic.Marshal(p)
	if err != nil {
		r.errorf("spec", "%v", err)
		return nil
	}
	spec.Istio = raw
	return r.record(kind, obj, obj.ID.Name, spec)
}
