package model

import (
	"fmt"
	"maps"
	"reflect"
	"testing"

	"google.golang.org/protobuf/proto"
)

// Equal labels of decoded records are one map, across records; different labels stay different, in any number.
func TestDecodedLabelsAreShared(t *testing.T) {
	decode := func(kind Kind, body proto.Message) Record {
		r, err := New(Key{Kind: kind, Namespace: "shop", Name: "x"}, 1, body)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := Encode(r)
		if err != nil {
			t.Fatal(err)
		}
		if r, err = Decode(r.Meta().Key, raw); err != nil {
			t.Fatal(err)
		}
		return r
	}
	labels := func() map[string]string { return map[string]string{"app": "web", "version": "v1"} }
	slice := decode(KindEndpoints, &EndpointsSpec{Endpoints: []*Endpoint{{Address: "1", Labels: labels()}, {Address: "2"}, {Address: "3", Labels: labels()},
		{Address: "4", Labels: map[string]string{"app": "v1", "version": "web"}}}}).(*Endpoints).Spec.Endpoints
	pod := decode(KindWorkload, &WorkloadSpec{Endpoint: &Endpoint{Address: "1", Labels: labels()}}).(*Workload).Spec.Endpoint
	same := func(a, b map[string]string) bool { return reflect.ValueOf(a).Pointer() == reflect.ValueOf(b).Pointer() }
	if !same(slice[0].Labels, slice[2].Labels) || !same(slice[0].Labels, pod.Labels) || !maps.Equal(pod.Labels, labels()) {
		t.Errorf("not shared, or not what they were: %v, %v", slice, pod)
	}
	if slice[1].Labels != nil || slice[3].Labels["app"] != "v1" {
		t.Errorf("others' labels: %v", slice)
	}
	s := &sharedLabels{seed: decodedLabels.seed}
	for i := range 3 * labelsKept {
		own := map[string]string{"n": fmt.Sprint(i)}
		if got := s.same(own); !same(got, own) {
			t.Fatalf("%v became %v", own, got)
		}
		if got := s.same(maps.Clone(own)); !same(got, own) {
			t.Fatalf("%v is not shared", own)
		}
	}
	for id := range s.young {
		s.young[id] = map[string]string{"another": "of the same hash"}
	}
	if own := map[string]string{"n": fmt.Sprint(3*labelsKept - 1)}; !same(s.same(own), own) {
		t.Errorf("%v became another", own)
	}
	if n := len(s.young) + len(s.elder); n > 2*labelsKept {
		t.Errorf("%d are remembered", n)
	}
}

func BenchmarkDecodeEndpoints(b *testing.B) {
	spec := &EndpointsSpec{Hosts: []string{"web.shop.svc.cluster.local"}}
	for i := range 100 {
		spec.Endpoints = append(spec.Endpoints, &Endpoint{Address: fmt.Sprintf("10.1.0.%d", i), ServiceAccount: "web", Namespace: "shop", Workload: "web", Node: "node-1", Locality: "region/zone",
			Labels: map[string]string{"app": "web", "version": "v1", "security.istio.io/tlsMode": "istio"}, Mtls: true})
	}
	r, err := New(Key{Kind: KindEndpoints, Namespace: "shop", Name: "x"}, 1, spec)
	if err != nil {
		b.Fatal(err)
	}
	raw, err := Encode(r)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Decode(r.Meta().Key, raw); err != nil {
			b.Fatal(err)
		}
	}
}
