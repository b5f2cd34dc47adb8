package kube

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"navarch.io/navarch/store/object"
)

// A configuration object is read if it names no revision, or this one; the label has no effect on built-in kinds. An
// object whose label changes is added or removed, for any number of objects.
func TestRevisions(t *testing.T) {
	for of, want := range map[string]string{"": "default", "canary": "canary"} {
		if s := newSource(Config{Revision: of}, nil); s.Revision != want {
			t.Errorf("revision %q is %q", of, s.Revision)
		}
	}
	d := newDesk(t)
	labelled := func(name, revision string) runtime.Object {
		return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: map[string]string{revisionLabel: revision}}}
	}
	plain := named("shop", 0, 1, aService)[0]
	expect := func(what string, want ...string) {
		t.Helper()
		if got := d.emitted(); !slices.Equal(got, want) {
			t.Errorf("%s: emitted %q, want %q", what, got, want)
		}
	}
	d.put("Service", labelled("s", "canary"))
	d.put(virtualServices.kind, plain, labelled("a", "default"), labelled("b", "canary"), labelled("c", ""))
	expect("objects", "put Service shop/s", "put VirtualService shop/a", "put VirtualService shop/o0")
	d.put(virtualServices.kind, labelled("a", "canary"), labelled("b", "default"))
	expect("labels change", "put VirtualService shop/b", "delete VirtualService shop/a")
	var many, moved []runtime.Object
	for _, name := range strings.Split("d e f g h i", " ") {
		many, moved = append(many, labelled(name, "default")), append(moved, labelled(name, "canary"))
	}
	d.put(virtualServices.kind, many...)
	d.emitted()
	d.put(virtualServices.kind, moved...)
	d.expect("most change", 6, object.Deleted, 0)
}

func TestIgnoredKinds(t *testing.T) {
	s := newSource(Config{Ignore: []string{"*.istio.io", "httproutes.gateway.networking.k8s.io"}, Include: []string{"envoyfilters.networking.istio.io"}}, nil)
	for name, want := range map[string]bool{"virtualservices.networking.istio.io": true, "telemetries.telemetry.istio.io": true, "envoyfilters.networking.istio.io": false,
		"httproutes.gateway.networking.k8s.io": true, "gateways.gateway.networking.k8s.io": false} {
		resource, group, _ := strings.Cut(name, ".")
		if got := s.ignored(resource, group); got != want {
			t.Errorf("%s: ignored: %v, want %v", name, got, want)
		}
	}
	for pattern, ok := range map[string]bool{"*.istio.io": true, "a.b": true, "[": false, "a/b": false} {
		if err := checkPatterns([]string{pattern}); (err == nil) != ok {
			t.Errorf("%q: %v", pattern, err)
		}
	}
}

// The shared mesh configuration applies to fields that this revision's does not set, including discoverySelectors; an
// invalid one leaves the last good version in effect.
func TestSharedMesh(t *testing.T) {
	d := newDesk(t)
	d.put("Node", &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
	d.s.SharedMesh = "shared"
	for _, name := range []string{"istio", "shared"} {
		k := d.s.meshConfiguration(name)
		d.s.kinds[k.id()] = d.s.newFollower(k)
	}
	is := func(name, mesh string) {
		t.Helper()
		f := d.s.kinds[d.s.meshConfiguration(name).id()]
		var all []any
		if mesh != "" {
			all = append(all, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "istio-system", Name: name}, Data: map[string]string{"mesh": mesh, "meshNetworks": name}})
		}
		if err := (store{f, f.kind}).Replace(all, ""); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(what string, contains ...string) {
		t.Helper()
		d.emitted()
		_, now := d.s.get(object.ID{Origin: d.s.origin, Kind: "ConfigMap", Namespace: "istio-system", Name: "istio"})
		if len(contains) == 0 {
			if now != nil {
				t.Errorf("%s: %s", what, now.JSON)
			}
			return
		}
		for _, c := range contains {
			if now == nil || !strings.Contains(string(now.JSON), c) {
				t.Errorf("%s: no %s in %+v", what, c, now)
			}
		}
	}
	expect("none")
	is("shared", "rootNamespace: a\ndiscoverySelectors: [{matchLabels: {mesh: yes1}}]")
	expect("the shared one alone", `\"rootNamespace\":\"a\"`)
	if len(d.s.selection.selectors) != 1 {
		t.Error("its discoverySelectors do not count")
	}
	is("istio", "trustDomain: t")
	expect("both", `\"rootNamespace\":\"a\"`, `\"trustDomain\":\"t\"`, `"meshNetworks":"istio"`)
	is("shared", "]")
	expect("the shared one cannot be read", `\"rootNamespace\":\"a\"`, `\"trustDomain\":\"t\"`)
	if p := d.s.Problems(); len(p) != 1 || p[0].ID.Name != "shared" {
		t.Errorf("problems %v", p)
	}
	is("istio", "discoverySelectors: []")
	if expect("own selectors", `\"rootNamespace\":\"a\"`); len(d.s.selection.selectors) != 0 {
		t.Error("its discoverySelectors do not count")
	}
	is("shared", "")
	expect("the shared one goes", "discoverySelectors: []")
	is("istio", "")
	expect("both are gone")
	if p := d.s.Problems(); len(p) != 0 {
		t.Errorf("problems %v", p)
	}
}
