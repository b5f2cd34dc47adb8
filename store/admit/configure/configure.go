// Package configure decides the content of a mesh's webhook configurations. It decides which webhook configurations of
// a cluster belong to the mesh. It also decides about the roots with which the API server verifies the webhook's server
// (caBundle). A third decision is whether objects are refused while a webhook does not answer (failurePolicy). Its
// functions are pure and safe for concurrent use.
//
// Owns: nothing. Reads: existing ValidatingWebhookConfigurations and MutatingWebhookConfigurations. Never: creates or
// deletes a configuration; changes rules, selectors or addresses of a webhook; sets a failurePolicy back to Ignore;
// sets Fail for a webhook that only warns; uses a client.
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

// Mesh identifies the mesh whose webhook configurations are managed.
type Mesh struct {
	Namespace string              // namespace of the control plane
	Revision  string              // Istio revision of this process; empty for the default revision
	Roots     []*x509.Certificate // the mesh's root certificates
}

// Managed reports whether a configuration belongs to the mesh. One of its webhooks must call a URL, or a Service in the
// control plane's namespace. In addition, the configuration must have the label of this revision, or the caBundle of
// such a webhook must already contain one of the mesh's roots. If Revision is empty, a missing label and the label
// "default" are labels of this revision.
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

// webhooks returns copies of the webhooks in a configuration.
func webhooks(u *unstructured.Unstructured) (all []map[string]any) {
	list, _, _ := unstructured.NestedSlice(u.Object, "webhooks") // a deep copy; if the field is malformed, it is nil
	for _, one := range list {
		if w, is := one.(map[string]any); is {
			all = append(all, w)
		}
	}
	return all
}

// ours reports whether a webhook calls a Service in the namespace, or a URL. A URL is the address of a control plane
// outside the cluster.
func ours(w map[string]any, namespace string) bool {
	of, _, _ := unstructured.NestedString(w, "clientConfig", "service", "namespace")
	url, _, _ := unstructured.NestedString(w, "clientConfig", "url")
	return of == namespace || url != ""
}

// Bundle returns the certificates in the caBundle of a webhook (an element of the list webhooks in a configuration).
// Certificates that do not parse are left out. The result is nil if the caBundle is missing or is not base64.
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

// Has reports whether the mesh's webhooks of a configuration have exactly this caBundle (base64). The mesh's webhooks
// call a Service in the control plane's namespace, or a URL. Without such webhooks the result is true.
func (m Mesh) Has(u *unstructured.Unstructured, bundle string) bool {
	return !slices.ContainsFunc(webhooks(u), func(w map[string]any) bool {
		of, _, _ := unstructured.NestedString(w, "clientConfig", "caBundle")
		return ours(w, m.Namespace) && of != bundle
	})
}

// Names returns the names of a configuration's webhooks, in the order of the configuration. It returns nil without
// webhooks. API servers use these names in errors.
func Names(u *unstructured.Unstructured) (all []string) {
	for _, w := range webhooks(u) {
		if name, is := w["name"].(string); is {
			all = append(all, name)
		}
	}
	return all
}

// Selected returns the labels that the objectSelector of a configuration's first webhook requires. Without such labels
// the map is empty, not nil. For an expression with the operator In, the value is the first of its list. Expressions
// with other operators are ignored.
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

// WarnsOnly reports whether a webhook with this name only warns. The webhook for the Gateway API only warns, because
// other implementations use the same kinds. It must not block their objects, so its failurePolicy stays Ignore.
func WarnsOnly(name string) bool { return strings.HasPrefix(name, "gateway-api.") }

// mayFail reports whether failurePolicy Fail is permitted for a webhook.
func mayFail(w map[string]any) bool {
	name, _ := w["name"].(string)
	return !WarnsOnly(name)
}

// FailsOpen reports whether a configuration has a webhook with failurePolicy Ignore, apart from webhooks that only warn
// (WarnsOnly). With Ignore, all objects are admitted while the webhook does not answer.
func FailsOpen(u *unstructured.Unstructured) bool {
	return slices.ContainsFunc(webhooks(u), func(w map[string]any) bool { return w["failurePolicy"] == "Ignore" && mayFail(w) })
}

// Wanted returns the target state of a configuration. It concerns the webhooks that call a Service in the control
// plane's namespace, or a URL. Their caBundle is roots (PEM). If the parameter fail is true, the failurePolicy is Fail,
// except for webhooks that only warn. If it is false, the failurePolicy is unchanged. A change also sets
// status.EpochAnnotation. An absent configuration is not created. Once the configuration has this state, navarchd gives
// up its field ownership (status.WithoutClaims).
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
	next.SetManagedFields(nil) // the update leaves managedFields unchanged
	next.Object["webhooks"] = all
	annotations := next.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[status.EpochAnnotation] = strconv.FormatInt(epoch, 10)
	next.SetAnnotations(annotations)
	return next
}

// ErrUnwritten means that the caBundle of a webhook contains none of the mesh's roots yet.
var ErrUnwritten = errors.New("none of the mesh's roots is written yet (caBundle)")

// Trusts verifies the certificate that a webhook's server presents, against the caBundle of each of the mesh's webhooks
// (Has). It verifies as an API server does, but ignores the host name. The result nil means that the API server accepts
// the certificate, or that the configuration has no webhook of the mesh. The error matches ErrUnwritten if a caBundle
// contains none of the mesh's roots. It is also an error if presented.Leaf is nil, or if the certificate does not
// verify. The argument presented must not be nil, and its Certificate list must not be empty.
func (m Mesh) Trusts(u *unstructured.Unstructured, presented *tls.Certificate, now time.Time) error {
	if presented.Leaf == nil {
		return errors.New("the presented certificate was not parsed")
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
