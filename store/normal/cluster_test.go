package normal

import (
	"testing"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/origin"
	"navarch.io/navarch/store/problem"
)

// in is an object of a cluster.
func in(cluster string, o *object.Object) *object.Object {
	moved := *o
	moved.ID.Origin = origin.New(cluster, "files")
	return &moved
}

// Records have the origin of their object, and so do the objects that it is joined with: a Pod of the same name in
// another cluster is another Pod.
func TestRecordsOfAnotherCluster(t *testing.T) {
	obj := in("west", read(t, slice))
	lookup := &fake{pods: map[string]*Pod{"shop/web-1": {ServiceAccount: "config"}, "shop/web-1 in cluster west": {ServiceAccount: "west"}},
		spaces: map[string]*Namespace{"istio-system": {Network: "n0"}, "istio-system in cluster west": {Network: "n1"}}}
	result := testNormal.Object(obj, lookup)
	if len(result.Records) != 1 || result.Records[0].Meta().Key != (model.Key{Kind: model.KindEndpoints, Namespace: "shop", Name: "web-1", Origin: obj.ID.Origin}) {
		t.Fatalf("records %v, problems %v", result.Records, result.Problems)
	}
	for _, e := range result.Records[0].(*model.Endpoints).Spec.Endpoints {
		if e.Cluster != "west" || e.Network != "n1" || e.Address == "10.1.0.1" && e.ServiceAccount != "west" {
			t.Errorf("endpoint %v", e)
		}
	}
	for _, ref := range result.Refs {
		if ref.Origin != obj.ID.Origin {
			t.Errorf("joined with %v", ref)
		}
	}
	if source := SourceObject(result.Records[0].Meta().Key); source != obj.ID {
		t.Errorf("its source is %v", source)
	}
}

// A WorkloadEntry describes a workload, and is one of its own cluster.
func TestWorkloadEntryOfAnotherCluster(t *testing.T) {
	for cluster, called := range map[string]string{"west": "west", "": "Kubernetes"} {
		obj := in(cluster, read(t, istio("WorkloadEntry", "address: 10.2.0.1\nserviceAccount: vm\nlabels: {app: x}")))
		result := testNormal.Object(obj, &fake{})
		if len(result.Records) != 1 || len(result.Problems) != 0 {
			t.Errorf("of cluster %q: records %v, problems %v", cluster, result.Records, result.Problems)
			continue
		}
		w := result.Records[0].(*model.Workload)
		e := w.Spec.GetEndpoint()
		if w.Key.Origin != obj.ID.Origin || e.Cluster != called || e.Address != "10.2.0.1" || e.ServiceAccount != "vm" || !e.Mtls || e.Labels["app"] != "x" {
			t.Errorf("of cluster %q: %v %v", cluster, w.Key, e)
		}
		if source := SourceObject(w.Key); source != obj.ID {
			t.Errorf("its source is %v", source)
		}
	}
}

// Configuration of another cluster is reported by name, and yields no record, not even one that closes the workloads
// that a policy selects.
func TestConfigurationComesFromOneCluster(t *testing.T) {
	configuration := map[string]string{
		"VirtualService":        "hosts: [a]\nhttp: [{directResponse: {status: 200}}]",
		"DestinationRule":       "host: a",
		"ServiceEntry":          "hosts: [a.example]\nports: [{number: 80, name: http}]\nresolution: DNS",
		"Sidecar":               "egress: [{hosts: ['*/*']}]",
		"WorkloadGroup":         "template: {serviceAccount: vm}",
		"EnvoyFilter":           "priority: 1",
		"Gateway":               "selector: {a: b}",
		"ProxyConfig":           "concurrency: 1",
		"PeerAuthentication":    "mtls: {mode: STRICT}",
		"AuthorizationPolicy":   "nonsense: 1",
		"RequestAuthentication": "nonsense: 1",
		"Telemetry":             "accessLogging: [{disabled: true}]",
		"WasmPlugin":            "url: a",
		"TrafficExtension":      "lua: {inlineCode: a}",
	}
	for kind, spec := range configuration {
		obj := in("west", read(t, istio(kind, spec)))
		result := testNormal.Object(obj, &fake{})
		if len(result.Records) != 0 || result.Spoiled || result.Closed != nil || len(result.Problems) != 1 {
			t.Errorf("%s: records %v, closed %v, problems %v", kind, result.Records, result.Closed, result.Problems)
			continue
		}
		want := kind + " shop/x in cluster west: is of cluster west and ignored: configuration comes from the config cluster (Kubernetes) alone"
		if got := result.Problems[0]; got.String() != want || got.Severity == problem.Warning {
			t.Errorf("%q, want %q", got, want)
		}
		if testNormal.Closed(obj, "istio-system") != nil {
			t.Errorf("a %s of another cluster closes something", kind)
		}
	}
	for group := range kinds { // each kind is classified by its group
		obj := in("west", &object.Object{ID: object.ID{Group: group.group, Kind: group.kind, Namespace: "shop", Name: "x"}})
		if _, is := configuration[group.kind]; is != testNormal.configuration(obj.ID) {
			t.Errorf("%s of %q is read from the config cluster alone: %v in code, %v by the list of kinds in this test", group.kind, group.group, !is, is)
		}
	}
	mesh := in("west", read(t, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: istio, namespace: istio-system}\ndata: {mesh: 'trustDomain: west'}"))
	if testNormal.IsMesh(mesh.ID) || len(testNormal.Object(mesh, &fake{}).Problems) != 1 {
		t.Error("the mesh configuration is read from another cluster")
	}
}
