package preview

import (
	"context"
	"fmt"

	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/meaning"
	"navarch.io/navarch/push/plan"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/normal"
)

// patchRisks returns the risks of the visible EnvoyFilters in a change. A risk is a patch that changes no resource of
// any proxy, or a patch whose outcome depends on the order of EnvoyFilters. A patch of the bootstrap is never reported
// as a patch that changes no resource, because agents apply it. The result is nil without risks, or if ctx ends.
func patchRisks(ctx context.Context, planned *plan.Planner, c mirror.Change, sees Sees) (all []meaning.Risk) {
	filters := map[model.Key]bool{}
	for _, e := range c.Edits {
		if f, is := e.New.(*model.EnvoyFilter); is && sees.of(f.Key.Namespace) {
			filters[f.Key] = true
		}
	}
	if len(filters) == 0 {
		return nil
	}
	counts, err := planned.PatchesUntil(ctx)
	if err != nil {
		return nil
	}
	for _, count := range counts {
		p := count.Patch
		if !filters[p.Filter.Key] {
			continue
		}
		of, object := p.Config(), nameOf(p.Filter.Key)
		risk := meaning.Risk{Level: meaning.Medium, Subject: fmt.Sprintf("%s, configPatches[%d]", object, p.Index), Objects: []string{object}}
		what := fmt.Sprintf("%v of %v", of.GetPatch().GetOperation(), of.GetApplyTo())
		if count.Changed == 0 && of.GetApplyTo() != networkingv1.EnvoyFilter_BOOTSTRAP {
			risk.Code, risk.Text = meaning.PatchWithoutMatch, what+" changes no resource of any proxy"
			all = append(all, risk)
		}
		if p.Filter.Spec.GetPriority() == 0 && normal.RelativePatch(of) {
			risk.Code = meaning.PatchRelative
			risk.Text = what + " without spec.priority: its outcome depends on the filters that older EnvoyFilters have added"
			all = append(all, risk)
		}
	}
	return all
}
