package inspect

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/build/cluster"
	"navarch.io/navarch/push/build/listener"
	"navarch.io/navarch/push/build/vhost"
	"navarch.io/navarch/push/traffic"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
)

func record(t *testing.T, kind model.Kind, name string, body proto.Message) model.Record {
	t.Helper()
	key := model.Key{Kind: kind, Namespace: "shop", Name: name}
	if kind == model.KindMesh {
		key = model.MeshKey
	}
	r, err := model.New(key, 0, body)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// The inputs of a resource are its Spec, in the terms of users: objects by kind, namespace and name, with the field in
// them; properties of the proxy; and decisions of the plan.
func TestInputs(t *testing.T) {
	config := model.MeshDefaults()
	config.ConnectTimeout = durationpb.New(time.Second)
	mesh := record(t, model.KindMesh, "", config).(*model.Mesh)
	rule := record(t, model.KindDestinationRule, "web", &networkingv1.DestinationRule{Host: "web",
		Subsets: []*networkingv1.Subset{{Name: "v1"}, {Name: "v2"}}}).(*model.DestinationRule)
	filter := record(t, model.KindEnvoyFilter, "f", &networkingv1.EnvoyFilter{}).(*model.EnvoyFilter)
	var members intern.Table[model.Member]
	var patches intern.Table[model.Patch]
	got := Inputs(cluster.Outbound{
		Host: "web.shop.svc.cluster.local", Port: 80, Subset: "v2", Rule: rule, SubsetRule: rule, Mesh: mesh, TLS: traffic.AutoEndpoints,
		Caps: xds.CapALPN | xds.CapIdentity, Patches: patches.List(model.Patch{Filter: filter, Index: 3}),
		Members: members.List(model.Member{Endpoint: &model.Endpoint{Address: "10.0.0.1", Namespace: "shop", Workload: "web"}, Port: 8080}),
	})
	want := []Input{
		{"host", FromPlan, []string{"web.shop.svc.cluster.local"}},
		{"port", FromPlan, []string{"80"}},
		{"subset", FromPlan, []string{"v2"}},
		{"traffic policy", FromObject, []string{"DestinationRule shop/web spec.trafficPolicy"}},
		{"definition of the subset", FromObject, []string{"DestinationRule shop/web spec.subsets[1]"}},
		{"TLS (as the rule says, else MeshConfig enableAutoMtls)", FromPlan, []string{"mutual, to endpoints with tlsMode istio"}},
		{"endpoints", FromPlan, []string{"10.0.0.1:8080 (shop/web)"}},
		{"mesh configuration", FromObject, []string{"MeshConfig connectTimeout"}},
		{"extensions and certificate", FromProxy, []string{"a certificate of the mesh, istio.alpn"}},
		{"patch", FromObject, []string{"EnvoyFilter shop/f spec.configPatches[3]"}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
	var destinations intern.Table[vhost.Destination]
	got = Inputs(vhost.Spec{Destinations: destinations.List(vhost.Destination{Host: "a", Cluster: xds.ClusterName{Port: 80, Host: "a"}})})
	if want := []Input{{"destinations", FromPlan, []string{"host: a; cluster: outbound|80||a"}}}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
	got = Inputs(cluster.Inbound{Port: 80, Pool: &networkingv1.ConnectionPoolSettings{}, PoolAt: model.Place{Key: rule.Key, Field: "spec.trafficPolicy.connectionPool"}})
	if want := []Input{{"port", FromPlan, []string{"80"}},
		{"connection pool (of the Sidecar, else of the service's rules, else of MeshConfig defaultTrafficPolicy)", FromObject, []string{"DestinationRule shop/web spec.trafficPolicy.connectionPool"}}}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
	for last, words := range map[uint8]string{uint8(traffic.Closed): "traffic.TLS", uint8(traffic.Dynamic): "traffic.Discovery", uint8(listener.Refused): "listener.MTLS"} {
		if len(choices[words]) != int(last)+1 {
			t.Errorf("%s has %d values, and words for %d", words, last+1, len(choices[words]))
		}
	}
	defaults := record(t, model.KindMesh, "", model.MeshDefaults()).(*model.Mesh)
	got = Inputs(listener.Ingress{Common: listener.Common{Mesh: defaults}, Inner: listener.InboundPort{Port: 80, Protocol: model.Protocol_PROTOCOL_HTTP2, MTLS: listener.Strict}})
	if want := []Input{{"mesh configuration", FromObject, []string{"MeshConfig"}},
		{"port of the workload", FromPlan, []string{"port: 80; protocol: HTTP2; mutual TLS: strict"}}}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
}

// specFiles are the files that declare the Specs of builders, by package.
func specFiles(t *testing.T) map[string][]string {
	t.Helper()
	files := map[string][]string{"front": {"../plan/front/source.go"}, "gateway": {"../plan/front/gateway/explain.go"},
		"secret": {"../build/secret/secret.go"}}
	found, err := filepath.Glob("../build/*/*spec.go")
	if err != nil || len(found) < 5 {
		t.Fatalf("%v: %q", err, found)
	}
	for _, file := range found {
		pkg := filepath.Base(filepath.Dir(file))
		files[pkg] = append(files[pkg], file)
	}
	return files
}

// Every field of every Spec has a word that users know, and every Spec names its part; no word is of a field that does
// not exist.
func TestEveryFieldHasAWord(t *testing.T) {
	used, made := map[string]bool{}, map[string]bool{}
	for pkg, files := range specFiles(t) {
		for _, file := range files {
			tree, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(tree, func(n ast.Node) bool {
				spec, ok := n.(*ast.TypeSpec)
				if !ok || !spec.Name.IsExported() {
					return true
				}
				if body, ok := spec.Type.(*ast.StructType); ok {
					made[pkg+"."+spec.Name.Name] = true
					fieldsHaveWords(t, pkg+"."+spec.Name.Name, body, used)
				} else if choices[pkg+"."+spec.Name.Name] == nil {
					t.Errorf("%s.%s has no words for its values: choices in words.go", pkg, spec.Name.Name)
				}
				return true
			})
		}
	}
	for word := range words {
		if !used[word] {
			t.Errorf("no Spec has the field %s", word)
		}
	}
	for part := range parts {
		if !made[part] {
			t.Errorf("there is no Spec %s", part)
		}
	}
	inner := []string{"dnscache.Unknown", "endpoint.Balance", "listener.Common", "listener.Chain", "listener.Target", "listener.InboundPort",
		"listener.ServerTLS", "listener.ServerHTTP", "listener.Secret", "vhost.Destination", "vhost.Rule",
		"telemetry.Spec", "telemetry.Log", "telemetry.Service", "telemetry.Tracing", "telemetry.Tag", "telemetry.Metrics", "telemetry.Override", "telemetry.Address"} // of a Spec
	for _, spec := range slices.Sorted(maps.Keys(made)) {
		if parts[spec] == "" && !slices.Contains(inner, spec) {
			t.Errorf("it is not said what %s makes: parts in words.go", spec)
		}
	}
}

func fieldsHaveWords(t *testing.T, spec string, body *ast.StructType, used map[string]bool) {
	t.Helper()
	for _, field := range body.Fields.List {
		for _, name := range field.Names {
			if words[name.Name] == "" && name.IsExported() {
				t.Errorf("%s.%s has no word: words in words.go", spec, name.Name)
			}
			used[name.Name] = true
		}
	}
}

// The fields of MeshConfig that builders read are those that explain names.
func TestMeshFields(t *testing.T) {
	reads := regexp.MustCompile(`(?i)\bmesh(?:\.spec|\(\))?\.Get(\w+)\(`)
	fields := model.MeshDefaults().ProtoReflect().Descriptor().Fields()
	for builder, listed := range map[string][]protoreflect.Name{"cluster": cluster.MeshFields, "listener": listener.MeshFields, "vhost": vhost.MeshFields} {
		found := map[string]bool{}
		folders := []string{builder}
		if builder == "cluster" {
			folders = append(folders, "../traffic") // by its policies
		}
		if builder != "vhost" {
			folders = append(folders, "identity")
		}
		if builder == "listener" {
			folders = append(folders, "telemetry")
		}
		for _, folder := range folders {
			files, err := filepath.Glob("../build/" + folder + "/*.go")
			if err != nil || len(files) == 0 {
				t.Fatalf("%s: %v", folder, err)
			}
			for _, file := range files {
				raw, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				for _, m := range reads.FindAllStringSubmatch(string(raw), -1) {
					found[strings.ToLower(m[1])] = true
				}
			}
		}
		for _, name := range listed {
			field := fields.ByName(name)
			if field == nil {
				t.Errorf("MeshConfig has no field %s", name)
				continue
			}
			if goName := strings.ToLower(field.JSONName()); !found[goName] {
				t.Errorf("the builder %s does not read MeshConfig %s", builder, field.JSONName())
			} else {
				delete(found, goName)
			}
		}
		for name := range found {
			t.Errorf("the builder %s reads %s of MeshConfig: MeshFields of its spec.go", builder, name)
		}
	}
}

// A setting of MeshConfig by which the plan has decided is named with its decision, also if the decision is no. A
// setting that only decides which objects a proxy sees has no word, because those objects are absent.
func TestMeshFieldsOfThePlan(t *testing.T) {
	got := Inputs(vhost.CatchAll{})
	if want := []Input{{"unknown destinations pass (outboundTrafficPolicy of the Sidecar, else of MeshConfig)", FromPlan, []string{"no"}}}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
	absent := []string{"rootNamespace", "defaultVirtualServiceExportTo", "defaultDestinationRuleExportTo"}
	fields, found := model.MeshDefaults().ProtoReflect().Descriptor().Fields(), 0
	reads := regexp.MustCompile(`(?i)\bmesh(?:\(\))?\.Spec\.Get(\w+)\(`)
	err := filepath.WalkDir("../plan", func(file string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(file, ".go") {
			return err
		}
		raw, err := os.ReadFile(file)
		for _, m := range reads.FindAllStringSubmatch(string(raw), -1) {
			found++
			name := strings.ToLower(m[1][:1]) + m[1][1:]
			said := slices.ContainsFunc(slices.Collect(maps.Values(wordsOf)), func(word string) bool { return strings.Contains(word, name) })
			if fields.ByJSONName(name) == nil || !said && !slices.Contains(absent, name) {
				t.Errorf("%s decides by MeshConfig %s, of which explain says nothing: wordsOf in words.go", file, name)
			}
		}
		return err
	})
	if err != nil || found < 8 {
		t.Errorf("%d settings are read, %v: they are looked for in another way than they are read in", found, err)
	}
}
