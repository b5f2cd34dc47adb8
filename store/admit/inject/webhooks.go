package inject

import (
	"cmp"
	"fmt"
	"strings"

	"istio.io/api/label"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

const (
	namespaceLabel = "istio-injection"
	webhookApp     = "sidecar-injector" // label app of the configurations
)

// Webhooks are the parameters of one MutatingWebhookConfiguration.
type Webhooks struct {
	Namespace string // of the control plane
	Revision  string // the revision whose Service answers; empty or default: the default revision
	Tag       string // revision tag, a second name of the revision; empty: the configuration is the revision's own
	Path      string // /inject or below; empty: /inject
	// Everywhere also selects Pods if neither the Pod nor its namespace has a label for injection. It has an effect
	// only for the Tag default, or without a Tag for the default Revision.
	Everywhere bool
	CABundle   []byte // PEM; empty: API servers verify the webhook with their system roots
}

// service is the name of the default revision's Service.
const service = "istiod"

// NameOf returns the name of a revision's object, such as a Service or a ConfigMap, as in Istio's charts. The parameter
// name is the name of the default revision's object. It is returned unchanged if revision is empty or default.
func NameOf(name, revision string) string {
	if revision == "" || revision == "default" {
		return name
	}
	return name + "-" + revision
}

// Name returns the name of the configuration, as in Istio's charts. It depends on Revision, Tag and Namespace. With a
// Tag, it does not depend on Revision.
func (w Webhooks) Name() string {
	name := NameOf("istio-sidecar-injector", w.Revision)
	if w.Tag != "" {
		name = "istio-revision-tag-" + w.Tag
	}
	if w.Namespace != "istio-system" {
		name += "-" + w.Namespace
	}
	return name
}

// Configuration returns a configuration with the names, labels and selectors of Istio's chart. The caller owns the
// result, but must not change the elements of its slices of bytes and strings. At most one of its webhooks selects a
// Pod. In a namespace with the label istio.io/rev, the only relevant label of Pods is sidecar.istio.io/inject: "false".
// In a namespace with the label istio-injection, labels istio.io/rev of the namespace and of Pods are ignored. If a
// webhook does not answer, API servers reject the Pods that it selects.
func (w Webhooks) Configuration() *admissionregistrationv1.MutatingWebhookConfiguration {
	revision := cmp.Or(w.Tag, w.Revision, "default")
	said, rev, own := namespaceLabel, label.IoIstioRev.Name, label.SidecarInject.Name
	all := []admissionregistrationv1.MutatingWebhook{
		w.webhook("rev.namespace.", []req{in(rev, revision), absent(said)}, []req{notIn(own, "false")}),
		w.webhook("rev.object.", []req{absent(rev), absent(said)}, []req{notIn(own, "false"), in(rev, revision)}),
	}
	if revision == "default" {
		all = append(all,
			w.webhook("namespace.", []req{in(said, "enabled")}, []req{notIn(own, "false")}),
			w.webhook("object.", []req{absent(said), absent(rev)}, []req{in(own, "true"), absent(rev)}))
		if w.Everywhere {
			all = append(all, w.webhook("auto.", []req{absent(said), absent(rev), notIn(corev1.LabelMetadataName, leftOut...)},
				[]req{absent(own), absent(rev)}))
		}
	}
	out := &admissionregistrationv1.MutatingWebhookConfiguration{
		TypeMeta:   metav1.TypeMeta{APIVersion: "admissionregistration.k8s.io/v1", Kind: "MutatingWebhookConfiguration"},
		ObjectMeta: metav1.ObjectMeta{Name: w.Name(), Labels: map[string]string{"app": webhookApp, rev: cmp.Or(w.Revision, "default")}},
		Webhooks:   all,
	}
	if w.Tag != "" {
		out.Labels[label.IoIstioTag.Name] = w.Tag
	}
	return out
}

func (w Webhooks) webhook(prefix string, namespaces, pods []req) admissionregistrationv1.MutatingWebhook {
	path, port := cmp.Or(w.Path, "/inject"), int32(443)
	scope, none, fail, never := admissionregistrationv1.NamespacedScope, admissionregistrationv1.SideEffectClassNone,
		admissionregistrationv1.Fail, admissionregistrationv1.NeverReinvocationPolicy
	return admissionregistrationv1.MutatingWebhook{
		Name: prefix + "sidecar-injector.istio.io",
		ClientConfig: admissionregistrationv1.WebhookClientConfig{CABundle: w.CABundle,
			Service: &admissionregistrationv1.ServiceReference{Namespace: w.Namespace, Name: NameOf(service, w.Revision), Path: &path, Port: &port}},
		Rules: []admissionregistrationv1.RuleWithOperations{{Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
			Rule: admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}, Scope: &scope}}},
		FailurePolicy: &fail, SideEffects: &none, ReinvocationPolicy: &never, AdmissionReviewVersions: []string{"v1"},
		NamespaceSelector: &metav1.LabelSelector{MatchExpressions: namespaces}, ObjectSelector: &metav1.LabelSelector{MatchExpressions: pods},
	}
}

type req = metav1.LabelSelectorRequirement

func in(key string, values ...string) req {
	return req{Key: key, Operator: metav1.LabelSelectorOpIn, Values: values}
}

func notIn(key string, values ...string) req {
	return req{Key: key, Operator: metav1.LabelSelectorOpNotIn, Values: values}
}
func absent(key string) req { return req{Key: key, Operator: metav1.LabelSelectorOpDoesNotExist} }

// Selects reports whether the selectors of a webhook match the labels of a namespace and of a Pod. The text is one
// sentence with the reason, for both results. A nil selector matches everything, and an invalid selector matches
// nothing. Rules and match conditions are not considered.
func Selects(w *admissionregistrationv1.MutatingWebhook, namespace, pod map[string]string) (bool, string) {
	for _, of := range []struct {
		what     string
		selector *metav1.LabelSelector
		set      map[string]string
	}{{"namespace", w.NamespaceSelector, namespace}, {"Pod", w.ObjectSelector, pod}} {
		if of.selector == nil {
			continue
		}
		s, err := metav1.LabelSelectorAsSelector(of.selector)
		if err != nil {
			return false, fmt.Sprintf("The selector of the %s is not valid: %v.", of.what, err)
		}
		requirements, _ := s.Requirements()
		for _, r := range requirements {
			if !r.Matches(labels.Set(of.set)) {
				return false, fmt.Sprintf("The webhook selects %ss %s.", of.what, wanted(r))
			}
		}
	}
	return true, "The labels of the namespace and the Pod match its selectors."
}

// wanted describes the labels that a requirement matches.
func wanted(r labels.Requirement) string {
	values := strings.Join(r.Values().List(), " or ")
	switch r.Operator() {
	case selection.DoesNotExist:
		return "without the label " + r.Key()
	case selection.NotIn:
		return "without the label " + r.Key() + ": " + values
	case selection.Exists:
		return "with the label " + r.Key()
	case selection.In:
		return "with the label " + r.Key() + ": " + values
	default:
		return "with " + r.String()
	}
}
