// Package tags manages revision tags. A tag is an additional name of a revision, which labels of namespaces and Pods
// can use. It is stored as a MutatingWebhookConfiguration with Istio's names, labels and selectors, so that istioctl
// tag and navarchctl tag see each other's tags.
//
// Owns: the content of a tag's configuration, and the changes to set or remove one.
// Reads: the cluster's webhook configurations and namespaces.
// Never: writes a caBundle that it did not read from the cluster; changes the configuration of a revision, except to
// disable that of the revision "default".
package tags

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"

	"istio.io/api/label"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"navarch.io/navarch/store/admit/inject"
	"navarch.io/navarch/store/apiserver"
)

const (
	mutating   = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
	validating = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"

	// defaultTag is the tag for namespaces with istio-injection=enabled, and for objects without a revision.
	defaultTag = "default"
	// defaultValidator is the configuration of the webhook that validates objects without a revision.
	defaultValidator = "istiod-default-validator"
	// deactivated is a label that no object has. A selector for this label disables a webhook configuration, as in
	// istioctl.
	deactivated      = "istio.io/deactivated"
	deactivatedValue = "never-match"
)

// Tag is an existing tag.
type Tag struct {
	Name       string   `json:"tag"`
	Revision   string   `json:"revision"`      // revision that the tag points at
	Namespaces []string `json:"namespaces"`    // names of namespaces whose labels choose the tag; not nil
	Of         string   `json:"configuration"` // name of the MutatingWebhookConfiguration
}

// Tags manages the tags of a cluster. It is safe for concurrent use, but two concurrent changes of a tag may conflict.
type Tags struct {
	API       *apiserver.Client // client of the cluster's API server; never nil
	Namespace string            // namespace of the control plane
}

// check validates the name of a tag, which is the value of a label.
func check(name string) error {
	if problems := validation.IsDNS1123Label(name); len(problems) > 0 {
		return fmt.Errorf("tag %q: %s", name, problems[0])
	}
	return nil
}

// List returns all tags, sorted by name. A tag with several configurations occurs once for each. Without tags the
// result is empty, not nil. Errors are the API server's. With an error the result is nil.
func (t Tags) List(ctx context.Context) ([]Tag, error) {
	all, err := t.configurations(ctx)
	if err != nil {
		return nil, err
	}
	var namespaces []metav1.PartialObjectMetadata
	if err := t.API.Each(ctx, "/api/v1/namespaces", func(raw json.RawMessage) error {
		var n metav1.PartialObjectMetadata
		err := json.Unmarshal(raw, &n)
		namespaces = append(namespaces, n)
		return err
	}); err != nil {
		return nil, fmt.Errorf("namespaces: %w", err)
	}
	tags := []Tag{}
	for _, c := range all {
		name := c.Labels[label.IoIstioTag.Name]
		if name == "" {
			continue
		}
		tag := Tag{Name: name, Revision: c.Labels[label.IoIstioRev.Name], Of: c.Name, Namespaces: []string{}}
		for _, n := range namespaces {
			if chooses(n.Labels, name) {
				tag.Namespaces = append(tag.Namespaces, n.Name)
			}
		}
		tags = append(tags, tag)
	}
	slices.SortFunc(tags, func(a, b Tag) int { return cmp.Compare(a.Name, b.Name) })
	return tags, nil
}

// chooses reports whether a tag injects the Pods of a namespace with these labels. The label istio-injection takes
// precedence over the label istio.io/rev.
func chooses(labels map[string]string, tag string) bool {
	if said, is := labels["istio-injection"]; is {
		return said == "enabled" && tag == defaultTag
	}
	return labels[label.IoIstioRev.Name] == tag
}

// configurations returns the injection configurations of all revisions and tags.
func (t Tags) configurations(ctx context.Context) ([]admissionregistrationv1.MutatingWebhookConfiguration, error) {
	var all admissionregistrationv1.MutatingWebhookConfigurationList
	if err := t.API.Do(ctx, http.MethodGet, mutating+"?labelSelector="+url.QueryEscape(label.IoIstioRev.Name), nil, &all); err != nil {
		return nil, fmt.Errorf("MutatingWebhookConfigurations: %w", err)
	}
	return all.Items, nil
}

// Change contains the requests that set or remove a tag. Apply sends them in the order of the fields.
type Change struct {
	Make   []any    // the tag's configuration; Apply replaces the version in its resourceVersion, or creates it without a resourceVersion
	Edit   []any    // other webhook configurations in their target state, each with a resourceVersion
	Delete []string // names of MutatingWebhookConfigurations
}

// Generate returns the configuration of a tag. It has the address and the CA bundle of the revision's webhook, and the
// tag's selectors. Generate changes nothing in the cluster. It fails if the tag's name is invalid, if the revision has
// no configuration with a webhook, or if the API server fails.
func (t Tags) Generate(ctx context.Context, tag, revision string) (*admissionregistrationv1.MutatingWebhookConfiguration, error) {
	all, err := t.configurations(ctx)
	if err != nil {
		return nil, err
	}
	return t.generate(all, tag, revision)
}

func (t Tags) generate(all []admissionregistrationv1.MutatingWebhookConfiguration,
	tag, revision string) (*admissionregistrationv1.MutatingWebhookConfiguration, error) {
	if err := check(tag); err != nil {
		return nil, err
	}
	i := slices.IndexFunc(all, func(c admissionregistrationv1.MutatingWebhookConfiguration) bool {
		return c.Labels[label.IoIstioRev.Name] == revision && c.Labels[label.IoIstioTag.Name] == "" && len(c.Webhooks) > 0
	})
	if i < 0 {
		return nil, fmt.Errorf("revision %q has no MutatingWebhookConfiguration (label %s): install its control plane first",
			revision, label.IoIstioRev.Name)
	}
	of := all[i].Webhooks[0].ClientConfig
	w := inject.Webhooks{Namespace: t.Namespace, Revision: revision, Tag: tag, CABundle: of.CABundle}
	made := w.Configuration()
	for j := range made.Webhooks { // the Service of the revision may have another name
		made.Webhooks[j].ClientConfig = of
	}
	return made, nil
}

// Set returns the change that points a tag at a revision, without applying it. The change replaces the tag's existing
// configuration, and deletes configurations of the tag that have another name.
//
// For the tag "default", the change also disables the webhook of the revision named "default". If the validating
// webhook for objects without a revision exists, the change points it at the Service of the tag's revision.
//
// Set fails if the tag points at another revision and overwrite is false. It also fails if a revision has the tag's
// name, except for "default". Other errors are those of Generate.
func (t Tags) Set(ctx context.Context, tag, revision string, overwrite bool) (*Change, error) {
	all, err := t.configurations(ctx)
	if err != nil {
		return nil, err
	}
	made, err := t.generate(all, tag, revision)
	if err != nil {
		return nil, err
	}
	change := &Change{}
	for i := range all {
		c := &all[i]
		of, is := c.Labels[label.IoIstioRev.Name], c.Labels[label.IoIstioTag.Name]
		switch {
		case is == tag && of != revision && !overwrite:
			return nil, fmt.Errorf("tag %s stands for revision %s (--overwrite changes that)", tag, of)
		case is == tag && c.Name != made.Name:
			change.Delete = append(change.Delete, c.Name) // made under another name
		case is == tag:
			keep(made, c)
		case is == "" && of == tag && tag != defaultTag:
			return nil, fmt.Errorf("%s is a revision: both would inject the same Pods", tag)
		case is == "" && of == tag: // the default revision's webhook is disabled, even if the tag points at it, as with istioctl
			change.Edit = append(change.Edit, off(c))
		}
	}
	change.Make = append(change.Make, made)
	if tag == defaultTag {
		validator, err := t.validator(ctx, made)
		if err != nil {
			return nil, err
		}
		if validator != nil {
			change.Edit = append(change.Edit, validator)
		}
	}
	return change, nil
}

// keep copies the resourceVersion, the annotations and the foreign labels of an existing configuration (the second
// argument) to the configuration that will replace it (the first argument).
func keep(made, there *admissionregistrationv1.MutatingWebhookConfiguration) {
	made.ResourceVersion, made.Annotations = there.ResourceVersion, there.Annotations
	for name, value := range there.Labels {
		if _, own := made.Labels[name]; !own {
			made.Labels[name] = value
		}
	}
}

// off returns a copy of a configuration, changed so that the copy selects no Pod.
func off(c *admissionregistrationv1.MutatingWebhookConfiguration) *admissionregistrationv1.MutatingWebhookConfiguration {
	c = c.DeepCopy()
	c.TypeMeta = metav1.TypeMeta{APIVersion: "admissionregistration.k8s.io/v1", Kind: "MutatingWebhookConfiguration"}
	for i := range c.Webhooks {
		never := &metav1.LabelSelector{MatchLabels: map[string]string{deactivated: deactivatedValue}}
		c.Webhooks[i].NamespaceSelector, c.Webhooks[i].ObjectSelector = never, never.DeepCopy()
	}
	return c
}

// validator returns the configuration defaultValidator, changed to call the Service of made. It returns nil if
// defaultValidator does not exist, needs no change, or if made has no Service.
func (t Tags) validator(ctx context.Context, made *admissionregistrationv1.MutatingWebhookConfiguration) (any, error) {
	var c admissionregistrationv1.ValidatingWebhookConfiguration
	err := t.API.Do(ctx, http.MethodGet, validating+"/"+defaultValidator, nil, &c)
	if apiserver.IsStatus(err, http.StatusNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("ValidatingWebhookConfiguration %s: %w", defaultValidator, err)
	}
	to := made.Webhooks[0].ClientConfig
	if to.Service == nil {
		return nil, nil // the webhook is at a URL; the validator's URL is unknown
	}
	changed := false
	for i := range c.Webhooks {
		if s := c.Webhooks[i].ClientConfig.Service; s != nil && (s.Name != to.Service.Name || s.Namespace != to.Service.Namespace) {
			s.Name, s.Namespace, changed = to.Service.Name, to.Service.Namespace, true
			c.Webhooks[i].ClientConfig.CABundle = to.CABundle
		}
	}
	if !changed {
		return nil, nil
	}
	c.TypeMeta = metav1.TypeMeta{APIVersion: "admissionregistration.k8s.io/v1", Kind: "ValidatingWebhookConfiguration"}
	metav1.SetMetaDataLabel(&c.ObjectMeta, label.IoIstioRev.Name, made.Labels[label.IoIstioRev.Name])
	return &c, nil
}

// Remove returns the change that removes a tag, without applying it. The change does not enable the default revision's
// webhook again. Errors: the tag does not exist, or those of the API server.
func (t Tags) Remove(ctx context.Context, tag string) (*Change, error) {
	all, err := t.configurations(ctx)
	if err != nil {
		return nil, err
	}
	change := &Change{}
	for _, c := range all {
		if c.Labels[label.IoIstioTag.Name] == tag {
			change.Delete = append(change.Delete, c.Name)
		}
	}
	if len(change.Delete) == 0 {
		return nil, fmt.Errorf("there is no tag %s", tag)
	}
	return change, nil
}

// Apply sends the requests of a change. It writes configurations before it deletes others, so that every Pod gets its
// proxy meanwhile. It stops at the first error, which is the API server's. A configuration to delete may be missing.
// After an error, retry with a new change from Set or Remove, because the requests that succeeded would conflict.
func (t Tags) Apply(ctx context.Context, c *Change) error {
	for _, one := range slices.Concat(c.Make, c.Edit) {
		if err := t.put(ctx, one); err != nil {
			return err
		}
	}
	for _, name := range c.Delete {
		if err := t.API.Do(ctx, http.MethodDelete, mutating+"/"+url.PathEscape(name), nil, nil); err != nil &&
			!apiserver.IsStatus(err, http.StatusNotFound) {
			return fmt.Errorf("MutatingWebhookConfiguration %s: %w", name, err)
		}
	}
	return nil
}

// put creates a configuration, or replaces the version that its resourceVersion names.
func (t Tags) put(ctx context.Context, one any) error {
	object, path := one.(metav1.Object), mutating
	if _, is := one.(*admissionregistrationv1.ValidatingWebhookConfiguration); is {
		path = validating
	}
	method := http.MethodPost
	if object.GetResourceVersion() != "" {
		method, path = http.MethodPut, path+"/"+url.PathEscape(object.GetName())
	}
	if err := t.API.Do(ctx, method, path, one, nil); err != nil {
		return fmt.Errorf("webhook configuration %s: %w", object.GetName(), err)
	}
	return nil
}
