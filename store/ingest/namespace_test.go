package ingest

import (
	"testing"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/origin"
)

// A Namespace of a cluster has a record while it exists; changes of its labels do not change the record. A Namespace of
// a folder has no record.
func TestNamespaceHasARecord(t *testing.T) {
	w := newInventory(Options{})
	from := func(source, labels string) object.Event {
		e := put(t, "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {"+labels+"}}")
		o := *e.Object
		o.ID.Origin = origin.New("", source)
		e.Object, e.ID = &o, o.ID
		return e
	}
	key := model.Key{Kind: model.KindNamespace, Origin: origin.New("", origin.Kube), Name: "shop"}
	w.applyEvents([]object.Event{from("files", "a: b")})
	if len(w.wanted.records) > 0 {
		t.Errorf("of a folder: %v", w.wanted.records)
	}
	w.applyEvents([]object.Event{from(origin.Kube, "a: b")})
	record := w.wanted.records[key]
	if record == nil || len(w.wanted.records) != 1 {
		t.Fatalf("of a cluster: %v", w.wanted.records)
	}
	w.applyEvents([]object.Event{from(origin.Kube, "topology.istio.io/network: west")})
	if w.wanted.records[key] != record {
		t.Error("labels make another record")
	}
	w.applyEvents([]object.Event{gone(from(origin.Kube, ""))})
	if len(w.wanted.records) > 0 {
		t.Errorf("it is deleted: %v", w.wanted.records)
	}
}
