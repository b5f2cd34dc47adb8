package ingest

import (
	"fmt"
	"strings"
	"testing"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/source/files"
)

// entryOf is a ServiceEntry of a namespace.
func entryOf(namespace, name string) string {
	return fmt.Sprintf("{apiVersion: networking.istio.io/v1, kind: ServiceEntry, metadata: {name: %s, namespace: %s}, "+
		"spec: {hosts: [%s.example], exportTo: ['.'], ports: [{number: 80, name: http, protocol: HTTP}], resolution: DNS}}", name, namespace, name)
}

// proposedOf parses objects into proposed versions; gone: the objects are deleted.
func proposedOf(t *testing.T, text string, gone bool) (all []Proposed) {
	t.Helper()
	events, _ := files.Parse("x", []byte(text))
	for _, e := range events {
		p := Proposed{ID: e.ID}
		records, problems := Records([]object.Event{e}, normal.Options{})
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		for _, r := range records {
			if id := normal.SourceObject(r.Meta().Key); id.Kind == e.ID.Kind {
				if p.ID = id; !gone {
					p.Records = append(p.Records, r)
				}
			}
		}
		all = append(all, p)
	}
	return all
}

// A version is refused that the leader would refuse: a new object of a full tenant, whichever namespace of the tenant
// it is in. A change of an object, an object of another tenant or of the system namespace, and a new object beside the
// deletion of another are not.
func TestExceeding(t *testing.T) {
	stored := func(objects ...string) []model.Record {
		events, _ := files.Parse("x", []byte(strings.Join(objects, "\n---\n")))
		records, problems := Records(events, normal.Options{})
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		return records
	}
	tenant := func(namespace string) string {
		if strings.HasPrefix(namespace, "shop") {
			return TenantLabel + "=shop"
		}
		return namespace
	}
	all := stored(entryOf("shop", "a"), entryOf("shop-two", "b"), entryOf("other", "c"))
	for _, c := range []struct {
		name string
		of   []Proposed
		want string
	}{
		{"a new one", proposedOf(t, entryOf("shop-two", "new"), false), `ServiceEntry shop-two/new: refused: with it tenant "navarch.io/tenant=shop" would have 3 objects`},
		{"a change", proposedOf(t, strings.Replace(entryOf("shop", "a"), "number: 80", "number: 81", 1), false), ""},
		{"of another tenant", proposedOf(t, entryOf("other", "new"), false), ""},
		{"of the system namespace", proposedOf(t, entryOf("istio-system", "new"), false), ""},
		{"in the place of another", append(proposedOf(t, entryOf("shop", "a"), true), proposedOf(t, entryOf("shop", "new"), false)...), ""},
	} {
		var got []string
		for _, p := range Exceeding(Budget{Objects: 2}, c.of, all, "istio-system", "istio-system", tenant) {
			got = append(got, fmt.Sprintf("%v: %s", p.ID, p.Message))
		}
		if text := strings.Join(got, "\n"); (c.want == "") != (text == "") || !strings.Contains(text, c.want) {
			t.Errorf("%s: %q, want %q", c.name, text, c.want)
		}
	}
	if got := Exceeding(Budget{}, proposedOf(t, entryOf("shop", "x"), false), all, "", "", tenant); got != nil {
		t.Errorf("without limits: %v", got)
	}
}
