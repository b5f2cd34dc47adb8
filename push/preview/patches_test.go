package preview

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/structpb"
	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/meaning"
	"navarch.io/navarch/store/model"
)

// patched returns an EnvoyFilter of namespace shop with one patch of a cluster, or of an HTTP filter.
func patched(t *testing.T, priority int32, p *networkingv1.EnvoyFilter_EnvoyConfigObjectPatch) model.Record {
	return record(t, model.KindEnvoyFilter, "shop", "f", &networkingv1.EnvoyFilter{Priority: priority,
		ConfigPatches: []*networkingv1.EnvoyFilter_EnvoyConfigObjectPatch{p}})
}

// mergesCluster merges a value into the clusters of a host.
func mergesCluster(t *testing.T, host string, value map[string]any) *networkingv1.EnvoyFilter_EnvoyConfigObjectPatch {
	body, err := structpb.NewStruct(value)
	if err != nil {
		t.Fatal(err)
	}
	return &networkingv1.EnvoyFilter_EnvoyConfigObjectPatch{ApplyTo: networkingv1.EnvoyFilter_CLUSTER,
		Match: &networkingv1.EnvoyFilter_EnvoyConfigObjectMatch{ObjectTypes: &networkingv1.EnvoyFilter_EnvoyConfigObjectMatch_Cluster{
			Cluster: &networkingv1.EnvoyFilter_ClusterMatch{Service: host}}},
		Patch: &networkingv1.EnvoyFilter_Patch{Operation: networkingv1.EnvoyFilter_Patch_MERGE, Value: body}}
}

// inserts inserts an HTTP filter with an operation.
func inserts(t *testing.T, op networkingv1.EnvoyFilter_Patch_Operation) *networkingv1.EnvoyFilter_EnvoyConfigObjectPatch {
	body, err := structpb.NewStruct(map[string]any{"name": "b", "typed_config": map[string]any{
		"@type": "type.googleapis.com/envoy.extensions.filters.http.cors.v3.Cors"}})
	if err != nil {
		t.Fatal(err)
	}
	filter := &networkingv1.EnvoyFilter_ListenerMatch_FilterMatch{Name: "envoy.filters.network.http_connection_manager",
		SubFilter: &networkingv1.EnvoyFilter_ListenerMatch_SubFilterMatch{Name: "envoy.filters.http.router"}}
	return &networkingv1.EnvoyFilter_EnvoyConfigObjectPatch{ApplyTo: networkingv1.EnvoyFilter_HTTP_FILTER,
		Match: &networkingv1.EnvoyFilter_EnvoyConfigObjectMatch{ObjectTypes: &networkingv1.EnvoyFilter_EnvoyConfigObjectMatch_Listener{
			Listener: &networkingv1.EnvoyFilter_ListenerMatch{
				FilterChain: &networkingv1.EnvoyFilter_ListenerMatch_FilterChainMatch{Filter: filter}}}},
		Patch: &networkingv1.EnvoyFilter_Patch{Operation: op, Value: body}}
}

// NP601: a patch that changes nothing. NP603: a patch that is relative to a filter and states no priority. Near misses:
// a patch that changes one proxy's cluster; a patch with a priority; one that is first whatever others do.
func TestRisksOfPatches(t *testing.T) {
	timeout := map[string]any{"connect_timeout": "7s"}
	first := networkingv1.EnvoyFilter_Patch_INSERT_FIRST
	before := networkingv1.EnvoyFilter_Patch_INSERT_BEFORE
	bootstrap := mergesCluster(t, "", map[string]any{})
	bootstrap.ApplyTo, bootstrap.Match = networkingv1.EnvoyFilter_BOOTSTRAP, nil
	for _, c := range []struct {
		name    string
		filter  model.Record
		proxies string
		want    string
	}{
		{"another host", patched(t, 0, mergesCluster(t, "api.shop.svc.cluster.local", timeout)), "a.shop", "NP601"},
		{"its host", patched(t, 0, mergesCluster(t, web, timeout)), "a.shop", ""},
		{"no proxy of the namespace", patched(t, 0, mergesCluster(t, web, timeout)), "a.pay", "NP601"},
		{"before the router", patched(t, 0, inserts(t, before)), "a.shop", "NP603"},
		{"before the router, with a priority", patched(t, 5, inserts(t, before)), "a.shop", ""},
		{"first", patched(t, 0, inserts(t, first)), "a.shop", ""},
		{"the bootstrap", patched(t, 0, bootstrap), "a.shop", ""},
	} {
		b := baseOf(t, []model.Record{service(t, "*"), route(t, web)}, c.proxies)
		p, err := Of(t.Context(), b, b.Resolver.Source().Apply(5, []model.Record{c.filter}, nil), nil)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, r := range p.Report(Usual).Risks {
			if strings.HasPrefix(string(r.Code), "NP60") {
				if got = append(got, string(r.Code)); !slices.Equal(r.Objects, []string{"EnvoyFilter shop/f"}) || r.Level != "medium" {
					t.Errorf("%s: %+v", c.name, r)
				}
			}
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: %v, want %q; problems %v", c.name, got, c.want, p.Problems.New)
		}
	}
}

// A patch that changes nothing for the proxies of one replica is no risk if it does for those of another.
func TestPatchesOfReplicas(t *testing.T) {
	of := func(codes ...meaning.Code) *Report {
		r := &Report{}
		for _, code := range codes {
			r.Risks = append(r.Risks, Risk{Code: code, Text: "x", Count: Count{Proxies: 1}})
		}
		return r
	}
	for _, c := range []struct {
		reports []*Report
		want    string
	}{
		{[]*Report{of(meaning.PatchWithoutMatch), of(meaning.PatchWithoutMatch)}, "[NP601]"},
		{[]*Report{of(meaning.PatchWithoutMatch, meaning.PatchRelative), of(meaning.PatchRelative)}, "[NP603]"},
		{[]*Report{of(), of(meaning.PatchWithoutMatch)}, "[]"},
		{[]*Report{of(meaning.PatchWithoutMatch)}, "[NP601]"},
	} {
		codes := []meaning.Code{}
		for _, r := range Merge(c.reports).Risks {
			codes = append(codes, r.Code)
		}
		if fmt.Sprint(codes) != c.want {
			t.Errorf("%v, want %s", codes, c.want)
		}
	}
}

// NP504: the configuration of a view grows by more than a fifth. Of several views the one that grows the most counts.
func TestGrowth(t *testing.T) {
	records := []model.Record{service(t, "*")}
	for i := range 20 {
		records = append(records, serviceNumber(t, i))
	}
	for _, c := range []struct{ more, want int }{{30, 1}, {1, 0}} {
		b := baseOf(t, records, "a.shop", "a.pay")
		var more []model.Record
		for i := range c.more {
			more = append(more, serviceNumber(t, 100+i))
		}
		p, err := Of(t.Context(), b, b.Resolver.Source().Apply(5, more, nil), nil)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, r := range p.Report(Usual).Risks {
			if r.Code == meaning.BytesGrow {
				n++
			}
		}
		if n != c.want {
			t.Errorf("%d services more: %d risks, want %d", c.more, n, c.want)
		}
	}
}

// serviceNumber is one of many Services.
func serviceNumber(t *testing.T, i int) model.Record {
	port := &model.ServicePort{Number: 80, Name: "http", Protocol: model.Protocol_PROTOCOL_HTTP}
	return record(t, model.KindService, "shop", fmt.Sprint("s", i), &model.ServiceSpec{Hosts: []string{fmt.Sprintf("s%d.shop.svc.cluster.local", i)},
		ExportTo: []string{"*"}, Ports: []*model.ServicePort{port}, Addresses: []string{fmt.Sprintf("10.98.0.%d", i)}})
}

// checked is a context that ends once its error has been asked for some number of times.
type checked struct {
	context.Context
	asked, ends int
}

func (c *checked) Err() error {
	if c.asked++; c.asked > c.ends {
		return context.Canceled
	}
	return nil
}

// A preview of patches looks at its context before each resource that it builds for problems and for patches, so that
// nothing goes on long after its client has left.
func TestPatchesEndWithTheContext(t *testing.T) {
	records := []model.Record{service(t, "*")}
	for i := range 50 {
		records = append(records, serviceNumber(t, i))
	}
	filter := patched(t, 0, mergesCluster(t, "", map[string]any{"connect_timeout": "7s"}))
	of := func(ends int) (int, error) {
		b, ctx := baseOf(t, records, "a.shop"), &checked{t.Context(), 0, ends}
		_, err := Of(ctx, b, b.Resolver.Source().Apply(5, []model.Record{filter}, nil), nil)
		return ctx.asked, err
	}
	all, err := of(1_000_000)
	if err != nil || all < 150 { // 50 clusters before and after the change for problems, and 50 for patches
		t.Errorf("the context was looked at %d times: %v", all, err)
	}
	for ends := 0; ends < all; ends += 10 {
		if asked, err := of(ends); !errors.Is(err, context.Canceled) || asked > ends+10 {
			t.Errorf("a context that ended at look %d was looked at %d times: %v", ends, asked, err)
		}
	}
}
