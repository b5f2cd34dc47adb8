package normal

import (
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	meshv1 "istio.io/api/mesh/v1alpha1"
	"sigs.k8s.io/yaml"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/origin"
	"navarch.io/navarch/store/problem"
)

// read makes an object of YAML, as a source would.
func read(t testing.TB, text string) *object.Object {
	t.Helper()
	raw, err := yaml.YAMLToJSONStrict([]byte(text))
	if err != nil {
		t.Fatalf("test input: %v\n%s", err, text)
	}
	var head struct {
		APIVersion string
		Kind       string
		Metadata   struct {
			Name, Namespace     string
			Labels, Annotations map[string]string
			CreationTimestamp   time.Time
		}
	}
	if err := json.Unmarshal(raw, &head); err != nil {
		t.Fatalf("test input: %v", err)
	}
	group, version, ok := strings.Cut(head.APIVersion, "/")
	if !ok {
		group, version = "", group
	}
	m := head.Metadata
	return &object.Object{ID: object.ID{Group: group, Kind: head.Kind, Namespace: m.Namespace, Name: m.Name}, Version: version,
		Created: m.CreationTimestamp, Labels: m.Labels, Annotations: m.Annotations, JSON: raw, Location: "test.yaml#1"}
}

// fake is a Lookup over maps.
type fake struct {
	Nobody
	pods     map[string]*Pod
	nodes    map[string]*Node
	spaces   map[string]*Namespace
	mesh     *meshv1.MeshConfig
	networks *meshv1.MeshNetworks
	roles    map[object.ID]*Role
	given    map[object.ID]map[string][]string
	resolved map[object.ID][]string
	keys     map[object.ID]Keys
}

func (f *fake) Pod(id object.ID) *Pod { return f.pods[id.Namespace+"/"+id.Name+id.Origin.Suffix()] }
func (f *fake) PodAt(id object.ID) *Pod {
	for name, pod := range f.pods {
		if strings.HasPrefix(name, id.Namespace+"/") && pod.Address == id.Name {
			return pod
		}
	}
	return nil
}
func (f *fake) Node(id object.ID) *Node { return f.nodes[id.Name+id.Origin.Suffix()] }
func (f *fake) Nodes(of origin.Origin) iter.Seq[*Node] {
	return func(yield func(*Node) bool) {
		for name, n := range f.nodes {
			if strings.HasSuffix(name, of.Suffix()) && !yield(n) {
				return
			}
		}
	}
}
func (f *fake) Namespace(id object.ID) *Namespace { return f.spaces[id.Name+id.Origin.Suffix()] }
func (f *fake) Mesh() *meshv1.MeshConfig {
	if f.mesh == nil {
		return model.MeshDefaults()
	}
	return f.mesh
}
func (f *fake) Role(id object.ID) *Role        { return f.roles[id] }
func (f *fake) Networks() *meshv1.MeshNetworks { return f.networks }

func (f *fake) Resolved(id object.ID) []string { return f.resolved[id] }

func (f *fake) Keys(id object.ID) Keys { return f.keys[id] }

func (f *fake) Automatic(id object.ID) map[string][]string { return f.given[id] }
func (f *fake) AutomaticAt(id object.ID) object.ID {
	for of, hosts := range f.given {
		for _, addresses := range hosts {
			if slices.Contains(addresses, id.Name) {
				return of
			}
		}
	}
	return object.ID{}
}

var testNormal = New(Options{})

// istio is an object of a kind with a definition, in namespace shop, with this spec.
func istio(kind, spec string) string {
	version := model.GroupNetworking + "/v1"
	for of, row := range kinds {
		if of.kind == kind && model.Defined(of.group) {
			version = of.group + "/" + row.versions[0]
		}
	}
	return fmt.Sprintf("apiVersion: %s\nkind: %s\nmetadata: {name: x, namespace: shop}\nspec:\n  %s\n", version, kind,
		strings.ReplaceAll(strings.TrimSpace(spec), "\n", "\n  "))
}

// wantBody fails unless the record is there with this body, in YAML of the message.
func wantBody(t *testing.T, result Result, key model.Key, body string) {
	t.Helper()
	for _, r := range result.Records {
		if r.Meta().Key != key {
			continue
		}
		raw, err := yaml.YAMLToJSONStrict([]byte(body))
		if err != nil {
			t.Fatal(err)
		}
		want := r.Body().ProtoReflect().New().Interface()
		if err := protojson.Unmarshal(raw, want); err != nil {
			t.Fatalf("test input: %v", err)
		}
		if !proto.Equal(r.Body(), want) {
			t.Errorf("%v:\n got %s\nwant %s", key, protojson.Format(r.Body()), protojson.Format(want))
		}
		return
	}
	t.Errorf("no record %v among %v; problems %v", key, result.Records, result.Problems)
}

// wantProblems fails unless the problems are these, each "field: part of the message" with "warning " in front of
// warnings.
func wantProblems(t *testing.T, problems []object.Problem, want ...string) {
	t.Helper()
	left := want
	for _, p := range problems {
		if p.Analyzer == problem.ServiceEntryAddressesRequired { // TestAnalyzersCodes has it, and many entries here have ports of no protocol
			continue
		}
		if p.Code == "" || p.Severity == "" {
			t.Errorf("%v has no code or no severity", p)
		}
		text := p.Field + ": " + p.Message
		if p.Severity == problem.Warning {
			text = "warning " + text
		}
		if len(left) == 0 || !strings.HasPrefix(text, strings.SplitN(left[0], "|", 2)[0]) || !containsAll(text, left[0]) {
			t.Errorf("problem %q\nwanted %q of %q", text, left, want)
			return
		}
		left = left[1:]
	}
	if len(left) > 0 {
		t.Errorf("missing problems %q; got %v", left, problems)
	}
}

func containsAll(text, parts string) bool {
	for _, part := range strings.Split(parts, "|") {
		if !strings.Contains(text, part) {
			return false
		}
	}
	return true
}

func TestEveryServedVersionGivesTheSameRecord(t *testing.T) {
	for kind, spec := range map[string]string{
		"VirtualService":        "{hosts: [a], http: [{route: [{destination: {host: a}}]}]}",
		"DestinationRule":       "{host: a}",
		"ServiceEntry":          "{hosts: [a.example.com], ports: [{number: 80, name: http}], resolution: DNS}",
		"Sidecar":               "{egress: [{hosts: ['./*']}]}",
		"EnvoyFilter":           "{configPatches: [{applyTo: CLUSTER, patch: {operation: REMOVE}}]}",
		"PeerAuthentication":    "{mtls: {mode: PERMISSIVE}}",
		"AuthorizationPolicy":   "{action: DENY}",
		"RequestAuthentication": "{jwtRules: [{issuer: a, jwks: '" + oneKey + "'}]}",
	} {
		o := read(t, istio(kind, spec))
		first := testNormal.Object(o, &fake{})
		if first.Spoiled || len(first.Records) == 0 {
			t.Errorf("%s: %v", kind, first.Problems)
			continue
		}
		versions := []string{"v1beta1"}
		if o.ID.Group == model.GroupNetworking {
			versions = append(versions, "v1alpha3")
		}
		for _, v := range versions {
			o.Version = v
			if r := testNormal.Object(o, &fake{}); r.Spoiled || r.Records[0].Meta().Hash != first.Records[0].Meta().Hash {
				t.Errorf("%s %s: differs from v1: %v", kind, v, r.Problems)
			}
		}
		o.Version = "v9"
		if r := testNormal.Object(o, &fake{}); !r.Spoiled {
			t.Errorf("%s v9 was taken", kind)
		}
	}
}

func TestUnknownKinds(t *testing.T) {
	r := testNormal.Object(read(t, "apiVersion: networking.istio.io/v1\nkind: ProxyConfigs\nmetadata: {name: g, namespace: shop}"), &fake{})
	wantProblems(t, r.Problems, "warning : kind ProxyConfigs|not acted on yet")
	r = testNormal.Object(read(t, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: istio, namespace: shop}\ndata: {mesh: a}"), &fake{})
	wantProblems(t, r.Problems, "warning metadata.namespace: not acted on: the mesh configuration is read from namespace istio-system")
	r = testNormal.Object(read(t, "apiVersion: apps/v1\nkind: Deploymnt\nmetadata: {name: d}"), &fake{})
	wantProblems(t, r.Problems, "warning : kind Deploymnt of apps is not acted on: the object is left out")
	r = testNormal.Object(read(t, "apiVersion: v1\nkind: Servce\nmetadata: {name: d}"), &fake{})
	wantProblems(t, r.Problems, "warning : kind Servce of the core group is not acted on")
	r = testNormal.Object(read(t, "apiVersion: cert-manager.io/v1\nkind: Certificate\nmetadata: {name: d}"), &fake{})
	wantProblems(t, r.Problems, "warning : kind Certificate of cert-manager.io is not acted on")
	for _, other := range []string{"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}", "apiVersion: v1\nkind: Secret\nmetadata: {name: s}"} {
		if r := testNormal.Object(read(t, other), &fake{}); len(r.Problems)+len(r.Records) > 0 || r.Spoiled {
			t.Errorf("%s: %+v", other, r)
		}
	}
}

func TestDecodeNamesTheField(t *testing.T) {
	for _, c := range []struct {
		spec    string
		spoiled bool
		want    string
	}{
		{"{hosts: [a], http: [{route: [{destination: {host: a}, wieght: 3}]}]}", false, "warning spec.http[0].route[0].wieght: unknown field"},
		{"{hosts: [a], http: [{timeout: soon, route: [{destination: {host: a}}]}]}", true, `spec.http[0].timeout: "soon" is not a duration`},
		{"{hosts: a}", true, "spec.hosts: must be a list"},
		{"{hosts: [1]}", true, "spec.hosts[0]: must be a string, not 1"},
		{"{hosts: [null]}", true, "spec.hosts[0]: must not be null"},
		{"{hosts: [a], http: [null]}", true, "spec.http[0]: must not be null"},
		{"{hosts: [a], http: {}}", true, "spec.http: must be a list, not an object"},
		{"{hosts: [a], http: [{match: [{port: -1}], route: [{destination: {host: a}}]}]}", true, "spec.http[0].match[0].port: must not be negative"},
		{"{hosts: [a], http: [{corsPolicy: {unmatchedPreflights: MAYBE}}]}", true, `spec.http[0].corsPolicy.unmatchedPreflights: unknown value "MAYBE"`},
		{"{hosts: [a], http: [{match: [{ignoreUriCase: 'yes'}]}]}", true, "spec.http[0].match[0].ignoreUriCase: must be true or false"},
		{"{hosts: [a], http: [{match: [{headers: {x: {exakt: y}}}], route: [{destination: {host: a}}]}]}", false, "warning spec.http[0].match[0].headers[x].exakt: unknown field: without it the match has no condition, and matches every value"},
		{"{hosts: [a], http: [{match: [{uri: {prefx: /f}}], route: [{destination: {host: a}}]}]}", false, "warning spec.http[0].match[0].uri.prefx: unknown field: without it the match has no condition, and matches every value"},
		{"{hosts: [a], http: [{match: [{url: {prefix: /f}}], route: [{destination: {host: a}}]}]}", false, "warning spec.http[0].match[0].url: unknown field: without it the match has no condition, and matches every request"},
		{"[]", true, "spec: must be an object, not a list"},
	} {
		r := testNormal.Object(read(t, istio("VirtualService", c.spec)), &fake{})
		wantProblems(t, r.Problems, c.want)
		if r.Spoiled != c.spoiled || c.spoiled != (len(r.Records) == 0) {
			t.Errorf("%s: spoiled %v with %d records", c.spec, r.Spoiled, len(r.Records))
		}
	}
}

func TestDurationsAsIstioTakesThem(t *testing.T) {
	for _, text := range []string{"1.5s", "1500ms", "0.025m"} {
		r := testNormal.Object(read(t, istio("VirtualService", "{hosts: [a], http: [{timeout: "+text+", route: [{destination: {host: a}}]}]}")), &fake{})
		if r.Spoiled {
			t.Fatalf("%s: %v", text, r.Problems)
		}
		if d := r.Records[0].(*model.VirtualService).Spec.Http[0].Timeout.AsDuration(); d != 1500*time.Millisecond {
			t.Errorf("%s: %v", text, d)
		}
	}
}

// Objects with the same meaning yield the same bytes.
func TestSemanticNoOpsGiveTheSameHash(t *testing.T) {
	for name, pair := range map[string][2]string{
		"default gateway": {istio("VirtualService", "{hosts: [a], http: [{route: [{destination: {host: a}}]}]}"),
			istio("VirtualService", "{http: [{route: [{destination: {host: A.shop.svc.cluster.local}}]}], exportTo: ['*'], gateways: [mesh], hosts: [a.shop.svc.cluster.local]}")},
		"own namespace": {istio("DestinationRule", "{host: a, exportTo: ['.', b], subsets: [{name: v1}, {name: v2}]}"),
			istio("DestinationRule", "{host: a, exportTo: [b, shop, b], subsets: [{name: v2}, {name: v1}]}")},
		"order of hosts": {istio("Sidecar", "{egress: [{hosts: ['./*', 'b/x.b.svc.cluster.local']}]}"), istio("Sidecar", "{egress: [{hosts: ['b/x', './*']}]}")},
		"order of ports": {service("ports: [{name: http, port: 80}, {name: tcp, port: 90}], clusterIP: 10.0.0.1"),
			service("clusterIPs: [10.0.0.1], ports: [{name: tcp, port: 90, targetPort: 90}, {name: http, port: 80}]")},
	} {
		a, b := testNormal.Object(read(t, pair[0]), &fake{}), testNormal.Object(read(t, pair[1]), &fake{})
		if a.Spoiled || b.Spoiled {
			t.Errorf("%s: %v %v", name, a.Problems, b.Problems)
		} else if a.Records[0].Meta().Hash != b.Records[0].Meta().Hash {
			t.Errorf("%s:\n%s\n%s", name, protojson.Format(a.Records[0].Body()), protojson.Format(b.Records[0].Body()))
		}
	}
}

// Owner is the inverse of the keys that records get.
func TestOwner(t *testing.T) {
	for _, text := range []string{
		istio("ServiceEntry", "{hosts: [a.example.com, b.example.com], ports: [{number: 80, name: http}], resolution: DNS}"),
		istio("ServiceEntry", "{hosts: [a.example.com], ports: [{number: 80, name: http}], resolution: STATIC, endpoints: [{address: 1.2.3.4}]}"),
		service("type: ExternalName, externalName: a.example.com, ports: [{port: 80}]"),
		istio("PeerAuthentication", "{}"), istio("AuthorizationPolicy", "{}"), istio("Sidecar", "{}"), istio("DestinationRule", "{host: a}"), slice,
	} {
		o := read(t, text)
		r := testNormal.Object(o, &fake{})
		if len(r.Records) == 0 {
			t.Errorf("%v: no records: %v", o.ID, r.Problems)
		}
		for _, record := range r.Records {
			if got := SourceObject(record.Meta().Key); got != o.ID {
				t.Errorf("%v: source %v, want %v", record.Meta().Key, got, o.ID)
			}
		}
	}
}

func FuzzObject(f *testing.F) {
	for key := range kinds {
		o := read(f, strings.ReplaceAll(istio(key.kind, "{}"), "spec:", "data:"))
		f.Add(key.group, key.kind, "v1", string(o.JSON))
	}
	f.Add(model.GroupNetworking, "VirtualService", "v1", `{"spec":{"hosts":["a"],"http":[{"match":[{"uri":{"prefix":"/"}}],"route":[{"destination":{"host":"a"},"weight":1}],"retries":{"attempts":1}}]}}`)
	f.Add(model.GroupNetworking, "ServiceEntry", "v1", `{"spec":{"hosts":["a.b"],"ports":[{"number":80,"name":"x"}],"resolution":"STATIC","endpoints":[{"address":"1.1.1.1"}]}}`)
	f.Add(model.GroupDiscovery, "EndpointSlice", "v1", `{"addressType":"IPv4","ports":[{"port":1}],"endpoints":[{"addresses":["1.1.1.1"],"targetRef":{"kind":"Pod","name":"p"}}]}`)
	f.Add("", "Service", "v1", `{"spec":{"ports":[{"port":80,"targetPort":"x"}],"clusterIPs":["None"]}}`)
	f.Add("", "ConfigMap", "v1", `{"data":{"mesh":"a: b","meshNetworks":"networks: {a: {endpoints: [{fromCidr: x}]}}"}}`)
	f.Fuzz(func(t *testing.T, group, kind, version, raw string) {
		o := &object.Object{ID: object.ID{Group: group, Kind: kind, Namespace: "shop", Name: "x"}, Version: version, JSON: []byte(raw),
			Labels: map[string]string{"kubernetes.io/service-name": "a"}}
		r := testNormal.Object(o, &fake{})
		again := testNormal.Object(o, &fake{})
		if r.Spoiled != again.Spoiled || len(r.Records) != len(again.Records) || r.Spoiled && len(r.Records) > 0 {
			t.Fatalf("not a function: %+v, %+v", r, again)
		}
		for i, record := range r.Records {
			if record.Meta().Hash != again.Records[i].Meta().Hash || SourceObject(record.Meta().Key) != o.ID {
				t.Fatalf("record %v", record.Meta().Key)
			}
		}
		if r.Spoiled && IsPolicy(o.ID) && !r.Closed.(*model.Policy).Spec.Closed {
			t.Fatal("a spoiled policy is not closed")
		}
		ParsePod(o)
		testNormal.ParseMesh(o)
	})
}

// Each kind of record names the objects that it is made of by a group and kind that are read.
func TestKindsOfRecordsAreRead(t *testing.T) {
	for _, k := range model.Kinds() {
		group, kind := k.Object()
		if _, is := kinds[kindKey{group, kind}]; !is {
			t.Errorf("%v is made of %s.%s, which is not read: its row in store/model names another group or kind, or the table of kinds here lacks it", k, kind, group)
		}
	}
}
