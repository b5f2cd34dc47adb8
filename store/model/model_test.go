package model

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	extensionsv1 "istio.io/api/extensions/v1alpha1"
	meshv1 "istio.io/api/mesh/v1alpha1"
	networkingv1 "istio.io/api/networking/v1alpha3"
	proxyconfigv1 "istio.io/api/networking/v1beta1"
	telemetryv1 "istio.io/api/telemetry/v1alpha1"

	"navarch.io/navarch/store/origin"
)

// bodies is one body for every kind; a kind without one fails the tests.
func bodies() map[Kind]proto.Message {
	service := func() *ServiceSpec {
		return &ServiceSpec{Hosts: []string{"a.shop.svc"}, Ports: []*ServicePort{{Number: 80, Protocol: Protocol_PROTOCOL_HTTP}},
			Selector: map[string]string{"a": "1", "b": "2", "c": "3", "d": "4", "e": "5"}}
	}
	policy := func() *PolicySpec { return &PolicySpec{Selector: map[string]string{"app": "a"}, Closed: true} }
	return map[Kind]proto.Message{
		KindMesh:                  MeshDefaults(),
		KindService:               service(),
		KindServiceEntry:          service(),
		KindEndpoints:             &EndpointsSpec{Hosts: []string{"a"}, Endpoints: []*Endpoint{{Address: "10.0.0.1", Labels: map[string]string{"x": "1", "y": "2", "z": "3"}}}},
		KindVirtualService:        &networkingv1.VirtualService{Hosts: []string{"a"}, Http: []*networkingv1.HTTPRoute{{Timeout: durationpb.New(time.Second)}}},
		KindDestinationRule:       &networkingv1.DestinationRule{Host: "a", Subsets: []*networkingv1.Subset{{Name: "v1", Labels: map[string]string{"a": "1", "b": "2", "c": "3"}}}},
		KindSidecar:               &networkingv1.Sidecar{Egress: []*networkingv1.IstioEgressListener{{Hosts: []string{"./*"}}}},
		KindEnvoyFilter:           &networkingv1.EnvoyFilter{Priority: 3},
		KindPeerAuthentication:    policy(),
		KindAuthorizationPolicy:   policy(),
		KindRequestAuthentication: policy(),
		KindSecret:                &SecretSpec{Chain: []byte("chain"), Key: []byte("sealed"), Mac: []byte("mac")},
		KindGateway:               &networkingv1.Gateway{Selector: map[string]string{"a": "1", "b": "2", "c": "3"}},
		KindSecretReader:          &SecretReaderSpec{Accounts: []string{"shop/gateway"}},
		KindWorkload: &WorkloadSpec{Endpoint: &Endpoint{Address: "10.1.0.1", Labels: map[string]string{"a": "1", "b": "2", "c": "3"}},
			Uid: UID("5d0e7a54-1a25-4b4b-9c1e-0a3f5b1c2d3e")},
		KindServiceAccount:   &ServiceAccountSpec{Uid: UID("no uuid")},
		KindNamespace:        &ServiceAccountSpec{},
		KindWorkloadGroup:    &networkingv1.WorkloadGroup{Template: &networkingv1.WorkloadEntry{ServiceAccount: "vm"}},
		KindNetworkGateways:  &NetworkGatewaysSpec{Gateways: []*NetworkGateway{{Network: "n", Address: "192.0.2.1", Port: 15443}}},
		KindTelemetry:        &telemetryv1.Telemetry{AccessLogging: []*telemetryv1.AccessLogging{{Filter: &telemetryv1.AccessLogging_Filter{Expression: "true"}}}},
		KindWasmPlugin:       &extensionsv1.TrafficExtension{FilterConfig: &extensionsv1.TrafficExtension_Wasm{Wasm: &extensionsv1.WasmConfig{Url: "a"}}},
		KindTrafficExtension: &extensionsv1.TrafficExtension{FilterConfig: &extensionsv1.TrafficExtension_Lua{Lua: &extensionsv1.LuaConfig{InlineCode: "a"}}},
		KindProxyConfig:      &proxyconfigv1.ProxyConfig{EnvironmentVariables: map[string]string{"A": "1", "B": "2", "C": "3"}},
	}
}

func TestKinds(t *testing.T) {
	for _, k := range Kinds() {
		if got, ok := ParseKind(k.String()); got != k || !ok {
			t.Errorf("%v parses as %v, %v", k, got, ok)
		}
		if k.String() == "" || k.String() == KindInvalid.String() {
			t.Errorf("kind %d has no name", k)
		}
	}
	for _, name := range []string{"", "Invalid", "service", "Pod"} {
		if k, ok := ParseKind(name); ok || k != KindInvalid {
			t.Errorf("%q parses as %v", name, k)
		}
	}
	if NumKinds.String() != "Invalid" || Kind(200).String() != "Invalid" {
		t.Error("what is no kind has a name")
	}
}

func TestPaths(t *testing.T) {
	for _, k := range []Key{
		{Kind: KindService, Namespace: "shop", Name: "web"}, MeshKey,
		{Kind: KindService, Namespace: "shop", Name: "web", Origin: origin.New("", "files")},
		{Kind: KindServiceEntry, Namespace: "shop", Name: "a:b", Origin: origin.New("west", "kube")}} {
		got, err := ParsePath(k.Path())
		if err != nil || got != k {
			t.Errorf("%s: %v, %v", k.Path(), got, err)
		}
	}
	for _, path := range []string{"", "Service", "Service/shop/web", "Service///shop/", "Pod///shop/web", "////", "Invalid///a/b", "Service///shop/web/x", "Service///shop/a/"} {
		if k, err := ParsePath(path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%q: %v, %v", path, k, err)
		}
	}
}

// No part of a key makes its path another key's: such a key has no record.
func TestForgedPaths(t *testing.T) {
	whole := Key{Kind: KindService, Namespace: "shop", Name: "web", Origin: origin.New("west", "files")}
	if err := whole.Check(); err != nil {
		t.Error(err)
	}
	for _, forge := range []func(k *Key){
		func(k *Key) { k.Name = "a/b" }, func(k *Key) { k.Namespace = "shop/web" }, func(k *Key) { k.Origin = origin.New("west/files", "") },
		func(k *Key) { k.Origin = origin.New("west", "files/shop") }, func(k *Key) { k.Name = "" }, func(k *Key) { k.Name = "web\x00west" },
		func(k *Key) { k.Kind = NumKinds },
	} {
		k := whole
		forge(&k)
		if _, err := New(k, 0, &ServiceSpec{}); err == nil || k.Check() == nil {
			t.Errorf("%q has a record", k.Path())
		}
	}
}

// Each key that may be stored has a path of its own, and each path that is read is that of the key which it gives.
func FuzzPath(f *testing.F) {
	f.Add("Service", "west", "files", "shop", "web")
	f.Add("Mesh", "", "", "", "mesh")
	f.Add("Service", "a/b", "c", "d\x00", "e/f")
	f.Fuzz(func(t *testing.T, kind, cluster, source, namespace, name string) {
		k := Key{Origin: origin.New(cluster, source), Namespace: namespace, Name: name}
		k.Kind, _ = ParseKind(kind)
		if k.Check() == nil {
			if back, err := ParsePath(k.Path()); err != nil || back != k {
				t.Errorf("%q is read as %q: %v", k.Path(), back.Path(), err)
			}
		}
		path := strings.Join([]string{kind, cluster, source, namespace, name}, "/")
		if back, err := ParsePath(path); err == nil && (back.Path() != path || back.Check() != nil) {
			t.Errorf("%q is read as %q: %v", path, back.Path(), back.Check())
		}
	})
}

// Records of every kind decode to equal records with equal hashes. Equal content has equal bytes.
func TestRoundTrip(t *testing.T) {
	all := bodies()
	for _, kind := range Kinds() {
		t.Run(kind.String(), func(t *testing.T) {
			body := all[kind]
			if body == nil {
				t.Fatal("no body in this test")
			}
			key := Key{Kind: kind, Namespace: "shop", Name: "a"}
			r, err := New(key, 7, body)
			if err != nil {
				t.Fatal(err)
			}
			raw, err := Encode(r)
			if err != nil {
				t.Fatal(err)
			}
			back, err := Decode(key, raw)
			if err != nil {
				t.Fatal(err)
			}
			if *back.Meta() != *r.Meta() || r.Meta().Hash != HashOf(raw) || r.Meta().Key != key || r.Meta().Created != 7 {
				t.Errorf("head %v, came back as %v", *r.Meta(), *back.Meta())
			}
			if !proto.Equal(back.Body(), body) {
				t.Errorf("body %v", back.Body())
			}
			for range 20 { // maps have no order of their own
				other, err := New(key, 7, bodies()[kind])
				if err != nil || other.Meta().Hash != r.Meta().Hash {
					t.Fatalf("the same content has the hash %v, want %v (%v)", other.Meta().Hash, r.Meta().Hash, err)
				}
			}
			if later, _ := New(key, 8, body); later.Meta().Hash == r.Meta().Hash {
				t.Error("the time of creation, which decides precedence, is not part of the hash")
			}
		})
	}
}

func TestBodyBelongsToKind(t *testing.T) {
	for kind := range bodies() {
		for other, body := range bodies() {
			_, err := New(Key{Kind: kind, Namespace: "shop", Name: "a"}, 0, body)
			fits := kind == other || proto.MessageName(bodies()[kind]) == proto.MessageName(body)
			if fits != (err == nil) {
				t.Errorf("a %v with the body of a %v: %v", kind, other, err)
			}
			if err != nil && !strings.Contains(err.Error(), Key{Kind: kind, Namespace: "shop", Name: "a"}.String()) {
				t.Errorf("%v does not name the object", err)
			}
		}
	}
	if _, err := New(Key{Kind: KindInvalid, Namespace: "", Name: "a"}, 0, &ServiceSpec{}); err == nil {
		t.Error("a record of no kind")
	}
	if _, err := New(Key{Kind: KindVirtualService, Namespace: "", Name: "a"}, 0, &networkingv1.VirtualService{Hosts: []string{"\xff"}}); err == nil {
		t.Error("a body that does not encode")
	}
}

// A value of the neighbouring schema versions decodes, others are refused with the versions, and so is what is broken.
func TestDecodeRefuses(t *testing.T) {
	key := Key{Kind: KindService, Namespace: "shop", Name: "web"}
	wire := func(change func(*RecordValue)) []byte {
		v := &RecordValue{Schema: Schema, Body: &RecordValue_Service{Service: &ServiceSpec{}}}
		change(v)
		b, err := proto.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for _, c := range []struct {
		name, want string
		key        Key
		raw        []byte
	}{
		{"this schema", "", key, wire(func(*RecordValue) {})},
		{"the next schema", "", key, wire(func(v *RecordValue) { v.Schema++ })},
		{"a later schema", "schema 3, this build reads 1 to 2", key, wire(func(v *RecordValue) { v.Schema += 2 })},
		{"no schema", "schema 0", key, wire(func(v *RecordValue) { v.Schema = 0 })},
		{"empty", "schema 0", key, nil},
		{"no body", "body is missing", key, wire(func(v *RecordValue) { v.Body = nil })},
		{"another kind's body", "does not belong to kind Service", key, wire(func(v *RecordValue) { v.Body = &RecordValue_Policy{Policy: &PolicySpec{}} })},
		{"an Istio body", "does not belong to kind Service", key, wire(func(v *RecordValue) { v.Body = &RecordValue_Istio{Istio: nil} })},
		{"a broken Istio body", "Sidecar shop/web", Key{Kind: KindSidecar, Namespace: "shop", Name: "web"}, wire(func(v *RecordValue) { v.Body = &RecordValue_Istio{Istio: []byte{0xff}} })},
		{"no protobuf", "Service shop/web", key, []byte("hello")},
		{"cut off", "Service shop/web", key, wire(func(v *RecordValue) { v.Body.(*RecordValue_Service).Service.Hosts = []string{"abc"} })[:5]},
	} {
		r, err := Decode(c.key, c.raw)
		switch {
		case c.want == "" && err != nil, c.want != "" && (err == nil || r != nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, %v; want %q", c.name, r, err, c.want)
		case errors.Is(err, ErrNewer) != (c.name == "a later schema"):
			t.Errorf("%s: of a newer build? %v", c.name, err)
		}
	}
}

// Precedence: time of creation, then name, then namespace.
func TestOlder(t *testing.T) {
	head := func(created int64, namespace, name string) *Head {
		return &Head{Key: Key{Kind: KindVirtualService, Namespace: namespace, Name: name}, Created: created}
	}
	order := []*Head{head(0, "z", "z"), head(1, "b", "a"), head(1, "b", "b"), head(1, "a", "z"), head(1, "b", "z"), head(2, "a", "a")}
	for i := range order {
		for j := range order {
			if got := order[i].Older(order[j]); got < 0 != (i < j) || got > 0 != (i > j) {
				t.Errorf("%v against %v: %d", order[i], order[j], got)
			}
		}
	}
}

func TestPatch(t *testing.T) {
	r, err := New(Key{Kind: KindEnvoyFilter, Namespace: "shop", Name: "f"}, 0, &networkingv1.EnvoyFilter{ConfigPatches: []*networkingv1.EnvoyFilter_EnvoyConfigObjectPatch{
		{ApplyTo: networkingv1.EnvoyFilter_LISTENER}, {ApplyTo: networkingv1.EnvoyFilter_CLUSTER}}})
	if err != nil {
		t.Fatal(err)
	}
	f := r.(*EnvoyFilter)
	if got := (Patch{f, 1}).Config().ApplyTo; got != networkingv1.EnvoyFilter_CLUSTER {
		t.Errorf("patch 1 applies to %v", got)
	}
	again := Patch{f, 1}
	if again != (Patch{f, 1}) || (Patch{f, 0}) == again {
		t.Error("patches do not compare by filter and index")
	}
}

// MeshDefaults returns a new message each time, so that merging into it changes no other.
func TestMeshDefaults(t *testing.T) {
	if first, second := DefaultMesh(), DefaultMesh(); first != second {
		t.Error("the default mesh is two pointers")
	}
	before, err := Encode(DefaultMesh())
	if err != nil {
		t.Fatal(err)
	}
	mine := MeshDefaults()
	proto.Merge(mine, &meshv1.MeshConfig{TrustDomain: "other", DefaultServiceExportTo: []string{"."}})
	mine.ConnectTimeout.Seconds = 1
	after, err := Encode(DefaultMesh())
	if err != nil || !bytes.Equal(before, after) {
		t.Errorf("the default mesh changed (%v)", err)
	}
}

// Whatever etcd holds: a record or an error that names the key; a record encodes to something that decodes to the same.
func FuzzDecode(f *testing.F) {
	for kind, body := range bodies() {
		r, err := New(Key{Kind: kind, Namespace: "shop", Name: "a"}, 1, body)
		if err != nil {
			f.Fatal(err)
		}
		raw, err := Encode(r)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(uint8(kind), raw)
	}
	f.Fuzz(func(t *testing.T, kind uint8, raw []byte) {
		key := Key{Kind: Kind(kind), Namespace: "shop", Name: "a"}
		r, err := Decode(key, raw)
		if err != nil {
			if !strings.Contains(err.Error(), key.String()) {
				t.Errorf("%v does not name %v", err, key)
			}
			return
		}
		again, err := Encode(r)
		if err != nil {
			t.Fatal(err)
		}
		back, err := Decode(key, again)
		if err != nil || !proto.Equal(back.Body(), r.Body()) {
			t.Errorf("%v, then %v, %v", r.Body(), back, err)
		}
	})
}

// Every kind has a mark, and of a closing kind that is younger than the mark the record says so.
func TestMarks(t *testing.T) {
	for _, k := range Kinds() {
		if Marks[k] == Unmarked {
			t.Errorf("%v has no mark", k)
		}
	}
	for closing, want := range map[bool]string{
		true:  "records/Novel//files/shop/x: this build does not know the kind; no proxy that it covers is let in: of its namespace, or of all where that is the mesh's root namespace",
		false: "records/Novel//files/shop/x: this build does not know the kind; it is skipped",
	} {
		raw, err := proto.Marshal(&RecordValue{Schema: Schema, Closing: closing})
		if err != nil {
			t.Fatal(err)
		}
		u := ReadUnknown("Novel//files/shop/x", raw)
		if u.String() != want || u.Covers("shop", "root") != closing || u.Covers("other", "root") {
			t.Errorf("%+v: %v", u, u)
		}
	}
}
