package analyze

import (
	"fmt"
	"slices"
	"strings"

	"istio.io/api/label"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"navarch.io/navarch/store/admit/inject"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
)

// webhooks reports injection webhooks that select the same Pods, and injection webhooks that call a Service that does
// not exist.
func webhooks(w *world) {
	w.overlaps()
	if !w.knows("Service") || len(w.byKind[kind{"", "Service"}]) == 0 {
		return
	}
	for _, h := range w.hooks {
		s := h.ClientConfig.Service
		if s != nil && w.byID[object.ID{Origin: h.of.ID.Origin, Kind: "Service", Namespace: s.Namespace, Name: s.Name}] == nil {
			w.found(problem.InvalidWebhook, h.of.ID, fmt.Sprintf("webhooks[%s].clientConfig.service", h.Name),
				"Service %s/%s does not exist: the webhook cannot be called", s.Namespace, s.Name)
		}
	}
}

// overlaps reports webhooks that select the same Pods. It evaluates their selectors for each combination of injection
// labels and revisions on the namespace and the Pod.
func (w *world) overlaps() {
	reported := map[[2]string]bool{}
	revisions := w.revisions()
	for _, space := range combinations(injection, []string{enabled, "disabled"}, revisions) {
		for _, pod := range combinations(label.SidecarInject.Name, []string{"true", "false"}, revisions) {
			var names []string
			of := map[string]hook{}
			for _, h := range w.hooks {
				if yes, _ := inject.Selects(h.MutatingWebhook, space, pod); yes {
					name := h.of.ID.Name + "/" + h.Name
					names, of[name] = append(names, name), h
				}
			}
			for _, name := range names {
				others := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == name })
				if key := [2]string{name, strings.Join(others, ",")}; len(others) > 0 && !reported[key] {
					reported[key] = true
					w.found(problem.InvalidWebhook, of[name].of.ID, fmt.Sprintf("webhooks[%s]", of[name].Name),
						"selects Pods that %s selects too: they are injected twice", some(others))
				}
			}
		}
	}
}

// combinations returns label sets with every combination of two labels. The first label has the key name; it is absent,
// or has one of values. The revision label is absent, or has one of revisions.
func combinations(name string, values, revisions []string) (all []map[string]string) {
	for _, revision := range append([]string{""}, revisions...) {
		for _, value := range append([]string{""}, values...) {
			one := map[string]string{}
			if revision != "" {
				one[label.IoIstioRev.Name] = revision
			}
			if value != "" {
				one[name] = value
			}
			all = append(all, one)
		}
	}
	return all
}

// mostRevisions is the maximum number of revisions that overlaps combines.
const mostRevisions = 20

// revisions returns the revisions in labels and selectors of webhooks: sorted, and at most mostRevisions of them.
func (w *world) revisions() []string {
	all := map[string]bool{}
	for _, h := range w.hooks {
		if revision := h.of.Labels[label.IoIstioRev.Name]; revision != "" {
			all[revision] = true
		}
		for _, s := range []*metav1.LabelSelector{h.NamespaceSelector, h.ObjectSelector} {
			if s == nil {
				continue
			}
			if revision := s.MatchLabels[label.IoIstioRev.Name]; revision != "" {
				all[revision] = true
			}
			for _, r := range s.MatchExpressions {
				for _, v := range r.Values {
					all[v] = all[v] || r.Key == label.IoIstioRev.Name
				}
			}
		}
	}
	names := slices.DeleteFunc(sorted(all), func(name string) bool { return !all[name] })
	return names[:min(len(names), mostRevisions)]
}

// some returns the first five names, and the number of further names.
func some(names []string) string {
	const listed = 5
	text := strings.Join(names[:min(len(names), listed)], ", ")
	if more := len(names) - listed; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
