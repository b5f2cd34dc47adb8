package vhost

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	networkingv1 "istio.io/api/networking/v1alpha3"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"navarch.io/navarch/push/virtualservice"
	"navarch.io/navarch/store/model"
)

// Every VirtualService and DestinationRule makes a fragment that satisfies Envoy's constraints.
func FuzzFragment(f *testing.F) {
	encode := func(m proto.Message) []byte {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		return b
	}
	for _, text := range []string{strings.ReplaceAll(everyFeature, large, "x"), `http: [{}]`, `http: [{match: [{}], redirect: {}}]`,
		`http: [{match: [{uri: {}, headers: {"": {exact: ""}}}], route: [{}, {weight: -1}], mirrors: [{}], fault: {delay: {}, abort: {}}, corsPolicy: {}}]`} {
		vs := &networkingv1.VirtualService{}
		fromYAML(f, text, vs)
		f.Add(encode(vs), encode(&networkingv1.DestinationRule{TrafficPolicy: &networkingv1.TrafficPolicy{}}), uint32(80))
	}
	f.Fuzz(func(t *testing.T, vsBytes, drBytes []byte, port uint32) {
		vs, dr := &networkingv1.VirtualService{}, &networkingv1.DestinationRule{}
		if proto.Unmarshal(vsBytes, vs) != nil || proto.Unmarshal(drBytes, dr) != nil {
			return
		}
		of := record[*model.VirtualService](t, model.KindVirtualService, "fuzz", vs)
		s := specOf(of)
		s.Port = port
		var all []Destination
		for _, d := range s.Destinations.All() {
			d = hashed(d, record[*model.DestinationRule](t, model.KindDestinationRule, "fuzz", dr))
			all = append(all, d)
		}
		s.Destinations = dests.List(all...)
		virtualservice.RequestLabelKeys(of, virtualservice.Mesh)
		virtualservice.ReadsNamespace(of)
		virtualservice.Hosts(of)
		fragment, err := s.Fragment()
		if err != nil {
			t.Fatal(err)
		}
		rc := &routev3.RouteConfiguration{}
		if err := proto.Unmarshal(fragment.Bytes, rc); err != nil {
			t.Fatal(err)
		}
		if err := rc.ValidateAll(); err != nil {
			t.Fatal(err)
		}
	})
}
