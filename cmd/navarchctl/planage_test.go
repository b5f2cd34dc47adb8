package main

import (
	"compress/gzip"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	meshv1 "istio.io/api/mesh/v1alpha1"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"navarch.io/navarch/cmd/navarchctl/analyze"
	"navarch.io/navarch/cmd/navarchd/judge"
	"navarch.io/navarch/push/preview"
	"navarch.io/navarch/store/admit/validate"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
)

const (
	router = `{"id": "router~10.1.0.10~gw.edge~edge.svc.cluster.local", "cluster": "gw.edge",
"metadata": {"NAMESPACE": "edge", "SERVICE_ACCOUNT": "gw", "INSTANCE_IPS": "10.1.0.10", "LABELS": {"istio": "ingressgateway"},
"CLUSTER_ID": "Kubernetes"}}`
	// A Gateway and its only route. The metadata of the Gateway follow its name.
	shopAt = `{apiVersion: networking.istio.io/v1, kind: Gateway, metadata: {name: NAME, namespace: NS}, spec: {
selector: {istio: ingressgateway}, servers: [{port: {number: 8443, name: https, protocol: HTTPS},
tls: {mode: SIMPLE, credentialName: c}, hosts: [HOSTS]}]}}
---
{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {name: v, namespace: NS}, spec: {
hosts: [a.com], gateways: [NS/GW], http: [{directResponse: {status: 200}}]}}
`
)

// planOf plans a change of a folder for the router, and returns the report.
func planOf(t *testing.T, before, change string) *preview.Report {
	t.Helper()
	dir, apart := t.TempDir(), t.TempDir()
	for path, text := range map[string]string{filepath.Join(dir, "a.yaml"): before, filepath.Join(apart, "b.yaml"): change,
		filepath.Join(apart, "node.json"): router} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p := planning{files: []string{filepath.Join(apart, "b.yaml")}, proxies: []string{filepath.Join(apart, "node.json")},
		from: offline{configDir: dir, cluster: "Kubernetes", domain: "cluster.local"}}
	c, err := p.read(nil)
	if err != nil {
		t.Fatal(err)
	}
	r, err := p.offline(t.Context(), &c, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// A Gateway without a creation time is the youngest, because it has not been created yet: it takes no host. A Gateway
// that the folder has keeps its time in the plan.
// Promise: gateways.md#which-server-gets-a-port-or-a-host
func TestPlanOrdersByAge(t *testing.T) {
	gateway := func(namespace, name, metadata, hosts string) string {
		return strings.NewReplacer("NAME", name+metadata, "GW", name, "NS", namespace, "HOSTS", hosts).Replace(shopAt)
	}
	old := gateway("team-a", "zz-old", `, creationTimestamp: "2026-01-01T00:00:00Z"`, "a.com")
	young := gateway("team-c", "aa-young", `, creationTimestamp: "2026-06-01T00:00:00Z"`, "a.com")
	for _, c := range []struct{ name, before, change, loser, winner string }{
		{"a new one", old, gateway("team-b", "b", "", "a.com, b.com"), "Gateway team-b/b", "Gateway team-a/zz-old"},
		{"a known one", old, gateway("team-a", "zz-old", "", "a.com, b.com") + "---\n" + young,
			"Gateway team-c/aa-young", "Gateway team-a/zz-old"},
	} {
		r := planOf(t, c.before, c.change)
		for _, risk := range r.Risks {
			if strings.Contains(risk.Text, "vanishes") {
				t.Errorf("%s: %+v", c.name, risk)
			}
		}
		found := r.Problems.New
		if len(found) != 1 || found[0].Object != c.loser || !strings.Contains(found[0].Message, c.winner) {
			t.Errorf("%s: %+v, want %s to lose to %s", c.name, found, c.loser, c.winner)
		}
	}
}

// A plan refuses exactly what the webhook refuses, and analyze has it as an error, not as a value that the API admits.
// Promise: plan.md#edge-cases
func TestOneRefusal(t *testing.T) {
	for _, c := range []struct{ name, rule, field string }{
		{"a method of CORS", `corsPolicy: {allowOrigins: [{exact: x}], allowMethods: ["*"]}`,
			"spec.http[0].corsPolicy.allowMethods[0]"},
		{"an empty prefix", `match: [{headers: {x-user: {prefix: ""}}}]`, "spec.http[0].match[0].headers[x-user].prefix"},
		{"a removed pseudo-header", `headers: {request: {remove: [":path"]}}`, "spec.http[0].headers.request.remove[0]"},
		{"two hosts", `headers: {request: {set: {Host: h.com, ":authority": i.com}}}`,
			"spec.http[0].headers.request.set[Host]"},
		{"a port of a gateway", "match: [{port: 8000}]", ""},
	} {
		text := "{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {name: v, namespace: edge}, " +
			"spec: {hosts: [v.com], gateways: [gw], http: [{" + c.rule + ", route: [{destination: {host: web.com}}]}]}}"
		raw, err := yaml.YAMLToJSON([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		id := object.ID{Group: model.GroupNetworking, Kind: "VirtualService", Namespace: "edge", Name: "v"}
		one := &object.Object{ID: id, Version: "v1", JSON: raw}
		answer := newWebhook().Admit(t.Context(), validate.Path, creationOf(one))
		if answer.Allowed != (c.field == "") || !answer.Allowed && !strings.Contains(answer.Result.Message, c.field) {
			t.Errorf("%s: the webhook admits it: %v, %v", c.name, answer.Allowed, answer.Result)
		}
		if r := planOf(t, "", text); r.Refused() != (c.field != "") {
			t.Errorf("%s: the plan refuses it: %v, %+v", c.name, r.Refused(), r.Objects)
		}
		refused := ""
		in := analyze.Input{Events: []object.Event{{Op: object.Put, ID: id, Object: one}}}
		for _, f := range analyze.Run(in, analyze.Config{}) {
			switch {
			case f.Code == string(problem.SchemaValidationError) && f.Severity == problem.Error:
				refused = f.Field
			case f.Field == c.field:
				t.Errorf("%s: analyze does not call it refused: %+v", c.name, f)
			}
		}
		if refused != c.field {
			t.Errorf("%s: analyze has an error at %q, want %q", c.name, refused, c.field)
		}
	}
}

// Plan and analyze refuse what the webhook refuses, of the objects on which the webhook is compared with Istio.
func TestRefusalsOfTheCorpus(t *testing.T) {
	f, err := os.Open("../../store/admit/validate/testdata/validation.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	unzipped, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var corpus []struct{ Object json.RawMessage }
	if err := json.NewDecoder(unzipped).Decode(&corpus); err != nil {
		t.Fatal(err)
	}
	webhook := newWebhook()
	differ := 0
	for _, one := range corpus {
		var of metav1.PartialObjectMetadata
		if err := json.Unmarshal(one.Object, &of); err != nil {
			t.Fatal(err)
		}
		id := object.ID{Group: of.GroupVersionKind().Group, Kind: of.Kind, Namespace: of.Namespace, Name: of.Name}
		o := &object.Object{ID: id, Version: of.GroupVersionKind().Version, Labels: of.Labels, Annotations: of.Annotations,
			JSON: one.Object, Location: "f#1"}
		answer := webhook.Admit(t.Context(), validate.Path, creationOf(o))
		c, from := change{put: []*object.Object{o}}, offline{cluster: "Kubernetes", domain: "cluster.local"}
		_, events := c.applied(nil)
		after, found, refused, err := from.reviewed(nil, events)
		if err != nil {
			t.Fatal(err)
		}
		planned := c.proposals(mirror.Empty(), after, found, refused)[0]
		analysed := analyze.Run(analyze.Input{Events: events}, analyze.Config{})
		isRefusal := func(f analyze.Finding) bool { return f.Code == string(problem.SchemaValidationError) }
		byPlan, byAnalysis := planned.Act == preview.Refused, slices.ContainsFunc(analysed, isRefusal)
		if byPlan == answer.Allowed || byAnalysis == answer.Allowed {
			if differ++; differ < 20 {
				t.Errorf("%v: refused by the plan: %v, by analyze: %v, by the webhook: %v\n%v\n%s", id, byPlan, byAnalysis,
					answer.Result, planned.Problems, one.Object)
			}
		}
	}
	if differ > 0 {
		t.Errorf("%d of %d objects differ", differ, len(corpus))
	}
}

// newWebhook returns a webhook that knows nothing of a mesh.
func newWebhook() *validate.Webhook {
	return validate.New(normal.New(normal.Options{}), func() *meshv1.MeshConfig { return nil },
		func() *mirror.Snapshot { return nil }, func(string) (string, bool) { return "", true }, judge.Record)
}

// creationOf is the request to create an object.
func creationOf(o *object.Object) *admissionv1.AdmissionRequest {
	return &admissionv1.AdmissionRequest{UID: "1", Operation: admissionv1.Create, Name: o.ID.Name, Namespace: o.ID.Namespace,
		Kind:   metav1.GroupVersionKind{Group: o.ID.Group, Version: o.Version, Kind: o.ID.Kind},
		Object: runtime.RawExtension{Raw: o.JSON}}
}

// The API server admits an invalid object of Kubernetes' kinds, so the plan has the problem, and the old object stays.
// Promise: plan.md#edge-cases
func TestPlanAdmitsWhatTheWebhookDoesNotReview(t *testing.T) {
	service := func(port string) string {
		return "{apiVersion: v1, kind: Service, metadata: {name: web, namespace: edge}, spec: {clusterIP: 10.96.0.1, ports: [{name: http, port: " +
			port + "}]}}"
	}
	r := planOf(t, service("80"), service("99999"))
	if r.Refused() || len(r.Affected) > 0 || len(r.Objects) != 1 || len(r.Objects[0].Problems) != 1 ||
		r.Objects[0].Problems[0].Severity != problem.Error {
		t.Errorf("%+v, %d views are affected", r.Objects, len(r.Affected))
	}
}
