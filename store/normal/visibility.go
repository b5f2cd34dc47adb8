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

// capped returns the exportTo of a ServiceEntry, restricted by serviceEntryVisibility in the mesh configuration.
// Without applyToSidecars it returns exportTo unchanged. It never extends exportTo. Policies match the labels of the
// Namespace in the entry's own source and cluster (istio.io/api mesh/v1alpha1/config.proto, ServiceEntryVisibility).
func capped(r *report, obj *object.Object, exportTo []string, ctx Lookup) []string {
	r.mesh = true // the result depends on the mesh configuration
	settings := ctx.Mesh().GetServiceEntryVisibility()
	if !settings.GetApplyToSidecars() {
		return exportTo
	}
	var of labels.Set // labels of the entry's namespace
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

// visibilityFor returns the visibility of the first policy whose rules all match the labels of a namespace. If there
// is no such policy, it returns the default visibility.
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

// ruleSelector returns the selector of a rule for namespaces. It returns an error for an invalid selector. As in
// Istio, a policy with an invalid selector matches no namespace.
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

// checkVisibility warns if serviceEntryVisibility lacks applyToSidecars, because the settings then have an effect in
// ambient mode only. With applyToSidecars, it warns of each rule with an invalid selector.
func checkVisibility(r *report, settings *meshv1.ServiceEntryVisibility) {
	const at = "data.mesh.serviceEntryVisibility"
	if settings == nil {
		return
	}
	if !settings.GetApplyToSidecars() {
		r.warnf(problem.NoEffect, at+".applyToSidecars", "is not set: for sidecars, only the exportTo of each ServiceEntry counts")
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
