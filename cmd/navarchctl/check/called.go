package check

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"istio.io/api/annotation"
	"istio.io/api/label"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"navarch.io/navarch/cmd/navarchctl/hooks"
	"navarch.io/navarch/store/admit/configure"
	"navarch.io/navarch/store/admit/inject"
	"navarch.io/navarch/store/admit/validate"
	"navarch.io/navarch/store/apiserver"
)

// called tests by dry runs whether the API server can call the webhooks of each configuration. For a validating
// configuration it creates a Gateway that the webhook refuses. For a mutating one it creates a Pod to which the webhook
// adds a proxy. The dry runs also test the network between the API server and the replicas.
func (k *checker) called(ctx context.Context, all []hook) {
	var seen []string
	for _, h := range all {
		path := h.of.Path()
		if slices.Contains(seen, path) || h.of.Kind == hooks.Validating && configure.WarnsOnly(h.Name) {
			continue
		}
		seen = append(seen, path)
		check := NameWebhookCalls.of("API server to " + h.of.Kind + " " + h.of.Meta.Name)
		var found string
		var err error
		if h.of.Kind == hooks.Validating {
			found, err = k.refuses(ctx, path)
		} else {
			found, err = k.injects(ctx, path)
		}
		var no *notCalled
		switch {
		case err == nil:
			k.add(check, OK, found, "")
		case errors.As(err, &no):
			k.add(check, Failure, err.Error(),
				"see whether the API server reaches the Pods: NetworkPolicies, firewalls between it and the nodes, port 15017")
		default:
			k.add(check, Unknown, "the dry run failed: "+err.Error(), "")
		}
	}
}

// notCalled is the error of a dry run in which the API server did not call the webhook, or got no answer from it.
type notCalled struct{ why string }

// Error implements error.
func (n *notCalled) Error() string { return n.why }

// attempt creates an object by a dry run, and decodes the response into the value to which the argument into points.
// The argument webhooks has the names of the webhooks that should be called. The result refused is true if one of them
// denied the object. A denial is not an error. The error is *notCalled if the API server could not call one of these
// webhooks. Other errors are those of the API server.
func (k *checker) attempt(ctx context.Context, path string, object, into any, webhooks []string) (refused bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err = k.API.Do(ctx, http.MethodPost, path+"?dryRun=All", object, into)
	var no *apiserver.Status
	if !errors.As(err, &no) {
		return false, err
	}
	for _, name := range webhooks {
		switch {
		case strings.Contains(no.Message, fmt.Sprintf("admission webhook %q denied the request", name)):
			return true, nil
		case strings.Contains(no.Message, fmt.Sprintf("failed calling webhook %q", name)):
			return false, &notCalled{no.Message}
		}
	}
	return false, err
}

// refuses tests the ValidatingWebhookConfiguration at path. If the test succeeds, the result named found describes it.
// The error is *notCalled if the webhook was not called. Other errors are those of the API server.
func (k *checker) refuses(ctx context.Context, path string) (found string, err error) {
	of := &unstructured.Unstructured{}
	if err := k.get(ctx, path, &of.Object); err != nil {
		return "", err
	}
	gateways := "/apis/networking.istio.io/v1beta1/namespaces/" + url.PathEscape(k.Namespace) + "/gateways"
	refused, err := k.attempt(ctx, gateways, validate.RefusedGateway(k.Namespace, configure.Selected(of)), nil, configure.Names(of))
	if err == nil && !refused {
		err = &notCalled{"the API server accepted an object that the webhook would refuse, so the webhook was not called"}
	}
	return "the webhook refused a dry run, as it should", err
}

// injects tests the MutatingWebhookConfiguration at path. If the test succeeds, the result named found describes it.
// The error is *notCalled if the webhook was not called. Other errors: the webhook selects no Pod (selected) or refused
// the Pod, or the API server fails.
func (k *checker) injects(ctx context.Context, path string) (found string, err error) {
	var of admissionregistrationv1.MutatingWebhookConfiguration
	if err := k.get(ctx, path, &of); err != nil {
		return "", err
	}
	namespace, labels, err := k.selected(ctx, &of)
	if err != nil {
		return "", err
	}
	var names []string
	for _, w := range of.Webhooks {
		names = append(names, w.Name)
	}
	pod := &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: "navarchctl-check", Namespace: namespace, Labels: labels},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "check", Image: "navarchctl-check"}}}}
	refused, err := k.attempt(ctx, "/api/v1/namespaces/"+url.PathEscape(namespace)+"/pods", pod, pod, names)
	var no *apiserver.Status
	switch {
	case errors.As(err, &no) && strings.Contains(no.Message, `"istio-`): // Pod security names the injected containers
		return "a dry run of a Pod in namespace " + namespace + " added a proxy, whose containers the namespace's Pod security forbids", nil
	case err != nil:
		return "", err
	case refused:
		return "", errors.New("the injection webhook was called, and refused the Pod")
	case pod.Annotations[annotation.SidecarStatus.Name] == "":
		return "", &notCalled{"a dry run of a Pod added no proxy, so the webhook was not called"}
	}
	return "a dry run of a Pod in namespace " + namespace + " added a proxy", nil
}

// selected returns a namespace, and labels for a Pod in it that one of the webhooks selects. It tries the control
// plane's namespace and "default". Errors: the webhooks select no Pod in either namespace, or a namespace cannot be
// read.
func (k *checker) selected(ctx context.Context, of *admissionregistrationv1.MutatingWebhookConfiguration) (namespace string,
	pod map[string]string, err error) {
	revision := cmp.Or(of.Labels[label.IoIstioTag.Name], of.Labels[label.IoIstioRev.Name])
	for _, name := range []string{k.Namespace, corev1.NamespaceDefault} {
		var in corev1.Namespace
		if err := k.get(ctx, "/api/v1/namespaces/"+url.PathEscape(name), &in); err != nil {
			return "", nil, err
		}
		for _, labels := range []map[string]string{{label.SidecarInject.Name: "true"},
			{label.SidecarInject.Name: "true", label.IoIstioRev.Name: revision}} {
			for i := range of.Webhooks {
				if is, _ := inject.Selects(&of.Webhooks[i], in.Labels, labels); is {
					return name, labels, nil
				}
			}
		}
	}
	return "", nil, fmt.Errorf("it selects no Pod in namespaces %s and %s", k.Namespace, corev1.NamespaceDefault)
}
