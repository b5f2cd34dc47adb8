package ingest

import (
	"testing"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/origin"
)

// A Namespace of a cluster has a record for as long as it is there, which no change of its labels changes; one of a folder has none.
func TestNamespaceHasARecord(t *testing.T) {
	w := newInventory(Options{}.Normal, nil)
	from := func(source, labels string) object.Event {
		e := put(t, "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {"+labels+"}}")
		o := *e.Object
		o.ID.Origin = origin.New("", source)
		e.Object, e.ID = &o, o.ID
		return e
	}
	key := model.Key{Kind: model.KindNamespace, Origin: origin.New("", origin.Kube), Name: "shop"}
	w.take([]object.Event{from("files", "a: b")})
	if len(w.want) > 0 {
		t.Errorf("of a folder: %v", w.want)
	}
	w.take([]object.Event{from(origin.Kube, "a: b")})
	record := w.want[key]
	if record == nil || len(w.want) != 1 {
		t.Fatalf("of a cluster: %v", w.want)
	}
	w.take([]object.Event{from(origin.Kube, "topology.istio.io/network: west")})
	if w.want[key] != record {
		t.Error("labels make another record")
	}
	w.take([]object.Event{gone(from(origin.Kube, ""))})
	if len(w.want) > 0 {
		t.Errorf("it is deleted: %v", w.want)
	}
}
