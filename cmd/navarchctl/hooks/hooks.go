// Package hooks lists the webhook configurations of a cluster: those that mutate and those that validate, in one form.
//
// Owns: that form.  Reads: the API server.  Never: changes a configuration.
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

// The two kinds.
const (
	Mutating   = "MutatingWebhookConfiguration"
	Validating = "ValidatingWebhookConfiguration"
)

const admission = "/apis/admissionregistration.k8s.io/v1/"

var paths = map[string]string{Mutating: admission + "mutatingwebhookconfigurations", Validating: admission + "validatingwebhookconfigurations"}

// Configuration is one object.
type Configuration struct {
	Kind     string
	Meta     metav1.ObjectMeta
	Webhooks []Webhook
}

// Webhook is one of its entries.
type Webhook struct {
	Name   string
	Client admissionregistrationv1.WebhookClientConfig
	// Ignores says that requests pass while nobody answers (failurePolicy Ignore; the API server's default is Fail).
	Ignores bool
}

// Path is where the API server has it.
func (c Configuration) Path() string { return paths[c.Kind] + "/" + url.PathEscape(c.Meta.Name) }

// Revision is the revision of the control plane that it is for; empty: it is not Istio's, nor ours.
func (c Configuration) Revision() string { return c.Meta.Labels[label.IoIstioRev.Name] }

// LeadsTo says whether a Service of the namespace answers it.
func (w Webhook) LeadsTo(namespace string) bool {
	return w.Client.Service != nil && w.Client.Service.Namespace == namespace
}

// OfRevisions are all configurations of a cluster that have a revision: first those that mutate, then those that validate, each in the API
// server's order. Errors are the API server's, with the kind.
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
