package route

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	networkingv1 "istio.io/api/networking/v1alpha3"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
)

var (
	hosts   intern.Table[*xds.Fragment]
	patches intern.Table[model.Patch]
)

func vhosts(t *testing.T, names ...string) (all []*routev3.VirtualHost, f []*xds.Fragment) {
	t.Helper()
	for _, n := range names {
		vh := &routev3.VirtualHost{Name: n, Domains: []string{n}}
		fragment, err := xds.EncodeFragment(n, 2, vh)
		if err != nil {
			t.Fatal(err)
		}
		all, f = append(all, vh), append(f, fragment)
	}
	return all, f
}

func read(t *testing.T, s Spec) (*routev3.RouteConfiguration, *xds.Resource) {
	t.Helper()
	r, err := s.Build()
	if err != nil {
		t.Fatal(err)
	}
	rc := &routev3.RouteConfiguration{}
	if err := proto.Unmarshal(r.Body(), rc); err != nil {
		t.Fatal(err)
	}
	if err := rc.ValidateAll(); err != nil {
		t.Fatal(err)
	}
	return rc, r
}

// The rope decodes to the same message as a whole encoding.
func TestRopeIsTheWholeMessage(t *testing.T) {
	all, f := vhosts(t, "a:80", "b:80", "allow_any")
	f = append(f, &xds.Fragment{Name: "removed:80", Hash: xds.Hash{1}}) // removed by a patch: no bytes
	rc, r := read(t, Spec{Name: "80", Hosts: hosts.List(f...)})
	want := &routev3.RouteConfiguration{
		Name: "80", VirtualHosts: all, ValidateClusters: wrapperspb.Bool(false),
		MaxDirectResponseBodySizeBytes: wrapperspb.UInt32(1048576), IgnorePortInHostMatching: true,
	}
	if diff := cmp.Diff(want, rc, protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
	if r.Type != xds.Route || r.Name != "80" || r.Needs != nil {
		t.Errorf("resource %v %s needs %v", r.Type, r.Name, r.Needs)
	}
}

// The version depends on the virtual hosts and the head, and on nothing else.
func TestVersion(t *testing.T) {
	_, ab := vhosts(t, "a:80", "b:80")
	_, again := vhosts(t, "a:80", "b:80")
	_, first := read(t, Spec{Name: "80", Hosts: hosts.List(ab...)})
	_, same := read(t, Spec{Name: "80", Hosts: hosts.List(again...)})
	_, fewer := read(t, Spec{Name: "80", Hosts: hosts.List(ab[0])})
	_, named := read(t, Spec{Name: "81", Hosts: hosts.List(ab...)})
	if first.Version != same.Version {
		t.Error("equal contents, different versions")
	}
	if first.Version == fewer.Version || first.Version == named.Version {
		t.Error("different contents, one version")
	}
}

func TestHeadPatch(t *testing.T) {
	value, err := structpb.NewStruct(map[string]any{"name": "x", "max_direct_response_body_size_bytes": 5})
	if err != nil {
		t.Fatal(err)
	}
	filter, err := model.New(model.Key{Kind: model.KindEnvoyFilter, Namespace: "shop", Name: "f"}, 0, &networkingv1.EnvoyFilter{
		ConfigPatches: []*networkingv1.EnvoyFilter_EnvoyConfigObjectPatch{{
			ApplyTo: networkingv1.EnvoyFilter_ROUTE_CONFIGURATION,
			Patch:   &networkingv1.EnvoyFilter_Patch{Operation: networkingv1.EnvoyFilter_Patch_MERGE, Value: value},
		}}})
	if err != nil {
		t.Fatal(err)
	}
	all, f := vhosts(t, "a:80")
	rc, _ := read(t, Spec{Name: "80", Hosts: hosts.List(f...), Patches: patches.List(model.Patch{Filter: filter.(*model.EnvoyFilter)})})
	if rc.Name != "80" || rc.MaxDirectResponseBodySizeBytes.GetValue() != 5 || len(rc.VirtualHosts) != len(all) {
		t.Errorf("patched route configuration %v", rc)
	}
}

func TestNameIsUTF8(t *testing.T) {
	if _, err := (Spec{Name: "\xff"}).Build(); err == nil || !strings.Contains(err.Error(), "encode RDS") {
		t.Errorf("a name that does not encode: %v", err)
	}
}
