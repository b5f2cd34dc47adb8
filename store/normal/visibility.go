package normal

import (
	"errors"
	"fmt"
	"slices"

	meshv1 "istio.io/api/mesh/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
)

// capped narrows who sees a ServiceEntry (its exportTo) to what serviceEntryVisibility of the mesh configuration allows entries of its namespace, where
// that applies to sidecars. It never widens it. The labels are those of the Namespace of the entry's own source and cluster. (istio.io/api mesh/v1alpha1/config.proto ServiceEntryVisibility; Istio: "Extending visibility to
// sidecars and gateways": the intersection of both.)
func capped(r *report, obj *object.Object, exportTo []string, ctx Lookup) []string {
	r.mesh = true // an edit of the mesh configuration may begin to apply
	settings := ctx.Mesh().GetServiceEntryVisibility()
	if !settings.GetApplyToSidecars() {
		return exportTo
	}
	var of labels.Set // of its namespace
	if ns := r.namespace(obj, ctx); ns != nil {
		of = ns.Labels
	}
	switch visibilityFor(settings, of) {
	case meshv1.ServiceEntryVisibility_NONE:
		return []string{"~"}
	case meshv1.ServiceEntryVisibility_NAMESPACE:
		if slices.Contains(exportTo, "*") || slices.Contains(exportTo, obj.ID.Namespace) {
			return []string{obj.ID.Namespace}
		}
		return []string{"~"}
	default:
		return exportTo
	}
}

// visibilityFor is what the first policy says whose rules all match the labels of a namespace, or else the default.
func visibilityFor(settings *meshv1.ServiceEntryVisibility, namespace labels.Set) meshv1.ServiceEntryVisibility_Visibility {
	for _, policy := range settings.GetPolicies() {
		if !slices.ContainsFunc(policy.GetMatchingRules(), func(rule *meshv1.ServiceEntryVisibility_MatchRule) bool {
			selector, err := ruleSelector(rule)
			return err != nil || !selector.Matches(namespace)
		}) {
			return policy.GetVisibility()
		}
	}
	return settings.GetDefaultVisibility()
}

// ruleSelector is what a rule selects namespaces by. One that cannot be read is an error, and selects none, as in Istio: what is forbidden by default
// stays so.
func ruleSelector(rule *meshv1.ServiceEntryVisibility_MatchRule) (labels.Selector, error) {
	stated := rule.GetNamespaceSelector()
	if stated == nil {
		return nil, errors.New("has no namespaceSelector")
	}
	selector := &metav1.LabelSelector{MatchLabels: stated.GetMatchLabels()}
	for _, one := range stated.GetMatchExpressions() {
		selector.MatchExpressions = append(selector.MatchExpressions, metav1.LabelSelectorRequirement{
			Key: one.GetKey(), Operator: metav1.LabelSelectorOperator(one.GetOperator()), Values: one.GetValues(),
		})
	}
	return metav1.LabelSelectorAsSelector(selector)
}

// checkVisibility says which rules of serviceEntryVisibility match no namespace because they cannot be read, and that nothing of it applies where
// applyToSidecars is not set: then only proxies of ambient mode act on it.
func checkVisibility(r *report, settings *meshv1.ServiceEntryVisibility) {
	const at = "data.mesh.serviceEntryVisibility"
	if settings == nil {
		return
	}
	if !settings.GetApplyToSidecars() {
		r.warnf(problem.NoEffect, at+".applyToSidecars", "is not set: sidecars see ServiceEntries as their exportTo says")
		return
	}
	for i, policy := range settings.GetPolicies() {
		for j, rule := range policy.GetMatchingRules() {
			if _, err := ruleSelector(rule); err != nil {
				r.warnf(problem.Invalid, fmt.Sprintf("%s.policies[%d].matchingRules[%d]", at, i, j), "%v: the policy applies to no namespace", err)
			}
		}
	}
}
