package input

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"navarch.io/navarch/push/pool"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// The members of subsets are those that a search of all endpoints finds, although the endpoints are read and sorted
// once for all subsets. Of endpoints with one address, each subset has the healthiest that it selects.
func TestMembersOfSubsets(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 9))
		ports := []*model.ServicePort{{Name: "http", Number: 80}}
		service := recordOf(t, model.KindService, "s", &model.ServiceSpec{Hosts: []string{"h"}, Ports: ports})
		edits := []mirror.Edit{{New: service}}
		var all []*model.Endpoint
		for i := range 3 {
			spec := &model.EndpointsSpec{Hosts: []string{"h"}, Ports: []*model.EndpointPort{{Name: "http", Number: 8080}}}
			for range r.IntN(20) {
				spec.Endpoints = append(spec.Endpoints, &model.Endpoint{Address: fmt.Sprint("10.0.0.", r.IntN(15)),
					Health: []model.Health{model.Health_HEALTH_READY, model.Health_HEALTH_NOT_READY}[r.IntN(2)],
					Labels: map[string]string{"version": fmt.Sprint("v", r.IntN(3))}})
			}
			all = append(all, spec.Endpoints...)
			edits = append(edits, mirror.Edit{New: recordOf(t, model.KindEndpoints, fmt.Sprint("e", i), spec)})
		}
		var put []model.Record
		for _, e := range edits {
			put = append(put, e.New)
		}
		in := New(mirror.Empty().Apply(1, put, nil).New, &pool.Pool{}, "")
		q := Selection{Service: service.(*model.Service), Host: "h", Port: 80, NotReady: seed%2 == 0}
		for i, labels := range []map[string]string{{"version": "v0"}, {"version": "v1"}, nil, {}, {"version": "v9"}, {"version": "v2"}} {
			of := q
			if i != 2 {
				of.Subset = fmt.Sprint("s", i)
			}
			var want []model.Member
			for _, e := range all {
				if of.selects(e, labels) {
					want = append(want, model.Member{Endpoint: e, Port: 8080})
				}
			}
			slices.SortStableFunc(want, compareMembers)
			want = distinct(want)
			got := in.Members(of, labels)
			same := func(a, b model.Member) bool { return compareMembers(a, b) == 0 && model.Selects(labels, a.Endpoint) }
			if !slices.EqualFunc(got.All(), want, same) {
				t.Errorf("seed %d, %v: %v, want %v", seed, labels, got.All(), want)
			}
			if len(labels) == 0 && got != in.Members(q, nil) {
				t.Errorf("seed %d: a subset without labels has another list", seed)
			}
		}
	}
}

func recordOf(t testing.TB, kind model.Kind, name string, body proto.Message) model.Record {
	t.Helper()
	r, err := model.New(model.Key{Kind: kind, Namespace: "shop", Name: name}, 0, body)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
