//go:build kube

package chart

import (
	"slices"
	"strings"
	"testing"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// The Pods of each Deployment, and etcd's members, are spread evenly over nodes and zones. One at a time is evicted, by
// a budget for these Pods only.
func TestKubeChartSpreads(t *testing.T) {
	t.Parallel()
	for scene, text := range scenes(t) {
		pods := podsOf(t, text)
		for of, template := range pods {
			kind, name, _ := strings.Cut(of, " ")
			if kind != "Deployment" && kind != "StatefulSet" {
				continue
			}
			selects := func(s *metav1.LabelSelector, other string) bool {
				selector, err := metav1.LabelSelectorAsSelector(s)
				return err == nil && selector.Matches(labels.Set(pods[other].Labels))
			}
			budget := &policyv1.PodDisruptionBudget{}
			object(t, text, "PodDisruptionBudget", name, budget)
			if budget.Spec.MaxUnavailable.String() != "1" {
				t.Errorf("%s: %s: at most %s Pods are evicted at once", scene, of, budget.Spec.MaxUnavailable)
			}
			for other := range pods {
				if selects(budget.Spec.Selector, other) != (other == of) {
					t.Errorf("%s: the budget of %s is not for its Pods alone: %s", scene, of, other)
				}
			}
			var over []string
			for _, c := range template.Spec.TopologySpreadConstraints {
				if over = append(over, c.TopologyKey); !selects(c.LabelSelector, of) || c.MaxSkew != 1 {
					t.Errorf("%s: %s: %+v", scene, of, c)
				}
			}
			if slices.Sort(over); !slices.Equal(over, []string{"kubernetes.io/hostname", "topology.kubernetes.io/zone"}) {
				t.Errorf("%s: %s is spread over %q", scene, of, over)
			}
		}
	}
}
