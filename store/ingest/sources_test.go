package ingest

import (
	"strings"
	"testing"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/origin"
)

// The stored records of another cluster stay until its source has emitted everything: under a new leader, with new
// credentials, and while the cluster is away. Other sources do not wait for it. After the cluster is removed, the
// shrink guard holds the removal of its records until an operator accepts it. (Known bugs of istiod: endpoints lost by
// a rotation of credentials; "synced" before remote clusters are.)
func TestRemoteCluster(t *testing.T) {
	west := origin.New("west", origin.Kube)
	of := func(e object.Event) object.Event {
		e.ID.Origin = west
		if e.Object != nil {
			o := *e.Object
			o.ID.Origin, e.Object = west, &o
		}
		return e
	}
	forget := Objects{{Op: object.Forget, ID: object.ID{Origin: west}}}
	complete := Objects{{Op: object.Synced, ID: object.ID{Origin: west}}}
	there := Remotes{Known: true, Origins: []origin.Origin{west}}
	restart := func(d *desk) {
		d.s = NewState(Options{Remote: true})
		d.epoch.Revision++
		d.lead()
	}
	d := newDesk(t)
	restart(d)
	d.want(Objects{from(origin.Files, put(t, vs("a", "1s"))), synced}, "load", "write +VirtualService a") // the first write waits for no other cluster
	d.want(there, "load")
	d.want(Objects{of(put(t, svc))}) // half of a cluster is not written
	d.want(complete, "load", "write +Service web")

	d.want(forget) // other credentials: the source begins again
	d.want(Objects{from(origin.Files, put(t, vs("a", "2s")))}, "write +VirtualService a")
	d.want(Objects{of(put(t, svc))})
	d.want(complete, "load") // nothing differs
	d.want(Objects{of(gone(put(t, svc))), of(put(t, strings.Replace(svc, "web", "other", 1)))}, "write +Service other -Service web")

	restart(d) // a new leader, and the cluster is away: neither before nor after the list of clusters is anything of it removed
	d.want(Objects{from(origin.Files, put(t, vs("a", "3s"))), synced}, "load", "write +VirtualService a")
	d.want(there, "load")
	d.want(Objects{from(origin.Files, put(t, vs("a", "4s")))}, "write +VirtualService a")
	if got := d.paths(); got != "Service/west/kube/shop/other VirtualService//files/shop/a" {
		t.Fatalf("stored %s", got)
	}
	d.want(forget)
	d.want(Remotes{Known: true}, "load") // its Secret is gone
	held := d.s.removals.book.Holds()
	if len(held) != 1 || held[0].Cluster != "west" || held[0].Why != object.Unnamed || held[0].Waits {
		t.Fatalf("held %+v, want the Service of cluster west", held)
	}
	if p := d.s.Problems(); len(p) != 1 || p[0].ID.Origin != west || !strings.Contains(p[0].Message, "no Secret names") {
		t.Errorf("the problem does not say what is held: %v", p)
	}
	if _, kept := d.s.stored.hashes[model.Key{Kind: model.KindService, Origin: west, Namespace: "shop", Name: "other"}]; !kept {
		t.Error("the cluster was removed, and nothing held it")
	}
	if effects, _, ok := d.s.accept(held[0].ID); !ok || len(effects) == 0 {
		t.Errorf("accepted %v: %v", ok, effects)
	}
}
