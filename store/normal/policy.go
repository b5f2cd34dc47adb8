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

// IsPolicy reports whether an object is a security policy: a PeerAuthentication, AuthorizationPolicy or
// RequestAuthentication. Omitting a security policy would permit requests that the policy refuses.
func IsPolicy(id object.ID) bool {
	kind, _ := model.ParseKind(id.Kind)
	return id.Group == model.GroupSecurity && kind.IsPolicy()
}

// Closed returns the record to use for a policy of which no valid version exists. The record refuses all requests to
// the workloads that the policy selects. The parameter root is the mesh's root namespace.
//
// Without a readable selector, the record selects all workloads in the policy's namespace, or in the mesh for a policy
// in the root namespace. A selector is unreadable if the JSON of obj is nil or invalid, or a label of the selector is
// invalid. A policy with targetRef or targetRefs selects the proxies of the Gateways among the targets.
//
// The result is nil for an object that is not a policy, has no name, or is not in the config cluster. The result is nil
// if the policy has targets and no target is a Gateway. The result is also nil if no record can be made for the
// object's ID (model.New).
func (n *Normalizer) Closed(obj *object.Object, root string) model.Record {
	if !IsPolicy(obj.ID) || obj.ID.Name == "" || obj.ID.Origin.Cluster() != "" {
		return nil
	}
	kind, _ := model.ParseKind(obj.ID.Kind)
	selector, targets := readableSelector(obj.JSON)
	spec := policySpec(obj.ID, selector, root, targets)
	if spec == nil {
		return nil
	}
	spec.Closed = true
	records := (&report{}).record(kind, obj, obj.ID.Name, spec)
	if len(records) == 0 { // a label cannot be encoded: select all workloads
		spec.Selector, spec.Gateways = nil, nil
		records = (&report{}).record(kind, obj, obj.ID.Name, spec)
	}
	if len(records) == 0 {
		return nil
	}
	return records[0]
}

// readableSelector returns the labels of a policy's selector, and the policy's targets. If a label is invalid, labels
// is nil, because an empty selector selects all workloads. Both results are nil if the JSON cannot be decoded.
func readableSelector(raw []byte) (labels map[string]string, targets []*typev1.PolicyTargetReference) {
	type target struct{ Group, Kind, Name string }
	var whole struct {
		Spec struct {
			Selector struct {
				MatchLabels map[string]string `json:"matchLabels"`
			} `json:"selector"`
			TargetRef  *target  `json:"targetRef"`
			TargetRefs []target `json:"targetRefs"`
		} `json:"spec"`
	}
	if json.Unmarshal(raw, &whole) != nil {
		return nil, nil
	}
	if one := whole.Spec.TargetRef; one != nil {
		whole.Spec.TargetRefs = append(whole.Spec.TargetRefs, *one)
	}
	for _, t := range whole.Spec.TargetRefs {
		targets = append(targets, &typev1.PolicyTargetReference{Group: t.Group, Kind: t.Kind, Name: t.Name})
	}
	for key, value := range whole.Spec.Selector.MatchLabels {
		if len(validation.IsQualifiedName(key)) > 0 || len(validation.IsValidLabelValue(value)) > 0 {
			return nil, targets
		}
	}
	return whole.Spec.Selector.MatchLabels, targets
}

// policySpec returns a PolicySpec that says to which workloads a policy applies. The parameter root is the mesh's root
// namespace. A policy in the root namespace applies to the whole mesh. The exception is a PeerAuthentication with a
// selector, which applies to the root namespace only
// (https://istio.io/latest/docs/reference/config/security/authorization-policy/, selector). A policy with targets
// applies to the Gateways among its targets. The result is nil if no target is a Gateway.
func policySpec(id object.ID, selector map[string]string, root string, targets []*typev1.PolicyTargetReference) *model.PolicySpec {
	if len(targets) > 0 {
		names := model.TargetGateways(targets)
		if len(names) == 0 {
			return nil
		}
		return &model.PolicySpec{Selector: model.SelectorOfGateways(names), Gateways: names}
	}
	inRoot := id.Namespace == root
	return &model.PolicySpec{Selector: selector, MeshWide: inRoot && (len(selector) == 0 || id.Kind != "PeerAuthentication")}
}

// allTargets returns the targets in an object's fields targetRef and targetRefs. A valid object sets at most one of
// these fields.
func allTargets(one *typev1.PolicyTargetReference, all []*typev1.PolicyTargetReference) []*typev1.PolicyTargetReference {
	if one != nil {
		all = append(all[:len(all):len(all)], one)
	}
	return all
}

// attachable lists, as GROUP/KIND, the kinds that targetRefs may name (PolicyTargetReference in istio.io/api; istio:
// pkg/config/validation, validatePolicyTargetReference).
var attachable = []string{"gateway.networking.k8s.io/Gateway", "gateway.networking.k8s.io/GatewayClass", "/Service", "core/Service",
	"networking.istio.io/ServiceEntry"}

// targetRefs reports an object that sets more than one of selector, targetRef and targetRefs, as Istio's webhook does.
// It also validates the targets.
func (r *report) targetRefs(selector *typev1.WorkloadSelector, one *typev1.PolicyTargetReference, all []*typev1.PolicyTargetReference) {
	switch {
	case selector != nil && (one != nil || len(all) > 0):
		r.refusef(problem.Invalid, "spec.targetRefs", "must not be set together with spec.selector")
	case one != nil && len(all) > 0:
		r.refusef(problem.Invalid, "spec.targetRefs", "must not be set together with spec.targetRef")
	}
	r.eachTarget(one, all)
}

// eachTarget validates each target of an object.
func (r *report) eachTarget(one *typev1.PolicyTargetReference, all []*typev1.PolicyTargetReference) {
	if one != nil {
		r.target("spec.targetRef", one)
	}
	for i, t := range all {
		r.target(fmt.Sprintf("spec.targetRefs[%d]", i), t)
	}
}

// target reports an invalid target. It warns of a target of a kind that selects neither sidecars nor gateways.
func (r *report) target(at string, t *typev1.PolicyTargetReference) {
	if t.GetName() == "" {
		r.refusef(problem.Required, at+".name", "must not be empty")
	}
	if t.GetNamespace() != "" {
		r.refusef(problem.Invalid, at+".namespace", "must be empty: a policy can target only objects of its own namespace")
	}
	if of := t.GetGroup() + "/" + t.GetKind(); !slices.Contains(attachable, of) {
		r.refusef(problem.Invalid, at+".kind", "policies cannot target %q: want one of %s", of, strings.Join(attachable, ", "))
	} else if !model.TargetsGateway(t.GetGroup(), t.GetKind()) {
		r.warnf(problem.NotSupported, at+".kind", "%s targets are for waypoints, which are not supported: this target selects nothing",
			t.GetKind())
	}
}

// policy decodes and validates a policy. It returns false if the policy is invalid. An unknown field is an error,
// because requests would be permitted if a misspelt restriction were ignored. The function selector returns the
// selector of the decoded policy.
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

// authorizationPolicyRecords returns the record of an AuthorizationPolicy. If the policy has a field that cannot be
// enforced and that might refuse requests, the record refuses all requests. A dry run is stored with action AUDIT,
// which refuses nothing. PolicySpec.dry_run has the original action, or AUDIT for the action CUSTOM.
func authorizationPolicyRecords(_ *Normalizer, r *report, obj *object.Object, ctx Lookup) []model.Record {
	p := &securityv1.AuthorizationPolicy{}
	if !r.policy(obj, p, p.GetSelector) {
		return nil
	}
	r.mesh = true
	action, dry := p.Action, r.dryRun(obj, p.Action)
	if dry {
		p.Action = securityv1.AuthorizationPolicy_AUDIT
	}
	r.targetRefs(p.Selector, p.TargetRef, p.TargetRefs)
	r.authorization(p, action)
	spec := policySpec(obj.ID, p.Selector.GetMatchLabels(), ctx.Mesh().GetRootNamespace(), allTargets(p.TargetRef, p.TargetRefs))
	if r.spoiled || spec == nil {
		return nil
	}
	if dry {
		spec.DryRun = dryRuns[action]
	}
	if field, why := unenforced(p); why != "" && !harmless(p) {
		spec.Closed = true
		r.warnf(problem.NotSupported, field, "%s: the selected workloads refuse all requests", why)
	}
	return r.policyRecord(model.KindAuthorizationPolicy, obj, spec, p)
}

// dryRun is the annotation of a policy that is only evaluated, not enforced.
const dryRun = "istio.io/dry-run"

// dryRuns maps the action of a dry run to the value of PolicySpec.dry_run in its record.
var dryRuns = map[securityv1.AuthorizationPolicy_Action]model.DryRun{
	securityv1.AuthorizationPolicy_ALLOW: model.DryRun_DRY_RUN_ALLOW, securityv1.AuthorizationPolicy_DENY: model.DryRun_DRY_RUN_DENY,
	securityv1.AuthorizationPolicy_AUDIT: model.DryRun_DRY_RUN_AUDIT, securityv1.AuthorizationPolicy_CUSTOM: model.DryRun_DRY_RUN_AUDIT,
}

// dryRun reports whether a policy is a dry run. Istio's webhook accepts the annotation for the actions ALLOW and DENY
// only (checkDryRunAnnotation in its pkg/config/validation).
func (r *report) dryRun(obj *object.Object, action securityv1.AuthorizationPolicy_Action) bool {
	const at = "metadata.annotations[" + dryRun + "]"
	stated, has := obj.Annotations[dryRun]
	is, err := strconv.ParseBool(stated)
	switch {
	case has && err != nil:
		r.refusef(problem.Invalid, at, "%q is neither true nor false: the policy is enforced", stated)
	case has && action == securityv1.AuthorizationPolicy_CUSTOM:
		r.refusef(problem.NotSupported, at, "applies to the actions ALLOW and DENY only: the external authorizer is not called, and "+
			"requests that match the rules are only counted")
	case has && action == securityv1.AuthorizationPolicy_AUDIT:
		r.refusef(problem.NoEffect, at, "applies to the actions ALLOW and DENY only: AUDIT refuses nothing")
	}
	return is
}

// harmless reports whether the policy certainly permits every request.
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

// peerAuthenticationRecords returns the record of a PeerAuthentication. If the mode of the workload or of a port is
// unknown, the record refuses all requests.
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
	spec := policySpec(obj.ID, p.Selector.GetMatchLabels(), ctx.Mesh().GetRootNamespace(), nil)
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
		r.warnf(problem.NotSupported, "spec.mtls.mode", "unknown mode, here or in spec.portLevelMtls: the selected workloads refuse all requests")
	}
	return r.policyRecord(model.KindPeerAuthentication, obj, spec, p)
}

// policyRecord returns the record of a policy, and stores the encoded policy p in spec.
func (r *report) policyRecord(kind model.Kind, obj *object.Object, spec *model.PolicySpec, p proto.Message) []model.Record {
	raw, err := deterministic.Marshal(p)
	if err != nil {
		r.errorf("spec", "%v", err)
		return nil
	}
	spec.Istio = raw
	return r.record(kind, obj, obj.ID.Name, spec)
}
