package files

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"navarch.io/navarch/store/object"
)

// What the shrink guard holds is let go for exactly its objects, once; what comes back is not held any more.
func TestReleaseOfWhatIsHeld(t *testing.T) {
	f := newReader("", false, nil, 0)
	at := time.Unix(1e6, 0)
	service := func(name string) []byte {
		return fmt.Appendf(nil, "apiVersion: v1\nkind: Service\nmetadata: {name: %s, namespace: shop}\n", name)
	}
	var looks []look
	for i := range 6 {
		looks = append(looks, look{path: fmt.Sprint(i, ".yaml"), data: service(fmt.Sprint("s", i))})
	}
	f.step(at, looks, true)
	for i := range looks {
		looks[i] = look{path: looks[i].path, missing: true}
	}
	if events := f.step(at, looks, false); len(events) != 0 || len(f.guard.Held()) != 6 {
		t.Fatalf("%d events, %d held", len(events), len(f.guard.Held()))
	}
	if events := f.step(at, []look{{path: "0.yaml", data: service("s0")}}, false); len(f.guard.Held()) != 5 {
		t.Fatalf("one is back: %v, %d held", events, len(f.guard.Held()))
	}
	ids := f.guard.Held()
	for what, wrong := range map[string][]object.Loss{"nothing": nil, "all but one": ids[1:], "one twice": append(slices.Clone(ids[1:]), ids[1]),
		"another":          append(slices.Clone(ids[1:]), object.Loss{ID: ids[1].ID.SameOrigin(object.ID{Kind: "Service", Namespace: "shop", Name: "s0"})}),
		"a version of one": append(slices.Clone(ids[1:]), object.Loss{ID: ids[0].ID, Version: "x"})} {
		if events, ok := f.release(wrong); ok || len(events) > 0 || len(f.guard.Held()) != 5 {
			t.Errorf("%s: %v, %d held", what, events, len(f.guard.Held()))
		}
	}
	events, ok := f.release(ids)
	if !ok || len(events) != 5 || len(f.guard.Held()) != 0 || len(f.emitted) != 1 || slices.ContainsFunc(events, func(e object.Event) bool { return e.Op != object.Delete }) {
		t.Errorf("%v, %d held, %d emitted", events, len(f.guard.Held()), len(f.emitted))
	}
	if events, ok := f.release(ids); ok || len(events) > 0 {
		t.Errorf("again: %v", events)
	}
}
