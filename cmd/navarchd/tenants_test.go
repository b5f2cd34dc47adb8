package main

import (
	"testing"

	"navarch.io/navarch/store/kv"
)

// A namespace is a tenant of its own but for what the leader says; what cannot be read leaves what was known.
func TestTenants(t *testing.T) {
	known := newTenants()
	alike := func(want bool, what string) {
		t.Helper()
		if (known.of("shop") == known.of("pay")) != want || known.of("shop") == known.of("other") {
			t.Errorf("%s: shop is %q, pay %q, other %q", what, known.of("shop"), known.of("pay"), known.of("other"))
		}
	}
	alike(false, "nothing is known")
	told := func(raw string) error {
		return known.take(kv.Folder{Blobs: []kv.Blob{{Path: "tenants/else", Raw: []byte("{")}, {Path: tenantsPath, Raw: []byte(raw)}}})
	}
	_, listed, changed := known.stored()
	if err := told(`{"pay":"t","shop":"t"}`); err != nil || listed {
		t.Error(err, listed)
	}
	<-changed
	alike(true, "one label")
	if known.of("shop") == known.of("t") {
		t.Error("a namespace has the name of a label")
	}
	if told(`{"pay":`) == nil {
		t.Error("half a list is read")
	}
	alike(true, "unreadable")
	if raw, listed, _ := known.stored(); string(raw) != `{"pay":` || !listed {
		t.Errorf("a leader would not write it anew: %q", raw)
	}
	if err := known.take(kv.Folder{}); err != nil {
		t.Error(err)
	}
	alike(false, "gone")
}
