package ingest

import (
	"maps"
	"testing"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/origin"
)

// A file cannot contain the policy that denies revoked identities, since its name is invalid in Kubernetes
// (store/source/files, TestParse). Such a file closes its namespace as any unreadable policy does, and the denial stays
// in effect, also after the file is removed.
// Promise: security-tenants.md#take-traffic-or-weaken-policies
func TestNoFileTakesThePlaceOfDenials(t *testing.T) {
	o, err := normal.NewDenied([]string{"spiffe://cluster.local/ns/shop/sa/web"})
	if err != nil {
		t.Fatal(err)
	}
	d := newDesk(t)
	d.want(Objects{object.Event{Op: object.Put, ID: o.ID, Object: o, Location: o.Location}, synced})
	d.want(Gained{Epoch: d.epoch}, "load", "write +AuthorizationPolicy "+model.DeniedName)
	was := maps.Clone(d.stored)
	file := put(t, "apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: {name: '"+model.DeniedName+"', namespace: istio-system}\nspec: {}")
	file.ID.Origin = origin.New("", origin.Files)
	d.want(Objects{broken(file)}, "write +closed AuthorizationPolicy "+model.DeniedName)
	for key, hash := range was {
		if d.stored[key] != hash || len(d.stored) != 2 {
			t.Errorf("%v is another one: %v", key, d.stored)
		}
	}
	d.want(Objects{gone(file)}, "write -AuthorizationPolicy "+model.DeniedName)
	if !maps.Equal(d.stored, was) {
		t.Errorf("stored are %v, before %v", d.stored, was)
	}
}

// A leader that has not read the keyring yet leaves the stored denied identities in effect.
func TestDeniedStandUntilTheKeyringIsRead(t *testing.T) {
	denied := func(ids ...string) object.Event {
		o, err := normal.NewDenied(ids)
		if err != nil {
			t.Fatal(err)
		}
		return object.Event{Op: object.Put, ID: o.ID, Object: o, Location: o.Location}
	}
	d := newDesk(t)
	d.want(Objects{broken(denied())})
	d.want(Objects{put(t, svc), synced})
	d.want(Gained{Epoch: d.epoch}, "load", "write +Service web")
	d.want(Objects{denied("spiffe://cluster.local/ns/shop/sa/web")}, "write +AuthorizationPolicy "+model.DeniedName)
	d.s = NewState(Options{})
	d.lead()
	d.want(Objects{broken(denied())})
	d.want(Objects{put(t, svc), synced}, "load")
	d.want(Objects{denied("spiffe://cluster.local/ns/shop/sa/web")})
	d.want(Objects{denied()}, "write -AuthorizationPolicy "+model.DeniedName)
	if p := d.s.Problems(); len(p) != 0 {
		t.Errorf("problems %v", p)
	}
}
