package analyze

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"navarch.io/navarch/store/apiserver"
	"navarch.io/navarch/store/credential"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
)

// certificateName is the annotation by which cert-manager names the Certificate of a Secret.
const certificateName = "cert-manager.io/certificate-name"

// certificateKind is the kind of objects from which cert-manager makes Secrets.
var certificateKind = resource{kind{"cert-manager.io", "Certificate"}, "v1", "certificates"}

// lateBy is the time after the planned renewal at which a Certificate counts as not renewed.
const lateBy = time.Hour

// issued has the fields of a Certificate that state why it is not renewed.
type issued struct {
	Status struct {
		Conditions             []metav1.Condition
		RenewalTime            metav1.Time
		FailedIssuanceAttempts int
	}
}

// readCertificates reads the Certificates of cert-manager that the read Secrets name.
func (in *Input) readCertificates(ctx context.Context, api *apiserver.Client) error {
	for _, e := range in.Events {
		if e.ID.Kind != "Secret" || e.Object == nil || e.Object.Annotations[certificateName] == "" ||
			in.Unread[certificateKind.kind.kind] != "" {
			continue
		}
		path := "/apis/" + certificateKind.group + "/" + certificateKind.version + "/namespaces/" + url.PathEscape(e.ID.Namespace) + "/" +
			certificateKind.plural + "/" + url.PathEscape(e.Object.Annotations[certificateName])
		if err := in.get(ctx, api, certificateKind, path); err != nil {
			return err
		}
	}
	return nil
}

// renewals reports the Secrets of a cluster whose certificate is not renewed, with the reason: its Certificate of
// cert-manager fails, is late or is gone, or it ends soon and cert-manager does not manage it.
func renewals(w *world) {
	for s := range each[*model.Secret](w, model.KindSecret) {
		o := w.byID[normal.SourceObject(s.Key)]
		if o == nil || o.Location != "" || len(s.Spec.GetChain()) == 0 {
			continue
		}
		name := o.Annotations[certificateName]
		if name == "" {
			if end := w.ending(credential.Until(s.Spec.GetChain())); end != "" {
				w.found(problem.CertificateNotRenewed, o.ID, "metadata.annotations", "the certificate %s, and nothing renews it: "+
					"%s names no Certificate of cert-manager; it was written by %s", end, certificateName, lastWriter(o))
			}
			continue
		}
		if reason := w.failure(o.ID.Namespace, name); reason != "" {
			w.found(problem.CertificateNotRenewed, o.ID, "metadata.annotations["+certificateName+"]",
				"Certificate %s/%s of cert-manager %s", o.ID.Namespace, name, reason)
		}
	}
}

// failure returns the reason for which a Certificate is not renewed. It is empty without a failure, and if Certificates
// were not read.
func (w *world) failure(namespace, name string) string {
	if !w.live(certificateKind.kind.kind) || !w.knows(certificateKind.kind.kind) {
		return ""
	}
	o := w.byID[w.id(certificateKind.group, certificateKind.kind.kind, namespace, name)]
	if o == nil {
		return "is gone: nothing renews the Secret"
	}
	var c issued
	if err := decode(o, &c); err != nil {
		return "cannot be read: " + err.Error()
	}
	attempts := ""
	if n := c.Status.FailedIssuanceAttempts; n > 0 {
		attempts = fmt.Sprintf(", after %d failed attempts", n)
	}
	for _, is := range c.Status.Conditions {
		failed := is.Type == "Issuing" && is.Reason == "Failed" // its status is False while cert-manager waits for the next attempt
		if is.Status == metav1.ConditionFalse && (is.Type == "Ready" || failed) {
			return fmt.Sprintf("fails%s: %s: %s", attempts, is.Reason, is.Message)
		}
	}
	switch at := c.Status.RenewalTime; {
	case attempts != "":
		return "fails" + attempts
	case !at.IsZero() && w.Now.Sub(at.Time) > lateBy:
		return "was to be renewed at " + at.UTC().Format(time.RFC3339) + ", and is not: does cert-manager run?"
	}
	return ""
}

// lastWriter returns the field manager that wrote an object last, with the time.
func lastWriter(o *object.Object) string {
	var head struct{ Metadata metav1.ObjectMeta }
	var last metav1.ManagedFieldsEntry
	if decode(o, &head) == nil {
		for _, e := range head.Metadata.ManagedFields {
			if e.Subresource == "" && e.Time != nil && (last.Time == nil || e.Time.After(last.Time.Time)) {
				last = e
			}
		}
	}
	if last.Time == nil {
		return "an unknown program"
	}
	return fmt.Sprintf("%q at %s", cmp.Or(last.Manager, "an unknown program"), last.Time.UTC().Format(time.RFC3339))
}
