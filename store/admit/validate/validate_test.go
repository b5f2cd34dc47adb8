package validate

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	goruntime "runtime"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	meshv1 "istio.io/api/mesh/v1alpha1"

	"navarch.io/navarch/deploy/docs"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/object"
)

// of is an object as JSON.
func of(kind, spec string) string {
	group := "networking.istio.io/v1"
	switch kind {
	case "AuthorizationPolicy", "PeerAuthentication":
		group = "security.istio.io/v1"
	case "EnvoyFilter":
		group = "networking.istio.io/v1alpha3"
	}
	return fmt.Sprintf(`{"apiVersion": %q, "kind": %q, "metadata": {"name": "a", "namespace": "shop"}, "spec": %s}`, group, kind, spec)
}

const wrongRoute = `{"hosts": ["a"], "http": [{"route": [{"destination": {"host": "b"}, "weight": -1}]}]}`

// A refusal names the fields, for people and for programs.
func TestRefusalNamesFields(t *testing.T) {
	for name, c := range map[string]struct{ kind, spec, field, cause string }{
		"by the definition":  {"DestinationRule", `{"host": "a", "subsets": [{}]}`, "spec.subsets[0].name", string(metav1.CauseTypeFieldValueRequired)},
		"by the normaliser":  {"VirtualService", `{"hosts": ["a"], "gateways": ["b/c/d"], "http": [{"route": [{"destination": {"host": "b"}}]}]}`, "spec.gateways[0]", string(metav1.CauseTypeFieldValueInvalid)},
		"a weight":           {"VirtualService", wrongRoute, "spec.http[0].route[0].weight", string(metav1.CauseTypeFieldValueInvalid)},
		"a policy's unknown": {"AuthorizationPolicy", `{"selektor": {}}`, "spec.selektor", string(metav1.CauseTypeFieldValueInvalid)},
	} {
		t.Run(name, func(t *testing.T) {
			got := webhook().Admit(t.Context(), Path, creation(t, []byte(of(c.kind, c.spec))))
			if got.Allowed {
				t.Fatal("it was admitted")
			}
			if !strings.Contains(got.Result.Message, c.field) || len(got.Result.Details.Causes) == 0 || got.Result.Details.Causes[0].Field != c.field ||
				string(got.Result.Details.Causes[0].Type) != c.cause {
				t.Errorf("%s, %+v", got.Result.Message, got.Result.Details)
			}
		})
	}
}

// Valid fields without effect in this version, and objects of other kinds, are admitted with warnings; of the Gateway
// API only objects of the mesh have a warning.
func TestWarns(t *testing.T) {
	gatewayAPI := func(kind, spec string) string {
		return fmt.Sprintf(`{"apiVersion": "gateway.networking.k8s.io/v1", "kind": %q, "metadata": {"name": "a"}, "spec": %s}`, kind, spec)
	}
	for name, c := range map[string]struct{ raw, want string }{
		"good":                         {of("DestinationRule", `{"host": "a"}`), ""},
		"no effect":                    {of("EnvoyFilter", `{}`), "spec.configPatches: is empty: the EnvoyFilter has no effect"},
		"a warning of a Gateway":       {of("Gateway", `{"servers": [{"hosts": ["*"], "port": {"number": 443, "name": "tls", "protocol": "TLS"}, "tls": {"credentialName": "a"}}]}`), "mode PASSTHROUGH, the default, does not terminate TLS"},
		"a class of the mesh":          {gatewayAPI("GatewayClass", `{"controllerName": "istio.io/gateway-controller"}`), "spec.controllerName: the Gateway API is not served by this version"},
		"a class of others":            {gatewayAPI("GatewayClass", `{"controllerName": "example.com/controller"}`), ""},
		"a Gateway of the mesh":        {gatewayAPI("Gateway", `{"gatewayClassName": "istio-waypoint"}`), "a Gateway of class istio-waypoint gets no Deployment"},
		"a Gateway of others":          {gatewayAPI("Gateway", `{"gatewayClassName": "istiod"}`), ""},
		"a route of the mesh":          {gatewayAPI("GRPCRoute", `{"parentRefs": [{"name": "a"}, {"kind": "Service", "name": "b"}]}`), "spec.parentRefs[1]: the Gateway API is not served by this version: sidecars route nothing by this GRPCRoute"},
		"a route of a Gateway":         {gatewayAPI("HTTPRoute", `{"parentRefs": [{"kind": "Gateway", "name": "a"}]}`), ""},
		"a Gateway without a class":    {gatewayAPI("Gateway", `{"gatewayClassName": 7}`), ""},
		"a route whose parents are no": {gatewayAPI("HTTPRoute", `{"parentRefs": [7, null]}`), ""},
		"another kind of Istio's": {`{"apiVersion": "networking.istio.io/v1beta1", "kind": "Novel", "metadata": {"name": "a"}, "spec": {"concurrency": 1}}`,
			"kind Novel of networking.istio.io is not acted on yet"},
		"a policy that closes":    {of("AuthorizationPolicy", `{"rules": [{"when": [{"key": "request.headers[a b]", "values": ["80"]}]}]}`), "is not supported: the selected workloads refuse all requests"},
		"a policy for a waypoint": {of("AuthorizationPolicy", `{"targetRefs": [{"kind": "Service", "name": "a"}], "rules": [{"to": [{"operation": {"ports": ["80"]}}]}]}`), "spec.targetRefs[0].kind: Service targets are for waypoints"},
	} {
		t.Run(name, func(t *testing.T) {
			got := webhook().Admit(t.Context(), Path, creation(t, []byte(c.raw)))
			if said := strings.Join(got.Warnings, "\n"); !got.Allowed || c.want == "" && said != "" || !strings.Contains(said, c.want) {
				t.Errorf("allowed %v, %+v, warnings %q; want %q", got.Allowed, got.Result, said, c.want)
			}
		})
	}
}

// API servers ask about the classes and controllers that are warned of: the conditions of the webhooks on the page,
// which the chart's are (deploy/chart).
func TestConditionsHaveTheClasses(t *testing.T) {
	page := docs.YAML(t, "validation.md", "# ")
	for field, all := range map[string][]string{"controllerName": meshControllers, "gatewayClassName": meshClasses} {
		if want := fmt.Sprintf("object.spec.%s in ['%s'] :\n", field, strings.Join(all, "', '")); strings.Count(page, want) != strings.Count(page, "name: of-the-mesh\n") || !strings.Contains(page, want) {
			t.Errorf("not all conditions of the page have %s", want)
		}
	}
}

// An existing invalid object does not block updates: an update that leaves the spec unchanged is admitted, one that
// changes it is refused.
func TestUnchangedSpecIsAdmitted(t *testing.T) {
	before := of("VirtualService", wrongRoute)
	r := creation(t, []byte(strings.Replace(before, `"shop"}`, `"shop", "finalizers": []}`, 1)))
	r.Operation, r.OldObject = admissionv1.Update, runtime.RawExtension{Raw: []byte(before)}
	if got := webhook().Admit(t.Context(), Path, r); !got.Allowed || !strings.Contains(strings.Join(got.Warnings, " "), "spec.http[0].route[0].weight") {
		t.Errorf("an update of metadata: %+v", got)
	}
	r.Object.Raw = []byte(strings.Replace(before, "-1", "-2", 1))
	if got := webhook().Admit(t.Context(), Path, r); got.Allowed {
		t.Error("a change of the spec was admitted")
	}
	r.Operation, r.SubResource = admissionv1.Update, "status"
	if got := webhook().Admit(t.Context(), Path, r); !got.Allowed {
		t.Error("a status was refused")
	}
	r.Operation, r.SubResource = admissionv1.Delete, ""
	if got := webhook().Admit(t.Context(), Path, r); !got.Allowed {
		t.Error("a deletion was refused")
	}
}

// known is a snapshot with one service, reviews.shop of port 80, a rule with subset v1 for it, and a wildcard host.
func known(t *testing.T, mesh *meshv1.MeshConfig) *mirror.Snapshot {
	t.Helper()
	n := normal.New(normal.Options{})
	var records []model.Record
	for _, o := range []*object.Object{
		{ID: object.ID{Kind: "Service", Namespace: "shop", Name: "reviews"}, Version: "v1", JSON: []byte(`{"spec": {"clusterIP": "10.0.0.1", "ports": [{"port": 80}]}}`)},
		{ID: object.ID{Group: "networking.istio.io", Kind: "DestinationRule", Namespace: "shop", Name: "reviews"}, Version: "v1", JSON: []byte(`{"spec": {"host": "reviews", "subsets": [{"name": "v1"}]}}`)},
		{ID: object.ID{Group: "networking.istio.io", Kind: "ServiceEntry", Namespace: "shop", Name: "all"}, Version: "v1", JSON: []byte(`{"spec": {"hosts": ["*.example.com"], "ports": [{"number": 443, "name": "tls", "protocol": "TLS"}]}}`)},
	} {
		result := n.Object(o, lookup{ownersOf(nil), nil, model.MeshDefaults()})
		if result.Spoiled {
			t.Fatal(result.Problems)
		}
		records = append(records, result.Records...)
	}
	if mesh != nil {
		record, err := model.New(model.MeshKey, 0, proto.Message(mesh))
		if err != nil {
			t.Fatal(err)
		}
		records = append(records, record)
	}
	return mirror.Empty().Apply(1, records, nil).New
}

// A reference to an unknown object is a warning: that object may be applied together with this one.
func TestReferences(t *testing.T) {
	snapshot := known(t, nil)
	w := over(snapshot)
	for name, c := range map[string]struct{ destination, want string }{
		"all known":        {`{"host": "reviews", "port": {"number": 80}, "subset": "v1"}`, ""},
		"a wildcard's":     {`{"host": "www.example.com"}`, ""},
		"no service":       {`{"host": "ratings"}`, `spec.http[0].route[0].destination.host: no service has host "ratings.shop.svc.cluster.local"`},
		"no such port":     {`{"host": "reviews", "port": {"number": 81}}`, "spec.http[0].route[0].destination.port.number: "},
		"no such subset":   {`{"host": "reviews", "subset": "v2"}`, "spec.http[0].route[0].destination.subset: "},
		"not below a name": {`{"host": "example.com"}`, "no service has host"},
	} {
		t.Run(name, func(t *testing.T) {
			raw := of("VirtualService", `{"hosts": ["a"], "http": [{"route": [{"destination": `+c.destination+`}]}]}`)
			got := w.Admit(t.Context(), Path, creation(t, []byte(raw)))
			said := strings.Join(got.Warnings, "\n")
			if !got.Allowed || c.want == "" && said != "" || !strings.Contains(said, c.want) || c.want != "" && !strings.Contains(said, "not known yet") {
				t.Errorf("allowed %v, warnings %q; want %q", got.Allowed, said, c.want)
			}
		})
	}
}

// A field that has no effect because of other objects is a warning on apply. An update is compared with other objects
// only, not with its own previous version.
func TestAppliedBesideOthers(t *testing.T) {
	snapshot := known(t, nil)
	put := func(kind, name, spec string) {
		group := map[string]string{"PeerAuthentication": "security.istio.io", "Telemetry": "telemetry.istio.io"}[kind]
		result := normal.New(normal.Options{}).Object(&object.Object{ID: object.ID{Group: cmp.Or(group, "networking.istio.io"), Kind: kind, Namespace: "shop", Name: name}, Version: "v1",
			Created: time.Unix(1, 0), JSON: []byte(`{"spec": ` + spec + `}`)}, lookup{ownersOf(nil), nil, model.MeshDefaults()})
		if result.Spoiled {
			t.Fatal(result.Problems)
		}
		snapshot = snapshot.Apply(snapshot.Revision()+1, result.Records, nil).New
	}
	put("Sidecar", "first", `{"egress": [{"hosts": ["*/*"]}]}`)
	put("PeerAuthentication", "first", `{}`)
	put("ServiceEntry", "first", `{"hosts": ["a.example"], "ports": [{"number": 443, "name": "tls", "protocol": "TLS"}], "resolution": "DNS"}`)
	for name, c := range map[string]struct{ raw, want string }{
		"a second Sidecar":                {of("Sidecar", `{"egress": [{"hosts": ["*/*"]}]}`), "the older Sidecar shop/first is for all workloads of the namespace too: it counts, and this one does not [IST0111]"},
		"a second PeerAuthentication":     {of("PeerAuthentication", `{"mtls": {"mode": "STRICT"}}`), "the older PeerAuthentication shop/first is for all workloads"},
		"the same Sidecar":                {strings.Replace(of("Sidecar", `{"egress": [{"hosts": ["*/*"]}]}`), `"name": "a"`, `"name": "first"`, 1), ""},
		"a host of a Service":             {of("ServiceEntry", `{"hosts": ["reviews.shop.svc.cluster.local"], "ports": [{"number": 80, "name": "http", "protocol": "HTTP"}], "resolution": "DNS"}`), "is that of Service shop/reviews"},
		"a host of another entry":         {of("ServiceEntry", `{"hosts": ["a.example"], "ports": [{"number": 443, "name": "tls", "protocol": "TLS"}], "resolution": "NONE"}`), "is claimed by the older ServiceEntry shop/first"},
		"a host of nobody":                {of("ServiceEntry", `{"hosts": ["b.example"], "ports": [{"number": 443, "name": "tls", "protocol": "TLS"}], "resolution": "DNS"}`), ""},
		"a selector without workload yet": {of("PeerAuthentication", `{"selector": {"matchLabels": {"app": "new"}}}`), ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := over(snapshot).Admit(t.Context(), Path, creation(t, []byte(c.raw)))
			if said := strings.Join(got.Warnings, "\n"); !got.Allowed || c.want == "" && said != "" || !strings.Contains(said, c.want) || strings.Contains(said, "not known yet") {
				t.Errorf("allowed %v, %+v, warnings %q; want %q", got.Allowed, got.Result, said, c.want)
			}
		})
	}
}

// Checks that depend on the mesh configuration use that of the snapshot.
func TestMeshConfiguration(t *testing.T) {
	snapshot := known(t, &meshv1.MeshConfig{DefaultDestinationRuleExportTo: []string{"~", "a"}})
	w := over(snapshot)
	if got := w.Admit(t.Context(), Path, creation(t, []byte(of("DestinationRule", `{"host": "reviews"}`)))); got.Allowed {
		t.Error(`admitted with a default of ["~", "a"]`)
	}
}

// An object of 1 MB, and as many errors as fit: an answer of a few KB.
func TestLarge(t *testing.T) {
	for name, part := range map[string]string{"good": `{"route": [{"destination": {"host": "b"}}]},`, "wrong": `{"route": [{"destination": {"host": "$"}}]},`} {
		t.Run(name, func(t *testing.T) {
			spec := `{"hosts": ["a"], "http": [` + strings.TrimSuffix(strings.Repeat(part, 1<<20/len(part)), ",") + `]}`
			got := webhook().Admit(t.Context(), Path, creation(t, []byte(of("VirtualService", spec))))
			text, err := json.Marshal(got)
			if err != nil || got.Allowed != (name == "good") || len(text) > 64<<10 {
				t.Errorf("allowed %v, %d bytes: %.300s", got.Allowed, len(text), text)
			}
		})
	}
}

// Whatever object a request has, there is an answer.
func FuzzAdmit(f *testing.F) {
	all := corpus(f)
	for i := 0; i < len(all); i += 40 {
		f.Add([]byte(all[i].Object), []byte(nil))
	}
	f.Add([]byte(`{"apiVersion": "networking.istio.io/v1", "kind": "Sidecar", "metadata": 7}`), []byte("{"))
	w := webhook()
	f.Fuzz(func(t *testing.T, raw, before []byte) {
		var head metav1.TypeMeta
		_ = json.Unmarshal(raw, &head) // an invalid input has an empty head
		gvk := head.GroupVersionKind()
		r := &admissionv1.AdmissionRequest{UID: "1", Kind: metav1.GroupVersionKind(gvk), Operation: admissionv1.Update, Object: runtime.RawExtension{Raw: raw},
			OldObject: runtime.RawExtension{Raw: before}}
		got := w.Admit(context.Background(), Path, r)
		if got == nil || !got.Allowed && got.Result.Message == "" {
			t.Errorf("%+v", got)
		}
	})
}

// BenchmarkAdmit is one review of a middle-sized VirtualService.
func BenchmarkAdmit(b *testing.B) {
	spec := `{"hosts": ["a"], "http": [` + strings.TrimSuffix(strings.Repeat(`{"match": [{"uri": {"prefix": "/a"}, "headers": {"x": {"exact": "y"}}}], "timeout": "5s", "route": [{"destination": {"host": "b", "port": {"number": 80}}}]},`, 20), ",") + `]}`
	r, w := creation(b, []byte(of("VirtualService", spec))), webhook()
	for b.Loop() {
		if got := w.Admit(context.Background(), Path, r); !got.Allowed {
			b.Fatal(got.Result)
		}
	}
}

// A refusal has a readable length, for any number of errors; deleted objects are admitted, whatever their size.
// Promise: security-admission.md#expensive-objects
func TestManyErrors(t *testing.T) {
	wrong := `{"host": "a", "subsets": [` + strings.Repeat(`{"labels": {"a": 1}},`, 15_000) + `{}]}`
	got := webhook().Admit(t.Context(), Path, creation(t, []byte(of("DestinationRule", wrong))))
	text, err := json.Marshal(got)
	if got.Allowed || err != nil || len(text) > 64<<10 || !strings.Contains(got.Result.Message, "at least 90 more") {
		t.Errorf("%v, %d bytes: %.300v", got.Allowed, len(text), got.Result)
	}
	r := creation(t, []byte(strings.Replace(of("DestinationRule", wrong), `"metadata": {`, `"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z", `, 1)))
	if !webhook().Concerns(r) {
		t.Error("what is created is judged, whatever it says of itself")
	}
	if r.Operation = admissionv1.Update; webhook().Concerns(r) {
		t.Error("what is being deleted keeps its finalizers")
	}
}

// An EnvoyFilter with more patches than the limit is refused before a patch is validated, unless its spec was the same
// before.
func TestManyPatches(t *testing.T) {
	filter := func(n int) []byte {
		return []byte(of("EnvoyFilter", `{"configPatches": [`+strings.TrimSuffix(strings.Repeat(`{"applyTo": 7},`, n), ",")+`]}`))
	}
	const beyond = "configuration is invalid: spec.configPatches: has 1025 patches: at most 1024 may be in one EnvoyFilter, the others in more of them"
	r := creation(t, filter(maxPatches+1))
	if got := webhook().Admit(t.Context(), Path, r); got.Allowed || got.Result.Message != beyond {
		t.Errorf("%.300v", got.Result)
	}
	if got := webhook().Admit(t.Context(), Path, creation(t, filter(maxPatches))); got.Allowed || strings.Contains(got.Result.Message, "at most") {
		t.Errorf("%.300v", got.Result)
	}
	r.Operation, r.OldObject = admissionv1.Update, r.Object
	if got := webhook().Admit(t.Context(), Path, r); !got.Allowed || len(got.Warnings) != 1 {
		t.Errorf("what was there is held up: %.300v", got)
	}
}

// Validation stops once the client has disconnected.
// Promise: security-admission.md#expensive-objects
func TestGoneClients(t *testing.T) {
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	judged := 0
	w := webhook()
	w.judge = func(model.Record, *mirror.Snapshot) (refused, warned []error) {
		judged++
		return nil, nil
	}
	w.Admit(gone, Path, creation(t, []byte(of("DestinationRule", `{"host": "a"}`))))
	if judged > 0 {
		t.Error("it was judged")
	}
}

// Unknown fields below a long key do not need memory for that key each.
func TestUnknownFieldsBelowLongKeys(t *testing.T) {
	var unknown strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&unknown, `"u%d":1,`, i)
	}
	r := creation(t, []byte(of("VirtualService", fmt.Sprintf(`{"hosts":["a"],"http":[{"match":[{"headers":{"%s":{%s"exact":"b"}}}],"route":[{"destination":{"host":"a"}}]}]}`,
		strings.Repeat("k", 200_000), unknown.String()))))
	w := webhook()
	w.Admit(t.Context(), Path, r)
	var before, after goruntime.MemStats
	goruntime.ReadMemStats(&before)
	w.Admit(t.Context(), Path, r)
	goruntime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > 40<<20 {
		t.Errorf("a review takes %d bytes", took)
	}
}
