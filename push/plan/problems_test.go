package plan

import (
	"maps"
	"strings"
	"testing"

	"navarch.io/navarch/store/model"
)

// A part of the configuration that builders leave out is a problem with its object and field, once for all scopes and
// ports that it affects, until it is corrected.
func TestProblemsOfSpecs(t *testing.T) {
	rule := func(mode string) model.Record {
		return rec(t, model.KindDestinationRule, "shop/web", "host: "+web+"\ntrafficPolicy: {tls: {mode: "+mode+"}}\n")
	}
	s := snapshot(svc(t, "shop/web", "10.96.0.1", "http:80:HTTP", "tcp:90:TCP"), rule("ISTIO_MUTUAL"),
		rec(t, model.KindVirtualService, "shop/v", "hosts: ["+web+"]\nhttp: [{match: [{uri: {regex: '(('}}], route: [{destination: {host: "+web+"}}]}]"),
		rec(t, model.KindEnvoyFilter, "other/f", "configPatches: [{applyTo: CLUSTER, match: {}, patch: {operation: MERGE, value: {nonsense: true}}}]"))
	p := New(Settings{Snapshot: s})
	lines := func() string {
		var lines []string
		for _, one := range p.Problems() {
			line := one.Error()
			lines = append(lines, line[:strings.LastIndex(line, ": ")])
		}
		return strings.Join(lines, "\n")
	}
	ofAll := "VirtualService shop/v: spec.http[0].match[0].uri"
	if got := lines(); !strings.HasPrefix(got, ofAll) || !strings.Contains(got, "EnvoyFilter other/f: spec.configPatches[0].patch.value") || strings.Contains(got, "DestinationRule") {
		t.Errorf("before anybody joined:\n%s", got)
	}
	p.Join(node("shop", "a"))
	p.Join(node("other", "b"))
	if got := lines(); strings.Count(got, "DestinationRule shop/web: spec.trafficPolicy.tls.mode") != 1 || !strings.Contains(got, ofAll) {
		t.Errorf("with two scopes:\n%s", got)
	}
	parts := len(p.reports.known)
	p.Apply(s.Apply(2, []model.Record{rule("DISABLE")}, nil))
	if got := lines(); strings.Contains(got, "DestinationRule") || !strings.Contains(got, ofAll) {
		t.Errorf("after the rule was put right:\n%s", got)
	}
	if len(p.reports.known) > parts {
		t.Errorf("%d parts are remembered, %d before: those of the old rule are to be forgotten", len(p.reports.known), parts)
	}
}

// After an edit of endpoints, no cluster is built again for its problems.
func TestEndpointsHaveNoNewProblems(t *testing.T) {
	at := func(address string) model.Record { return eps(t, "shop/web-1", "{name: http, number: 8080}", address) }
	s := snapshot(svc(t, "shop/web", "10.96.0.1", "http:80:HTTP", "tcp:90:TCP"), at("10.0.0.1"))
	p := New(Settings{Snapshot: s})
	h := p.Join(node("shop", "a"))
	p.Problems()
	known, was := maps.Clone(p.reports.known), h.Set()
	edit := s.Apply(2, []model.Record{at("10.0.0.2")}, nil)
	if _, rest := p.PlanEndpoints(edit, false); len(rest) > 0 || h.Set() == was {
		t.Fatal("the edit changes nothing, or is not planned on the fast path")
	}
	p.Problems()
	for part := range p.reports.known {
		if _, is := known[part]; !is {
			t.Errorf("inspected again: %T", part)
		}
	}
}
