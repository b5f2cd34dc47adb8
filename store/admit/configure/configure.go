// Package configure decides what the webhook configurations of a mesh should contain: which configurations of a cluster are the mesh's, the
// roots by which the API server verifies the webhook's server (caBundle), and whether objects are refused while a webhook does not answer
// (failurePolicy). Pure.
//
// Owns: nothing.  Reads: ValidatingWebhookConfigurations and MutatingWebhookConfigurations as they are.  Never: makes or deletes one; changes
// rules, selectors, or where a webhook is; sets a failurePolicy back to Ignore; has one refuse that warns only; knows a client.
package configure

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"navarch.io/navarch/store/status"
)

// Mesh is whose configurations are looked for.
type Mesh struct {
	Namespace string // of the control plane
	Revision  string // this process's; empty: default
	Roots     []*x509.Certificate
}

// Managed says whether a configuration is one of the mesh's: that of this revision, or of a tag that stands for it; and of another revision
// whose webhooks are in the namespace of the control plane, if the API server verifies them by one of the mesh's roots already.
func (m Mesh) Managed(u *unstructured.Unstructured) bool {
	revision := u.GetLabels()[status.RevisionLabel]
	own := revision == m.Revision || revision == "default" && m.Revision == ""
	for _, w := range webhooks(u) {
		switch {
		case !ours(w, m.Namespace):
		case own, slices.ContainsFunc(Bundle(w), m.has):
			return true
		}
	}
	return false
}

func (m Mesh) has(root *x509.Certificate) bool {
	return slices.ContainsFunc(m.Roots, root.Equal)
}

// webhooks are the entries of a configuration; they belong to it.
func webhooks(u *unstructured.Unstructured) (all []map[string]any) {
	list, _, _ := unstructured.NestedSlice(u.Object, "webhooks") // a copy; what is no list has none
	for _, one := range list {
		if w, is := one.(map[string]any); is {
			all = append(all, w)
		}
	}
	return all
}

// ours says whether a webhook is a Service of the namespace, or a URL: an address of a control plane outside the cluster.
func ours(w map[string]any, namespace string) bool {
	of, _, _ := unstructured.NestedString(w, "clientConfig", "service", "namespace")
	url, _, _ := unstructured.NestedString(w, "clientConfig", "url")
	return of == namespace || url != ""
}

// Bundle is the roots by which the API server verifies a webhook, as far as they can be read.
func Bundle(webhook map[string]any) (roots []*x509.Certificate) {
	text, _, _ := unstructured.NestedString(webhook, "clientConfig", "caBundle")
	raw, err := base64.StdEncoding.DecodeString(text)
	for err == nil {
		var block *pem.Block
		if block, raw = pem.Decode(raw); block == nil {
			break
		}
		if root, err := x509.ParseCertificate(block.Bytes); err == nil {
			roots = append(roots, root)
		}
	}
	return roots
}

// Has says whether every webhook of the namespace is verified by exactly this caBundle (base64).
func (m Mesh) Has(u *unstructured.Unstructured, bundle string) bool {
	return !slices.ContainsFunc(webhooks(u), func(w map[string]any) bool {
		of, _, _ := unstructured.NestedString(w, "clientConfig", "caBundle")
		return ours(w, m.Namespace) && of != bundle
	})
}

// Names are those of a configuration's webhooks, by which API servers name them in errors.
func Names(u *unstructured.Unstructured) (all []string) {
	for _, w := range webhooks(u) {
		if name, is := w["name"].(string); is {
			all = append(all, name)
		}
	}
	return all
}

// Selected are labels by which the first webhook of a configuration selects objects: of those that must be there, one of the values.
func Selected(u *unstructured.Unstructured) map[string]string {
	labels := map[string]string{}
	for _, w := range webhooks(u)[:min(1, len(webhooks(u)))] {
		must, _, _ := unstructured.NestedStringMap(w, "objectSelector", "matchLabels")
		maps.Copy(labels, must)
		list, _, _ := unstructured.NestedSlice(w, "objectSelector", "matchExpressions")
		for _, one := range list {
			e, _ := one.(map[string]any)
			key, _, _ := unstructured.NestedString(e, "key")
			values, _, _ := unstructured.NestedStringSlice(e, "values")
			if e["operator"] == "In" && len(values) > 0 {
				labels[key] = values[0]
			}
		}
	}
	return labels
}

// WarnsOnly says whether a webhook of a name refuses nothing, as that for kinds of the Gateway API: objects that other implementations act on, too, are never
// held up by it, so its failurePolicy stays Ignore.
func WarnsOnly(name string) bool { return strings.HasPrefix(name, "gateway-api.") }

// mayFail says whether a webhook may refuse while it does not answer.
func mayFail(w map[string]any) bool {
	name, _ := w["name"].(string)
	return !WarnsOnly(name)
}

// FailsOpen says whether one of a configuration's webhooks that refuse lets everything pass while it does not answer.
func FailsOpen(u *unstructured.Unstructured) bool {
	return slices.ContainsFunc(webhooks(u), func(w map[string]any) bool { return w["failurePolicy"] == "Ignore" && mayFail(w) })
}

// Wanted is what a configuration should be: every webhook of the namespace is verified by these roots (PEM), and, where fail is true, refuses
// while it does not answer, unless it warns only. What was written is then given up (status.WithoutClaims).
func (m Mesh) Wanted(roots []byte, fail bool) status.Desired[unstructured.Unstructured] {
	return status.Desired[unstructured.Unstructured]{Version: string(roots) + strconv.FormatBool(fail),
		Draw: func(there *unstructured.Unstructured, epoch int64) *unstructured.Unstructured {
			if there == nil {
				return nil
			}
			return m.draw(there, base64.StdEncoding.EncodeToString(roots), fail, epoch)
		}}
}

func (m Mesh) draw(there *unstructured.Unstructured, bundle string, fail bool, epoch int64) *unstructured.Unstructured {
	all, changed := []any{}, false
	for _, w := range webhooks(there) {
		if ours(w, m.Namespace) {
			if was, _, _ := unstructured.NestedString(w, "clientConfig", "caBundle"); was != bundle {
				changed = unstructured.SetNestedField(w, bundle, "clientConfig", "caBundle") == nil || changed
			}
			if fail && w["failurePolicy"] != "Fail" && mayFail(w) {
				w["failurePolicy"], changed = "Fail", true
			}
		}
		all = append(all, w)
	}
	if !changed {
		return status.WithoutClaims(there)
	}
	next := there.DeepCopy()
	next.SetManagedFields(nil) // as they are
	next.Object["webhooks"] = all
	annotations := next.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[status.EpochAnnotation] = strconv.FormatInt(epoch, 10)
	next.SetAnnotations(annotations)
	return next
}

// ErrUnwritten is why a webhook is not believed whose configuration has none of the mesh's roots: they are still to be written.
var ErrUnwritten = errors.New("none of the mesh's roots is written yet (caBundle)")

// Trusts says why an API server with this configuration would not believe a webhook that presents a certificate; nil: it would. Errors are ErrUnwritten, and
// those of verifying the certificate.
func (m Mesh) Trusts(u *unstructured.Unstructured, presented *tls.Certificate, now time.Time) error {
	if presented.Leaf == nil {
		return errors.New("the certificate was not read")
	}
	between := x509.NewCertPool()
	for _, der := range presented.Certificate[1:] {
		if c, err := x509.ParseCertificate(der); err == nil {
			between.AddCert(c)
		}
	}
	for _, w := range webhooks(u) {
		roots := Bundle(w)
		switch {
		case !ours(w, m.Namespace):
			continue
		case !slices.ContainsFunc(roots, m.has):
			return fmt.Errorf("%s %s: %w", u.GetKind(), u.GetName(), ErrUnwritten)
		}
		pool := x509.NewCertPool()
		for _, root := range roots {
			pool.AddCert(root)
		}
		if _, err := presented.Leaf.Verify(x509.VerifyOptions{Roots: pool, Intermediates: between, CurrentTime: now,
			KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}); err != nil {
			return fmt.Errorf("%s %s does not have the root of this process's certificate (caBundle): %w", u.GetKind(), u.GetName(), err)
		}
	}
	return nil
}
