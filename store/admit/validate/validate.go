// Package validate implements the validation webhook for objects of Istio. An object is checked against the
// CustomResourceDefinition of its kind. After that, store/normal (the normaliser) converts the object to records, its
// stored form. The leader converts objects with the same code. An invalid object is refused, and the response states
// the paths of the invalid fields. A valid object is admitted. The response has a warning for each part of the object
// that has no effect, or an effect that its author may not expect.
//
// Owns: an index of the hosts and addresses in the newest snapshot of the stored configuration.
// Reads: the mesh configuration; this replica's snapshot, if there is one, to check references to other objects.
// Never: sends a request; changes an object; refuses a valid object because this version does not support it; considers
// the user who writes an object.
package validate

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"sync/atomic"
	"time"

	meshv1 "istio.io/api/mesh/v1alpha1"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"

	"navarch.io/navarch/store/admit"
	"navarch.io/navarch/store/admit/schema"
	"navarch.io/navarch/store/analysis"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/obs"
	"navarch.io/navarch/store/problem"
)

// Path is the URL path of the webhook, the same as in istiod's webhook configurations.
const Path = "/validate"

// Webhook implements admit.Handler and admit.Chooser. It is safe for concurrent use.
type Webhook struct {
	normal   *normal.Normalizer
	mesh     func() *meshv1.MeshConfig
	snapshot func() *mirror.Snapshot
	tenants  Tenants
	judge    Judge
	owners   atomic.Pointer[owners] // index of hosts and addresses, for the snapshot of the last review
	lists    *catalogue
}

// Judge performs the checks of a record that need types of Envoy, which the normaliser does not know. If there are
// errors in refused, the object is refused. Errors in warned become warnings. All errors describe problems of the
// record (model.Fault). The parameter known is the snapshot to compare the record with. It is nil if there is no
// snapshot, or if the record must be judged alone. A Judge is safe for concurrent use.
type Judge func(r model.Record, known *mirror.Snapshot) (refused, warned []error)

// Tenants returns the tenant of a namespace. known is false while the labels of namespaces are not known. With a nil
// Tenants no tenant is known. A Tenants is safe for concurrent use.
type Tenants func(namespace string) (name string, known bool)

var (
	_ admit.Handler = (*Webhook)(nil)
	_ admit.Chooser = (*Webhook)(nil)
)

// New returns a Webhook. mesh returns the mesh configuration. If its result is nil, the defaults apply. snapshot
// returns the replica's snapshot. If its result is nil, references to other objects are not checked. tenants may be
// nil, but judge must not be nil. If only Propose is called, mesh and snapshot may be nil.
func New(
	n *normal.Normalizer, mesh func() *meshv1.MeshConfig, snapshot func() *mirror.Snapshot, tenants Tenants, judge Judge,
) *Webhook {
	return &Webhook{normal: n, mesh: mesh, snapshot: snapshot, tenants: tenants, judge: judge, lists: newCatalogue()}
}

// Register registers the webhook with a server, for Path and all paths below it.
func (w *Webhook) Register(s *admit.Server) {
	s.Register("validation", Path, w, func(status int) { obs.ValidationHTTPErrors.WithLabelValues(fmt.Sprint(status)).Inc() })
}

// AlwaysReject is an annotation. Every object with this annotation is refused, as in istiod. A dry run of such an
// object tests whether API servers call the webhook.
const AlwaysReject = "internal.istio.io/webhook-always-reject"

// Values of the label reason of obs.ValidationFailed, as in istiod's metric.
const (
	reasonDecode  = "crd_decode_error"
	reasonInvalid = "invalid_resource"
)

// Admit implements admit.Handler. It refuses an invalid object and every object with the annotation AlwaysReject (422),
// and an object that cannot be decoded (400). If an update leaves spec and apiVersion of an invalid object unchanged,
// the errors become warnings. Requests other than the creation or update of an object are admitted. If ctx ends, the
// object is not checked completely, and the Server discards the response.
func (w *Webhook) Admit(ctx context.Context, _ string, r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	if !writes(r) {
		return admit.Allow()
	}
	group, version, resource := labels(r)
	tree, obj, err := read(r)
	if err != nil {
		obs.ValidationFailed.WithLabelValues(group, version, resource, reasonDecode).Inc()
		no := admit.Refuse(metav1.StatusReasonBadRequest, "the object cannot be read: "+err.Error())
		no.Result.Code = http.StatusBadRequest
		return no
	}
	if _, is := obj.Annotations[AlwaysReject]; is {
		return admit.Refuse(metav1.StatusReasonInvalid, "every object with the annotation "+AlwaysReject+" is refused")
	}
	found := w.check(ctx, tree, obj)
	if len(found.Errors) > 0 && !unchanged(r, tree) {
		obs.ValidationFailed.WithLabelValues(group, version, resource, reasonInvalid).Inc()
		return refuse(obj, found)
	}
	obs.ValidationPassed.WithLabelValues(group, version, resource).Inc()
	warnings := found.Warnings
	for _, e := range found.Errors {
		warnings = append(warnings, "the object was invalid before this update too: "+e.text())
	}
	return admit.Allow(warnings...)
}

// writes reports whether a request creates or updates an object, rather than a subresource.
func writes(r *admissionv1.AdmissionRequest) bool {
	return (r.Operation == admissionv1.Create || r.Operation == admissionv1.Update) && r.SubResource == ""
}

// Concerns implements admit.Chooser. It returns true for the creation and update of objects. It returns false for an
// object that is being deleted. The removal of a finalizer is therefore admitted even if the object is too large to
// validate.
func (w *Webhook) Concerns(r *admissionv1.AdmissionRequest) bool {
	var head struct {
		Metadata struct {
			DeletionTimestamp *metav1.Time `json:"deletionTimestamp"`
		} `json:"metadata"`
	}
	deleted := r.Operation == admissionv1.Update && json.Unmarshal(r.Object.Raw, &head) == nil && head.Metadata.DeletionTimestamp != nil
	return writes(r) && !deleted
}

// labels returns the values of metric labels. For unknown kinds the values are "other", so requests cannot add an
// unlimited number of values.
func labels(r *admissionv1.AdmissionRequest) (group, version, resource string) {
	if d := schema.Of(r.Kind.Group, r.Kind.Version, r.Kind.Kind); d != nil {
		return d.Group, r.Kind.Version, d.Plural
	}
	return "other", "other", "other"
}

// read decodes the object of a request. Whole numbers in the returned map are int64. read fails if the object is not
// valid JSON, has another group, version or kind than the request states, or has neither name nor generateName.
func read(r *admissionv1.AdmissionRequest) (map[string]any, *object.Object, error) {
	tree := map[string]any{}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(r.Object.Raw, &tree); err != nil {
		return nil, nil, err
	}
	var head struct {
		metav1.TypeMeta   `json:",inline"`
		metav1.ObjectMeta `json:"metadata"`
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(r.Object.Raw, &head); err != nil {
		return nil, nil, err
	}
	of := head.GroupVersionKind()
	if asked := r.Kind; asked.Group != of.Group || asked.Version != of.Version || asked.Kind != of.Kind {
		return nil, nil, fmt.Errorf("it is %.100q %.100q, and the request is about %.100q %.100q",
			head.APIVersion, head.Kind, asked.Group+"/"+asked.Version, asked.Kind)
	}
	id := object.ID{Group: of.Group, Kind: of.Kind, Namespace: r.Namespace, Name: head.Name}
	if id.Name == "" { // the API server generates the name from generateName
		id.Name = head.GenerateName
	}
	if id.Name == "" {
		return nil, nil, errors.New("it has no name")
	}
	created := head.CreationTimestamp.Time
	if created.IsZero() {
		created = time.Now() // the object is younger than all existing ones
	}
	return tree, &object.Object{ID: id, Version: of.Version, Created: created, Labels: head.Labels, Annotations: head.Annotations,
		UID: string(head.UID), Generation: head.Generation, JSON: r.Object.Raw}, nil
}

// check validates an object. An object of Istio is checked against its CRD. If there is no violation, the method
// normalised checks it further. An object of the Gateway API gets warnings, but no errors.
func (w *Webhook) check(ctx context.Context, tree map[string]any, obj *object.Object) Found {
	var found Found
	if obj.ID.Group == object.GatewayAPI {
		found.Warnings = ofGatewayAPI(tree, obj.ID)
		return found
	}
	if defined(ctx, tree, obj, &found) && ctx.Err() == nil {
		w.normalised(ctx, obj, &found)
	}
	return found
}

// Violations returns the violations of an object's CRD, for which the webhook refuses the object. It returns nil for
// kinds that are not Istio's.
func Violations(ctx context.Context, o *object.Object) []Error {
	var found Found
	tree := map[string]any{}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(o.JSON, &tree); err != nil {
		found.err("", problem.Unreadable, err.Error())
		return found.Errors
	}
	defined(ctx, tree, o, &found)
	return found.Errors
}

// defined checks an object against its CRD, and adds the violations to found. It reports whether there are no
// violations.
func defined(ctx context.Context, tree map[string]any, obj *object.Object, found *Found) bool {
	if wrong := beyond(tree, obj.ID.Kind); wrong != nil {
		found.Errors = append(found.Errors, *wrong)
		return false
	}
	d := schema.Of(obj.ID.Group, obj.Version, obj.ID.Kind)
	if d == nil {
		return true
	}
	// Unknown fields are left to the normaliser, because the definition in the cluster may be newer than this one.
	wrong := d.Check(ctx, tree)
	for _, v := range wrong {
		found.Errors = append(found.Errors, Error(v))
	}
	return len(wrong) == 0
}

// ownersAt returns the index of hosts and addresses for a snapshot. Reviews share the index until there is a newer
// snapshot.
func (w *Webhook) ownersAt(known *mirror.Snapshot) *owners {
	if o := w.owners.Load(); known != nil && o != nil && o.known == known {
		return o
	}
	o := w.lists.at(known)
	w.owners.Store(o)
	return o
}

// normalised adds to found the results of the normaliser, the Judge and the analysis for an object. It stops at the end
// of the context, or at schema.MaxViolations errors.
func (w *Webhook) normalised(ctx context.Context, obj *object.Object, found *Found) {
	known, mesh := w.snapshot(), w.mesh()
	if mesh == nil {
		mesh = model.MeshDefaults()
	}
	if result, err := w.normal.ObjectUntil(ctx, obj, lookup{w.ownersAt(known), w.tenants, mesh}); err == nil {
		w.assess(ctx, result, known, found)
	}
}

// assess adds to found the problems that the normaliser reported. For each record, it also adds the results of the
// Judge and the analysis. If found.whole is true, the messages also name objects that the namespace of the examined
// object may not see.
func (w *Webhook) assess(ctx context.Context, result normal.Result, known *mirror.Snapshot, found *Found) {
	refused := map[object.Problem]bool{}
	for _, p := range result.Refused {
		refused[p] = true
		found.err(p.Field, p.Code, found.message(p))
	}
	for _, p := range result.Problems {
		if refused[p] {
			continue
		}
		// Fields that this version does not support, and faults of this program, are not the author's mistakes. Istio
		// admits such objects, so these problems become warnings.
		if p.Severity == problem.Error && p.Code != problem.NotSupported && p.Code != problem.Internal {
			found.err(p.Field, p.Code, found.message(p))
			continue
		}
		found.warn(found.warning(p, ""))
	}
	for _, record := range result.Records {
		if ctx.Err() != nil || len(found.Errors) >= schema.MaxViolations {
			return
		}
		w.judged(record, known, found)
	}
}

// judged adds to found the results of the Judge and the analysis for one record.
func (w *Webhook) judged(record model.Record, known *mirror.Snapshot, found *Found) {
	refused, warned := w.judge(record, known)
	for _, err := range refused {
		p := model.ProblemOf(err, record.Meta().Key)
		found.err(p.Field, p.Code, p.Message)
	}
	for _, err := range warned {
		p := model.ProblemOf(err, record.Meta().Key)
		found.warn(found.warning(object.Problem{Field: p.Field, Message: p.Message, Whole: p.Whole, Analyzer: p.Analyzer}, ""))
	}
	if known == nil {
		return
	}
	for _, p := range analysis.Applied(record, known) {
		more := ""
		if p.Code == problem.NotFound {
			more = " (not known yet; expected if it is applied together with this object)"
		}
		found.warn(found.warning(p, more))
	}
}

// unchanged reports whether a request is an update that leaves spec and apiVersion unchanged. An invalid object that
// exists already must not block changes of its metadata, such as the removal of a finalizer.
func unchanged(r *admissionv1.AdmissionRequest, tree map[string]any) bool {
	if r.Operation != admissionv1.Update {
		return false
	}
	before := map[string]any{}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(r.OldObject.Raw, &before); err != nil {
		return false
	}
	return reflect.DeepEqual(before["spec"], tree["spec"]) && before["apiVersion"] == tree["apiVersion"]
}

// Limits of the message for one object, which kubectl prints as one line.
const (
	maxErrors  = 10   // errors in the message
	maxMessage = 4096 // bytes of the message, and of the message of each cause
)

// refuse returns the response that refuses an object. The message and the causes of the response have the first
// maxErrors errors.
func refuse(obj *object.Object, found Found) *admissionv1.AdmissionResponse {
	details := &metav1.StatusDetails{Name: obj.ID.Name, Group: obj.ID.Group, Kind: obj.ID.Kind}
	var texts []string
	for _, e := range found.Errors {
		if len(texts) == maxErrors {
			texts = append(texts, more(len(found.Errors)))
			break
		}
		texts = append(texts, e.text())
		details.Causes = append(details.Causes, metav1.StatusCause{Type: cause(e.Code), Field: e.Field, Message: cut(e.Message)})
	}
	no := admit.Refuse(metav1.StatusReasonInvalid, cut("configuration is invalid: "+strings.Join(texts, "; ")), found.Warnings...)
	no.Result.Details = details
	return no
}

// more returns a text with the number of omitted errors. The parameter total is the number of all errors. At
// schema.MaxViolations the validation stopped, so the object may have further errors.
func more(total int) string {
	if total == schema.MaxViolations {
		return fmt.Sprintf("and at least %d more", total-maxErrors)
	}
	return fmt.Sprintf("and %d more", total-maxErrors)
}

// cut truncates a text to maxMessage bytes.
func cut(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), maxMessage)], "")
}

// causes maps codes to types of causes. Codes that are not in the map become CauseTypeFieldValueInvalid.
var causes = map[problem.Code]metav1.CauseType{
	problem.Required:  metav1.CauseTypeFieldValueRequired,
	problem.Duplicate: metav1.CauseTypeFieldValueDuplicate,
	problem.NotFound:  metav1.CauseTypeFieldValueNotFound,
}

// cause returns the type of cause for a code.
func cause(code problem.Code) metav1.CauseType {
	return cmp.Or(causes[code], metav1.CauseTypeFieldValueInvalid)
}

// RefusedGateway returns a Gateway with the annotation AlwaysReject, for dry runs. The Gateway is valid apart from the
// annotation. The result can be encoded as JSON. It contains the map in the parameter labels, not a copy. A webhook
// configuration can select the Gateway by these labels.
func RefusedGateway(namespace string, labels map[string]string) map[string]any {
	metadata := map[string]any{"name": "navarch-webhook-dry-run", "namespace": namespace, "labels": labels,
		"annotations": map[string]string{AlwaysReject: "true"}}
	port := map[string]any{"number": 80, "name": "http", "protocol": "HTTP"}
	return map[string]any{"apiVersion": "networking.istio.io/v1beta1", "kind": "Gateway", "metadata": metadata,
		"spec": map[string]any{"selector": map[string]string{"navarch.io/none": "none"},
			"servers": []any{map[string]any{"hosts": []string{"*"}, "port": port}}}}
}
