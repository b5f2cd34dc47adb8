package model

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	meshv1 "istio.io/api/mesh/v1alpha1"
	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/store/origin"
)

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

// Each valid key has a path of its own, and each readable path is that of the key that it yields.
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

// A value of the neighbouring schema versions decodes. Others are refused with the versions, and so are damaged ones.
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

// Precedence: time of creation, then name, then namespace, also between kinds. A record without a time is the youngest.
// Promise: gateways.md#which-server-gets-a-port-or-a-host
func TestOlder(t *testing.T) {
	head := func(created int64, namespace, name string) *Head {
		return &Head{Key: Key{Kind: KindVirtualService, Namespace: namespace, Name: name}, Created: created}
	}
	order := []*Head{head(1, "b", "a"), head(1, "b", "b"), head(1, "a", "z"), head(1, "b", "z"),
		{Key: Key{Kind: KindService, Namespace: "c", Name: "z"}, Created: 1}, head(2, "a", "a"), head(0, "b", "a"),
		head(0, "a", "b")}
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

// Every kind has a mark, and records of a closing kind younger than the mark contain it.
func TestMarks(t *testing.T) {
	for _, k := range Kinds() {
		if Marks[k] == Unmarked {
			t.Errorf("%v has no mark", k)
		}
	}
	for closing, want := range map[bool]string{
		true:  "records/Novel//files/shop/x: this build does not know the kind; the proxies of its namespace are refused, or all proxies if that is the mesh's root namespace",
		false: "records/Novel//files/shop/x: this build does not know the kind; the record is skipped",
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
