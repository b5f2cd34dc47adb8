package inspect

import (
	"encoding/json"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"

	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/origin"
)

// istiods is a server of pages with a few records.
func istiods(t *testing.T) *httptest.Server {
	t.Helper()
	record := func(kind model.Kind, name string, created int64, body any) model.Record {
		key := model.Key{Kind: kind, Namespace: "shop", Name: name, Origin: origin.New("", origin.Kube)}
		var r model.Record
		var err error
		switch b := body.(type) {
		case *model.ServiceSpec:
			r, err = model.New(key, created, b)
		case *networkingv1.VirtualService:
			r, err = model.New(key, created, b)
		}
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	s := mirror.Empty().Apply(9, []model.Record{
		record(model.KindService, "web", 60, &model.ServiceSpec{Hosts: []string{"web.shop.svc.cluster.local"}, Addresses: []string{"10.0.0.1"}, ExportTo: []string{"*"}, Selector: map[string]string{"app": "web"},
			Ports: []*model.ServicePort{{Number: 80, Name: "http", Protocol: model.Protocol_PROTOCOL_HTTP}, {Number: 90, Name: "x"}}}),
		record(model.KindServiceEntry, "out", 0, &model.ServiceSpec{Hosts: []string{"a.example", "b.example"}, External: true, Resolution: model.Resolution_RESOLUTION_DNS}),
		record(model.KindVirtualService, "web", 60, &networkingv1.VirtualService{Hosts: []string{"web"}}),
	}, nil).New
	server := httptest.NewServer(Handler(Config{Streams: func(string) []Stream { return nil }, Snapshot: func() *mirror.Snapshot { return s }, Problems: func() []Problem { return nil },
		Clusters: func() []Cluster {
			return []Cluster{{Name: "home", Read: true}, {Name: "west", Secret: "istio-system/west", Read: false}}
		}}))
	t.Cleanup(server.Close)
	return server
}

// Pages that istioctl and Kiali read, with istiod's fields.
func TestPagesOfIstiod(t *testing.T) {
	s := istiods(t)
	for path, want := range map[string]string{
		"/debug/clusterz": `[{"id": "home", "secretName": "", "syncStatus": "synced"}, {"id": "west", "secretName": "istio-system/west", "syncStatus": "syncing"}]`,
		"/debug/registryz": `[
			{"Attributes": {"ServiceRegistry": "Kubernetes", "Name": "web", "Namespace": "shop", "ExportTo": {"*": true}, "LabelSelectors": {"app": "web"}}, "creationTime": "1970-01-01T00:01:00Z",
				"ports": [{"name": "http", "port": 80, "protocol": "HTTP"}, {"name": "x", "port": 90, "protocol": "UnsupportedProtocol"}], "hostname": "web.shop.svc.cluster.local",
				"clusterVIPs": {"Addresses": {"home": ["10.0.0.1"]}}, "Resolution": 0, "MeshExternal": false},
			{"Attributes": {"ServiceRegistry": "External", "Name": "out", "Namespace": "shop"}, "ports": [], "hostname": "a.example", "clusterVIPs": {}, "Resolution": 1, "MeshExternal": true},
			{"Attributes": {"ServiceRegistry": "External", "Name": "out", "Namespace": "shop"}, "ports": [], "hostname": "b.example", "clusterVIPs": {}, "Resolution": 1, "MeshExternal": true}]`,
		"/debug/configz": `[{"apiVersion": "networking.istio.io/v1", "kind": "VirtualService", "metadata": {"creationTimestamp": "1970-01-01T00:01:00Z", "name": "web", "namespace": "shop"}, "spec": {"hosts": ["web"]}}]`,
	} {
		_, body := visit(t, s, path)
		var got, expected any
		if err := json.Unmarshal([]byte(body), &got); err != nil {
			t.Fatalf("%s: %v %s", path, err, body)
		}
		if err := json.Unmarshal([]byte(want), &expected); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, expected) {
			t.Errorf("%s: %s\nwant %s", path, body, want)
		}
	}
	if status, body := visit(t, s, "/debug/mesh"); status != 200 || !strings.Contains(body, `"rootNamespace"`) {
		t.Errorf("%d %s", status, body)
	}
}

// Credentials in objects are on no page, as that of a header.
// Promise: access.md#addresses-and-callers
func TestPagesOfIstiodHaveNoCredential(t *testing.T) {
	route := &networkingv1.VirtualService{Hosts: []string{"web"}, Http: []*networkingv1.HTTPRoute{{Headers: &networkingv1.Headers{
		Request: &networkingv1.Headers_HeaderOperations{Set: map[string]string{"authorization": "hunter2hunter2", "x-version": "v2"}}}}}}
	key := model.Key{Kind: model.KindVirtualService, Namespace: "shop", Name: "web", Origin: origin.New("", origin.Kube)}
	r, err := model.New(key, 0, route)
	if err != nil {
		t.Fatal(err)
	}
	snapshot := mirror.Empty().Apply(9, []model.Record{r}, nil).New
	s := httptest.NewServer(Handler(Config{Snapshot: func() *mirror.Snapshot { return snapshot }}))
	defer s.Close()
	_, body := visit(t, s, "/debug/configz")
	if strings.Contains(body, "hunter2") || !strings.Contains(body, "[cut]") || !strings.Contains(body, "v2") {
		t.Error(body)
	}
	if route.Http[0].Headers.Request.Set["authorization"] != "hunter2hunter2" {
		t.Error("the record was changed")
	}
}

// A process without a snapshot responds with an error; a process without clusters lists no cluster.
func TestPagesOfIstiodWithoutRecords(t *testing.T) {
	s := httptest.NewServer(Handler(Config{Snapshot: func() *mirror.Snapshot { return nil }}))
	defer s.Close()
	for _, path := range []string{"/debug/registryz", "/debug/configz", "/debug/mesh"} {
		if status, body := visit(t, s, path); status != 503 || !strings.Contains(body, "no complete snapshot") {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	if _, body := visit(t, s, "/debug/clusterz"); strings.TrimSpace(body) != "[]" {
		t.Errorf("clusters: %s", body)
	}
}

// notListed are Istio's kinds whose records do not have Istio's messages: configz leaves them out.
var notListed = []model.Kind{model.KindServiceEntry, model.KindPeerAuthentication, model.KindAuthorizationPolicy, model.KindRequestAuthentication, model.KindWasmPlugin}

// configz lists each kind with a definition and records, or the kind is in notListed: the test fails for a new kind in
// neither.
func TestConfigzListsEveryKind(t *testing.T) {
	for _, kind := range model.Kinds() {
		of := normal.SourceObject(model.Key{Kind: kind, Namespace: "shop", Name: "x"})
		if listed := istioKinds[kind] != ""; model.Defined(of.Group) && listed == slices.Contains(notListed, kind) {
			t.Errorf("%v: listed by configz: %v, named as not listed: %v", kind, listed, !listed)
		}
	}
}
