// Package hooks lists the mutating and validating webhook configurations of a Kubernetes cluster that have a revision
// (label istio.io/rev). Both kinds have the same Go type, Configuration.
//
// Owns: nothing.
// Reads: the API server.
// Never: changes a configuration.
package hooks

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"

	"istio.io/api/label"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"navarch.io/navarch/store/apiserver"
)

// Kinds of configurations.
const (
	Mutating   = "MutatingWebhookConfiguration"
	Validating = "ValidatingWebhookConfiguration"
)

const admission = "/apis/admissionregistration.k8s.io/v1/"

var paths = map[string]string{Mutating: admission + "mutatingwebhookconfigurations",
	Validating: admission + "validatingwebhookconfigurations"}

// Configuration is one MutatingWebhookConfiguration or ValidatingWebhookConfiguration.
type Configuration struct {
	// Kind is Mutating or Validating.
	Kind     string
	Meta     metav1.ObjectMeta
	Webhooks []Webhook // in the order of the configuration; may be nil
}

// Webhook is one webhook of a configuration.
type Webhook struct {
	Name   string
	Client admissionregistrationv1.WebhookClientConfig // the Service or URL that the API server calls, and its CA
	// Ignores is true for the failurePolicy Ignore: requests pass while the webhook does not answer. It is false
	// without a failurePolicy, because the API server's default is Fail.
	Ignores bool
}

// Path returns the URL path of the configuration at the API server. c.Kind must be Mutating or Validating.
func (c Configuration) Path() string { return paths[c.Kind] + "/" + url.PathEscape(c.Meta.Name) }

// Revision returns the value of the label istio.io/rev, or "" if the configuration lacks the label.
func (c Configuration) Revision() string { return c.Meta.Labels[label.IoIstioRev.Name] }

// LeadsTo reports whether the API server calls the webhook at a Service of the namespace. It is false for a webhook
// with a URL.
func (w Webhook) LeadsTo(namespace string) bool {
	return w.Client.Service != nil && w.Client.Service.Namespace == namespace
}

// OfRevisions lists the configurations of a cluster whose Revision is not empty. Mutating configurations precede
// validating configurations. Each kind is in the API server's order. The result may be empty. Errors are those of
// apiserver.Client.Do, and name the kind.
func OfRevisions(ctx context.Context, api *apiserver.Client) (all []Configuration, err error) {
	var mutating admissionregistrationv1.MutatingWebhookConfigurationList
	if err := list(ctx, api, Mutating, &mutating); err != nil {
		return nil, err
	}
	for _, m := range mutating.Items {
		c := Configuration{Kind: Mutating, Meta: m.ObjectMeta}
		for _, w := range m.Webhooks {
			c.Webhooks = append(c.Webhooks, Webhook{w.Name, w.ClientConfig, ignores(w.FailurePolicy)})
		}
		all = append(all, c)
	}
	var validating admissionregistrationv1.ValidatingWebhookConfigurationList
	if err := list(ctx, api, Validating, &validating); err != nil {
		return nil, err
	}
	for _, v := range validating.Items {
		c := Configuration{Kind: Validating, Meta: v.ObjectMeta}
		for _, w := range v.Webhooks {
			c.Webhooks = append(c.Webhooks, Webhook{w.Name, w.ClientConfig, ignores(w.FailurePolicy)})
		}
		all = append(all, c)
	}
	return slices.DeleteFunc(all, func(c Configuration) bool { return c.Revision() == "" }), nil
}

func list(ctx context.Context, api *apiserver.Client, kind string, into any) error {
	if err := api.Do(ctx, http.MethodGet, paths[kind]+"?labelSelector="+url.QueryEscape(label.IoIstioRev.Name), nil, into); err != nil {
		return fmt.Errorf("%ss: %w", kind, err)
	}
	return nil
}

func ignores(p *admissionregistrationv1.FailurePolicyType) bool {
	return p != nil && *p == admissionregistrationv1.Ignore
}
