package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"navarch.io/navarch/push/serve"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/object"
)

// A version that a thousand proxies refuse is one problem, at the object that made it; another version is another.
func TestRefusalsAreToldOnce(t *testing.T) {
	var all []serve.Refusal
	for i := range 1000 {
		all = append(all, serve.Refusal{Node: fmt.Sprintf("p%d", i), Type: xds.Cluster, Name: "c", Version: "1", Text: "no",
			Objects: []string{"EnvoyFilter shop/f spec.configPatches[2]", "Service shop/c"}})
	}
	all = append(all, serve.Refusal{Node: "q", Type: xds.Cluster, Name: "c", Version: "2", Text: "no"})
	got := refused(all)
	if len(got) != 2 {
		t.Fatalf("%d problems: %+v", len(got), got)
	}
	if p := got[0]; p.Object != "EnvoyFilter shop/f" || p.Field != "spec.configPatches[2]" || p.Origin != "proxy p0 and 999 more" ||
		!slices.Equal(p.Related, []string{"Service shop/c"}) || !strings.Contains(p.Message, "cluster c was refused") {
		t.Errorf("%+v", p)
	}
	if p := got[1]; p.Object != "cluster c" || p.Origin != "proxy q" {
		t.Errorf("whose maker is not known: %+v", p)
	}
}

// Objects are named as far as they have names.
func TestNamed(t *testing.T) {
	for want, id := range map[string]object.ID{
		"Service shop/web": {Kind: "Service", Namespace: "shop", Name: "web"}, "Service": {Kind: "Service"}, "": {},
	} {
		if got := named(id); got != want {
			t.Errorf("%+v: got %q, want %q", id, got, want)
		}
	}
}
