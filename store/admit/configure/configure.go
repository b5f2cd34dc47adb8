// Package configure decides the content of a mesh's webhook configurations: which configurations of a cluster belong to
// the mesh, the roots by which the API server verifies the webhook's server (caBundle), and whether objects are refused
// while a webhook does not answer (failurePolicy). It is pure.
//
// Owns: nothing. Reads: existing ValidatingWebhookConfigurations and MutatingWebhookConfigurations. Never: creates or
// deletes one; changes rules, selectors or addresses of a webhook; sets a failurePolicy back to Ignore; lets a webhook
// that only warns refuse; uses a client.
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

// Mesh identifies the mesh whose configurations are managed.
type Mesh struct {
	Namespace string // of the control plane
	Revision  string // of this process; empty: default
	Roots     []*x509.Certificate
}

// Managed reports whether a configuration belongs to the mesh. It does if it is of this revision or of a tag that
// stands for it. A configuration of another revision belongs to the mesh if its webhooks are in the control plane's
// namespace and the API server verifies them by one of the mesh's roots already.
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

// webhooks returns the entries of a configuration. They share memory with it.
func webhooks(u *unstructured.Unstructured) (all []map[string]any) {
	list, _, _ := unstructured.NestedSlice(u.Object, "webhooks") // a copy; a malformed field counts as empty
	for _, one := range list {
		if w, is := one.(map[string]any); is {
			all = append(all, w)
		}
	}
	return all
}

// ours reports whether a webhook is a Service of the namespace or a URL. A URL is the address of a control plane
// outside the cluster.
func ours(w map[string]any, namespace string) bool {
	of, _, _ := unstructured.NestedString(w, "clientConfig", "service", "namespace")
	url, _, _ := unstructured.NestedString(w, "clientConfig", "url")
	return of == namespace || url != ""
}

// Bundle returns the roots by which the API server verifies a webhook. Unreadable parts are left out.
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

// Has reports whether every webhook of the namespace is verified by exactly this caBundle (base64).
func (m Mesh) Has(u *unstructured.Unstructured, bundle string) bool {
	return !slices.ContainsFunc(webhooks(u), func(w map[string]any) bool {
		of, _, _ := unstructured.NestedString(w, "clientConfig", "caBundle")
		return ours(w, m.Namespace) && of != bundle
	})
}

// Names returns the names of a configuration's webhooks, which API servers use in errors.
func Names(u *unstructured.Unstructured) (all []string) {
	for _, w := range webhooks(u) {
		if name, is := w["name"].(string); is {
			all = append(all, name)
		}
	}
	return all
}

// Selected returns labels that the first webhook of a configuration selects, with one of the possible values for each.
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

// WarnsOnly reports whether the webhook of a name never refuses objects, such as the one for kinds of the Gateway API.
// Other implementations act on such objects too, so the webhook must not hold them up, and its failurePolicy stays
// Ignore.
func WarnsOnly(name string) bool { return strings.HasPrefix(name, "gateway-api.") }

// mayFail reports whether a webhook may refuse objects while it does not answer.
func mayFail(w map[string]any) bool {
	name, _ := w["name"].(string)
	return !WarnsOnly(name)
}

// FailsOpen reports whether one of a configuration's refusing webhooks admits everything while it does not answer.
func FailsOpen(u *unstructured.Unstructured) bool {
	return slices.ContainsFunc(webhooks(u), func(w map[string]any) bool { return w["failurePolicy"] == "Ignore" && mayFail(w) })
}

// Wanted returns the target state of a configuration. Every webhook of the namespace is verified by these roots (PEM),
// and with fail refuses objects while it does not answer, unless it only warns. After the write navarchd gives up its
// field ownership (status.WithoutClaims).
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
	next.SetManagedFields(nil) // leave them unchanged
	next.Object["webhooks"] = all
	annotations := next.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[status.EpochAnnotation] = strconv.FormatInt(epoch, 10)
	next.SetAnnotations(annotations)
	return next
}

// ErrUnwritten means that a configuration lacks the mesh's roots, which are still to be written.
var ErrUnwritten = errors.New("none of the mesh's roots is written yet (caBundle)")

// Trusts returns why an API server with this configuration would reject a webhook that presents a certificate; nil if
// it would accept it. Errors are ErrUnwritten, and those of verifying the certificate.
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
