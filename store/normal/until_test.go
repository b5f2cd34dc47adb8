package normal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"navarch.io/navarch/store/object"
)

// looked is a context that ends after a number of looks at it.
type looked struct {
	context.Context
	left int
}

func (l *looked) Err() error {
	if l.left--; l.left < 0 {
		return context.Canceled
	}
	return nil
}

// The normalisation of a large object ends soon after the client has gone, in the decoder and in the checks after it.
// Promise: security-admission.md#turns-and-connections
func TestNormalisationEnds(t *testing.T) {
	var hosts, rules []any
	for i := range 5000 {
		hosts = append(hosts, fmt.Sprintf("h%d.test", i))
		rules = append(rules, map[string]any{"route": []any{map[string]any{"destination": map[string]any{"host": fmt.Sprint("a", i)}}}})
	}
	raw, err := json.Marshal(map[string]any{"spec": map[string]any{"hosts": hosts, "http": rules}})
	if err != nil {
		t.Fatal(err)
	}
	obj := &object.Object{ID: object.ID{Group: "networking.istio.io", Kind: "VirtualService", Namespace: "shop", Name: "a"},
		Version: "v1", JSON: raw}
	n := New(Options{})
	all := &looked{t.Context(), 1 << 30}
	if r, err := n.ObjectUntil(all, obj, &fake{}); err != nil || r.Spoiled {
		t.Fatal(err, r.Problems)
	}
	looks := 1<<30 - all.left
	if looks < 500 {
		t.Errorf("the context was looked at %d times", looks)
	}
	for _, after := range []int{0, 10, looks / 2, looks - 1} {
		c := &looked{t.Context(), after}
		r, err := n.ObjectUntil(c, obj, &fake{})
		if c.left != -1 || len(r.Records)+len(r.Problems) > 0 || !errors.Is(err, context.Canceled) {
			t.Errorf("after %d looks: %d more, %d records, %v", after, -1-c.left, len(r.Records), err)
		}
	}
}
