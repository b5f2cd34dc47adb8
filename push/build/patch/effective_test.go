package patch

import (
	"fmt"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
)

// Effective builds a resource once, whatever the number of patches. A patch counts if the resource differs after it,
// also if a later patch reverts the change. A patch that repeats what the resource has, states its name only, or is
// left out does not count.
func TestEffectiveBuildsOnce(t *testing.T) {
	filter := &model.EnvoyFilter{Spec: &networkingv1.EnvoyFilter{}}
	var patches []model.Patch
	for i, value := range []map[string]any{
		{"alt_stat_name": "a"}, {"alt_stat_name": "a"}, {"connect_timeout": "1s"}, {"connect_timeout": "-1s"}, {"name": "other"},
		{"connect_timeout": "2s", "alt_stat_name": "a"}, {"alt_stat_name": "before"}, {"no_field": 1}, {"type": "STATIC"},
	} {
		body, err := structpb.NewStruct(value)
		if err != nil {
			t.Fatal(err)
		}
		filter.Spec.ConfigPatches = append(filter.Spec.ConfigPatches, &networkingv1.EnvoyFilter_EnvoyConfigObjectPatch{
			ApplyTo: networkingv1.EnvoyFilter_CLUSTER,
			Patch:   &networkingv1.EnvoyFilter_Patch{Operation: networkingv1.EnvoyFilter_Patch_MERGE, Value: body}})
		patches = append(patches, model.Patch{Filter: filter, Index: i})
	}
	c := &clusterv3.Cluster{Name: "c", AltStatName: "before", ConnectTimeout: durationpb.New(1e9),
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS}}
	var table intern.Table[model.Patch]
	builds := 0
	all := Effective(table.List(patches...), func(trace *Trace) {
		builds++
		trace.Cluster(c, patches)
	})
	var got []int
	for _, p := range all {
		got = append(got, p.Index)
	}
	if fmt.Sprint(got) != "[0 5 6 8]" || builds != 1 {
		t.Errorf("patches %v are effective, with %d builds", got, builds)
	}
}
