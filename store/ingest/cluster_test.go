package ingest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/origin"
)

// of is an event of a cluster.
func of(cluster string, e object.Event) object.Event {
	e.ID.Origin = origin.New(cluster, "files")
	if e.Object != nil {
		moved := *e.Object
		moved.ID.Origin = e.ID.Origin
		e.Object = &moved
	}
	return e
}

// Objects of the same name in two clusters are two records, each joined with objects of its own cluster. Deleting one
// leaves the other.
func TestTwoClusters(t *testing.T) {
	d := newDesk(t)
	d.lead()
	all := Objects{synced}
	for _, cluster := range []string{"", "west"} {
		all = append(all, of(cluster, put(t, svc)), of(cluster, put(t, epSlice("web", "10.1.0.1", "web-1"))), of(cluster, put(t, pod("web-1", "of: cluster-"+cluster+"x"))))
	}
	d.want(all, "load", "write +Service web +Service web +Endpoints web +Endpoints web")
	stored := func() string {
		var out []string
		for key := range d.stored {
			out = append(out, key.Path())
		}
		slices.Sort(out)
		return strings.Join(out, " ")
	}
	if got := stored(); got != "Endpoints//files/shop/web Endpoints/west/files/shop/web Service//files/shop/web Service/west/files/shop/web" {
		t.Error(got)
	}
	d.want(Objects{of("west", put(t, pod("web-1", "of: another")))}, "write +Endpoints web", "wait")
	d.want(Objects{of("west", gone(put(t, svc))), of("west", gone(put(t, epSlice("web", "10.1.0.1", "web-1"))))}, "write -Service web -Endpoints web")
	if got := stored(); got != "Endpoints//files/shop/web Service//files/shop/web" {
		t.Error(got)
	}
	d.want(Objects{of("west", put(t, vs("a", "1s")))})
	if p := d.s.Problems(); len(p) != 1 || !strings.Contains(fmt.Sprint(p), "VirtualService shop/a in cluster west: is of cluster west and ignored") {
		t.Errorf("problems %v", p)
	}
	d.want(Objects{of("west", gone(put(t, vs("a", "1s"))))})
	broken := of("west", broken(put(t, policy("{}"))))
	d.want(Objects{broken}) // a policy that is not the config cluster's closes nothing
}

// A new leader that finds one cluster empty keeps its records, however many the other clusters have.
func TestGuardOfEachCluster(t *testing.T) {
	d := newDesk(t)
	all := Objects{synced}
	for i := range 20 {
		all = append(all, of("", put(t, strings.ReplaceAll(svc, "name: web", fmt.Sprintf("name: s%d", i)))))
	}
	d.step(append(all, of("west", put(t, svc)), of("west", put(t, epSlice("web", "10.1.0.1", "web-1")))))
	d.step(Gained{Epoch: d.epoch})
	if len(d.stored) != 22 {
		t.Fatalf("%d records", len(d.stored))
	}
	d.s = NewState(Options{})
	d.step(all)
	d.step(Gained{Epoch: kv.Epoch{Key: "leader", Revision: 8}})
	if len(d.stored) != 22 || len(d.s.removals.keys) != 2 {
		t.Errorf("%d records are stored, %d held", len(d.stored), len(d.s.removals.keys))
	}
	for key := range d.s.removals.keys {
		if key.Origin.Cluster() != "west" || key.Kind != model.KindService && key.Kind != model.KindEndpoints {
			t.Errorf("%v is held", key)
		}
	}
}
