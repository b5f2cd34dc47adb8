// Package validate answers the validation webhook: an object of Istio's is checked against the CustomResourceDefinition of its kind, then by
// store/normal, with the code that the leader runs. An object that would not apply is refused with the paths of its fields; one that applies,
// but not in full or not as its author may expect, is admitted with warnings.
//
// Owns: nothing.  Reads: the mesh configuration; the replica's snapshot, where it has one, for what objects refer to.  Never: asks
// anybody; changes an object; refuses what is valid and this version does not act on; decides by who writes an object.
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

// Path is where API servers send the objects, as in istiod's webhook configurations.
const Path = "/validate"

// Webhook implements admit.Handler. It is immutable.
type Webhook struct {
	normal   *normal.Normalizer
	mesh     func() *meshv1.MeshConfig
	snapshot func() *mirror.Snapshot
	tenants  Tenants
	judge    Judge
}

// Judge says more of a record than the normaliser can, which knows no types of Envoy: errors for which its object is refused, and others. They are
// problems of the record (model.Fault). known is what this process knows of the mesh; nil: nothing.
type Judge func(r model.Record, known *mirror.Snapshot) (refused, warned []error)

// Tenants names the tenant of a namespace; known is false where labels of namespaces are not known. nil: they never are.
type Tenants func(namespace string) (name string, known bool)

var (
	_ admit.Handler = (*Webhook)(nil)
	_ admit.Chooser = (*Webhook)(nil)
)

// New makes a Webhook for a mesh. mesh returns its configuration; nil: it is not known, and the defaults count. snapshot returns the configuration of
// the mesh as a replica has it; nil: it is not known, and what objects refer to is not looked for.
func New(n *normal.Normalizer, mesh func() *meshv1.MeshConfig, snapshot func() *mirror.Snapshot, tenants Tenants, judge Judge) *Webhook {
	return &Webhook{normal: n, mesh: mesh, snapshot: snapshot, tenants: tenants, judge: judge}
}

// Register has a server answer reviews to Path, and to all paths below it.
func (w *Webhook) Register(s *admit.Server) {
	s.Register("validation", Path, w, func(status int) { obs.ValidationHTTPErrors.WithLabelValues(fmt.Sprint(status)).Inc() })
}

// AlwaysReject is an annotation by which every object is refused, whatever else it says, as by istiod: so whether the webhook is asked can be
// tried without an object that is not valid.
const AlwaysReject = "internal.istio.io/webhook-always-reject"

// Why an object is refused, as istiod's metric has it.
const (
	reasonDecode  = "crd_decode_error"
	reasonInvalid = "invalid_resource"
)

// Admit implements admit.Handler.
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
		return admit.Refuse(metav1.StatusReasonInvalid, "the annotation "+AlwaysReject+" asks for it")
	}
	found := w.check(ctx, tree, obj)
	if len(found.Errors) > 0 && !unchanged(r, tree) {
		obs.ValidationFailed.WithLabelValues(group, version, resource, reasonInvalid).Inc()
		return refuse(obj, found)
	}
	obs.ValidationPassed.WithLabelValues(group, version, resource).Inc()
	warnings := found.Warnings
	for _, e := range found.Errors {
		warnings = append(warnings, "it was not valid before: "+e.text())
	}
	return admit.Allow(warnings...)
}

// writes says whether a request writes something of an object's spec.
func writes(r *admissionv1.AdmissionRequest) bool {
	return (r.Operation == admissionv1.Create || r.Operation == admissionv1.Update) && r.SubResource == ""
}

// Concerns implements admit.Chooser: an object that is deleted, or loses its finalizers because it is to be, is not judged.
func (w *Webhook) Concerns(r *admissionv1.AdmissionRequest) bool {
	var head struct {
		Metadata struct {
			DeletionTimestamp *metav1.Time `json:"deletionTimestamp"`
		} `json:"metadata"`
	}
	deleted := r.Operation == admissionv1.Update && json.Unmarshal(r.Object.Raw, &head) == nil && head.Metadata.DeletionTimestamp != nil
	return writes(r) && !deleted
}

// labels are those of metrics: whoever calls could write others without end.
func labels(r *admissionv1.AdmissionRequest) (group, version, resource string) {
	if d := schema.Of(r.Kind.Group, r.Kind.Version, r.Kind.Kind); d != nil {
		return d.Group, r.Kind.Version, d.Plural
	}
	return "other", "other", "other"
}

// read decodes the object of a request; the tree has whole numbers as int64.
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
		return nil, nil, fmt.Errorf("it is %.100q %.100q, and the request is about %.100q %.100q", head.APIVersion, head.Kind, asked.Group+"/"+asked.Version, asked.Kind)
	}
	id := object.ID{Group: of.Group, Kind: of.Kind, Namespace: r.Namespace, Name: head.Name}
	if id.Name == "" { // the API server makes one of it
		id.Name = head.GenerateName
	}
	if id.Name == "" {
		return nil, nil, errors.New("it has no name")
	}
	created := head.CreationTimestamp.Time
	if created.IsZero() {
		created = time.Now() // it is younger than what is there
	}
	return tree, &object.Object{ID: id, Version: of.Version, Created: created, Labels: head.Labels, Annotations: head.Annotations,
		UID: string(head.UID), Generation: head.Generation, JSON: r.Object.Raw}, nil
}

// Found is what is to be said of an object.
type Found struct {
	Errors   []Error // it would not apply
	Warnings []string
}

// Error is one thing for which an object is refused.
type Error struct {
	Field   string // path as users write it
	Code    problem.Code
	Message string
}

// err adds an error, up to as many as the definition of a kind finds.
func (f *Found) err(field string, code problem.Code, message string) {
	if len(f.Errors) < schema.MaxViolations {
		f.Errors = append(f.Errors, Error{field, code, message})
	}
}

// warn adds a warning, up to as many as there may be errors: API servers let far fewer through.
func (f *Found) warn(text string) {
	if len(f.Warnings) < schema.MaxViolations {
		f.Warnings = append(f.Warnings, text)
	}
}

func (e Error) text() string {
	if e.Field == "" {
		return e.Message
	}
	return e.Field + ": " + e.Message
}

// check holds an object of Istio's to the definition of its kind, and then to what the normaliser makes of it.
func (w *Webhook) check(ctx context.Context, tree map[string]any, obj *object.Object) Found {
	var found Found
	if obj.ID.Group == object.GatewayAPI {
		found.Warnings = ofGatewayAPI(tree, obj.ID)
		return found
	}
	if wrong := beyond(tree, obj.ID.Kind); wrong != nil {
		found.Errors = append(found.Errors, *wrong)
		return found
	}
	if d := schema.Of(obj.ID.Group, obj.Version, obj.ID.Kind); d != nil {
		wrong := d.Check(ctx, tree) // fields that it does not know are the normaliser's business: the cluster's definition may be newer
		for _, v := range wrong {
			found.Errors = append(found.Errors, Error(v))
		}
		if len(wrong) > 0 {
			return found
		}
	}
	if ctx.Err() == nil {
		w.normalised(ctx, obj, &found)
	}
	return found
}

// normalised adds what the normaliser, the judge and the analysis say of an object, until the context ends.
func (w *Webhook) normalised(ctx context.Context, obj *object.Object, found *Found) {
	known, mesh := w.snapshot(), w.mesh()
	if mesh == nil {
		mesh = model.MeshDefaults()
	}
	result := w.normal.Object(obj, lookup{ownersOf(known, w.tenants), mesh})
	refused := map[object.Problem]bool{}
	for _, p := range result.Refused {
		refused[p] = true
		found.err(p.Field, p.Code, p.Message)
	}
	for _, p := range result.Problems {
		if refused[p] {
			continue
		}
		// What is valid and not acted on is not the user's mistake: Istio takes it, and so do we, and say so.
		if p.Severity == problem.Error && p.Code != problem.NotSupported && p.Code != problem.Internal {
			found.err(p.Field, p.Code, p.Message)
			continue
		}
		found.warn(warning(p, ""))
	}
	for _, record := range result.Records {
		if ctx.Err() != nil || len(found.Errors) >= schema.MaxViolations {
			return
		}
		w.judged(record, known, found)
	}
}

// judged adds what the judge and the analysis say of a record.
func (w *Webhook) judged(record model.Record, known *mirror.Snapshot, found *Found) {
	refused, warned := w.judge(record, known)
	for _, err := range refused {
		p := model.ProblemOf(err, record.Meta().Key)
		found.err(p.Field, p.Code, p.Message)
	}
	for _, err := range warned {
		p := model.ProblemOf(err, record.Meta().Key)
		found.warn(warning(object.Problem{Field: p.Field, Message: p.Message, Analyzer: p.Analyzer}, ""))
	}
	if known == nil {
		return
	}
	for _, p := range analysis.Applied(record, known) {
		more := ""
		if p.Code == problem.NotFound {
			more = " (not known yet, where it is applied together with this object)"
		}
		found.warn(warning(p, more))
	}
}

func warning(p object.Problem, more string) string {
	if p.Field == "" {
		return p.Message + p.Analyzer.Suffix() + more
	}
	return p.Field + ": " + p.Message + p.Analyzer.Suffix() + more
}

// unchanged says whether an update leaves the spec as it was: then metadata alone changes, such as a finalizer that is taken away. What is
// there already, and was not valid before, must not be held up by that.
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

// What is said of one object: kubectl shows the message on one line.
const (
	maxSaid    = 10   // errors in the message
	maxMessage = 4096 // bytes
)

// refuse is the answer to an object that would not apply.
func refuse(obj *object.Object, found Found) *admissionv1.AdmissionResponse {
	details := &metav1.StatusDetails{Name: obj.ID.Name, Group: obj.ID.Group, Kind: obj.ID.Kind}
	var said []string
	for _, e := range found.Errors {
		if len(said) == maxSaid {
			said = append(said, more(len(found.Errors)))
			break
		}
		said = append(said, e.text())
		details.Causes = append(details.Causes, metav1.StatusCause{Type: cause(e.Code), Field: e.Field, Message: cut(e.Message)})
	}
	no := admit.Refuse(metav1.StatusReasonInvalid, cut("configuration is invalid: "+strings.Join(said, "; ")), found.Warnings...)
	no.Result.Details = details
	return no
}

// more counts the errors that are not said; of schema.MaxViolations there may be others that nobody looked for.
func more(all int) string {
	if all == schema.MaxViolations {
		return fmt.Sprintf("and at least %d more", all-maxSaid)
	}
	return fmt.Sprintf("and %d more", all-maxSaid)
}

func cut(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), maxMessage)], "")
}

// causes are the types of causes that say the same as a code; of all others CauseTypeFieldValueInvalid does.
var causes = map[problem.Code]metav1.CauseType{problem.Required: metav1.CauseTypeFieldValueRequired, problem.Duplicate: metav1.CauseTypeFieldValueDuplicate,
	problem.NotFound: metav1.CauseTypeFieldValueNotFound}

func cause(code problem.Code) metav1.CauseType {
	return cmp.Or(causes[code], metav1.CauseTypeFieldValueInvalid)
}

// RefusedGateway returns a Gateway, as JSON's types, that the validation webhook refuses because of AlwaysReject alone, with labels by which a
// webhook configuration selects it. It is for dry runs.
func RefusedGateway(namespace string, labels map[string]string) map[string]any {
	return map[string]any{"apiVersion": "networking.istio.io/v1beta1", "kind": "Gateway",
		"metadata": map[string]any{"name": "navarch-webhook-dry-run", "namespace": namespace, "labels": labels, "annotations": map[string]string{AlwaysReject: "true"}},
		"spec": map[string]any{"selector": map[string]string{"navarch.io/none": "none"}, "servers": []any{map[string]any{"hosts": []string{"*"},
			"port": map[string]any{"number": 80, "name": "http", "protocol": "HTTP"}}}}}
}
