package vhost

import (
	"strings"
	"testing"

	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
)

func filterPatches(t testing.TB, text string) []model.Patch {
	t.Helper()
	spec := &networkingv1.EnvoyFilter{}
	fromYAML(t, "configPatches: "+text, spec)
	filter := record[*model.EnvoyFilter](t, model.KindEnvoyFilter, "f", spec)
	var out []model.Patch
	for i := range spec.ConfigPatches {
		out = append(out, model.Patch{Filter: filter, Index: i})
	}
	return out
}

func patchList(t testing.TB, text string) intern.List[model.Patch] {
	return ptchs.List(filterPatches(t, text)...)
}

func TestPatches(t *testing.T) {
	const text = `[{applyTo: HTTP_ROUTE, patch: {operation: INSERT_FIRST, value: {name: mine, match: {path: /mine}, direct_response: {status: 299}}}},
		{applyTo: VIRTUAL_HOST, patch: {operation: MERGE, value: {domains: [more], response_headers_to_remove: [server]}}}]`
	s := specOf(nil)
	before := draw(t, s)
	s.Patches = patchList(t, text)
	vh := draw(t, s)
	if len(vh.Routes) != 2 || vh.Routes[0].Name != "mine" || len(vh.Domains) != len(before.Domains)+1 || len(vh.ResponseHeadersToRemove) != 1 {
		t.Errorf("patched: %v", vh)
	}
	if got := s.Domains.Len(); got != 2 {
		t.Errorf("the Spec's list of domains was changed: %d", got)
	}
	all := draw(t, CatchAll{Passthrough: true, Patches: patchList(t, text)})
	if len(all.Routes) != 2 || all.Routes[0].Name != "mine" || len(all.Domains) != 2 {
		t.Errorf("patched catch-all: %v", all)
	}
}

// A virtual host that a patch removes is a fragment without bytes, and its hash equals that of no other fragment.
func TestRemoved(t *testing.T) {
	remove := patchList(t, `[{applyTo: VIRTUAL_HOST, patch: {operation: REMOVE}}]`)
	s := specOf(nil)
	s.Patches = remove
	f, err := s.Fragment()
	if err != nil || len(f.Bytes) != 0 || f.Name != reviews+":80" {
		t.Fatalf("removed: %+v, %v", f, err)
	}
	other, err := CatchAll{Patches: remove}.Fragment()
	if err != nil || len(other.Bytes) != 0 || other.Hash == f.Hash {
		t.Fatalf("removed: %+v, %v", other, err)
	}
	if rc := routeConfig(t, s, CatchAll{}); len(rc.VirtualHosts) != 1 || rc.VirtualHosts[0].Name != "block_all" {
		t.Errorf("a route configuration with a removed virtual host: %v", rc)
	}
}

func TestAdded(t *testing.T) {
	p := filterPatches(t, `[{applyTo: VIRTUAL_HOST, patch: {operation: ADD, value: {name: mine, domains: [a, b], routes: [{match: {prefix: /}, direct_response: {status: 204}}]}}},
		{applyTo: VIRTUAL_HOST, patch: {operation: ADD, value: {name: mine}}}, {applyTo: VIRTUAL_HOST, patch: {operation: ADD, value: {nonsense: 1}}}]`)
	vh := draw(t, Added{p[0]})
	if vh.Name != "mine" || len(vh.Routes) != 1 || len((Added{p[0]}).Domains()) != 2 {
		t.Errorf("added: %v", vh)
	}
	for i, bad := range p[1:] {
		_, err := Added{Patch: bad}.Fragment()
		if err == nil || !strings.Contains(err.Error(), "EnvoyFilter shop/f") || (Added{bad}).Domains() != nil {
			t.Errorf("bad virtual host %d: %v", i, err)
		}
	}
}
