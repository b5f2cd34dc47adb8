package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"navarch.io/navarch/push/envoytest"
	"navarch.io/navarch/push/meaning"
	"navarch.io/navarch/push/preview"
)

// ringFilter is an EnvoyFilter that sets the sizes of a ring of hashes, of which Envoy alone knows the rule.
func ringFilter(name, least, most string) string {
	return "{apiVersion: networking.istio.io/v1alpha3, kind: EnvoyFilter, metadata: {name: " + name + ", namespace: shop}, spec: {configPatches: [" +
		"{applyTo: CLUSTER, match: {cluster: {service: web.example}}, patch: {operation: MERGE, value: {lb_policy: RING_HASH, " +
		"ring_hash_lb_config: {minimum_ring_size: " + least + ", maximum_ring_size: " + most + "}}}}]}}\n"
}

// NP602: a real Envoy refuses the configuration after the change. It is no risk if Envoy takes it, or refuses it for
// the same reason before the change, too.
func TestEnvoyRefuses(t *testing.T) {
	envoy := envoytest.Binary(t)
	const entry = "{apiVersion: networking.istio.io/v1, kind: ServiceEntry, metadata: {name: web, namespace: shop}, spec: {hosts: [web.example], " +
		"resolution: STATIC, ports: [{number: 80, name: http, protocol: HTTP}], endpoints: [{address: 10.0.0.1}]}}\n"
	const host = "{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {name: web, namespace: shop}, spec: {hosts: [web.example], " +
		"http: [{timeout: 3s, route: [{destination: {host: web.example}}]}]}}\n"
	node, err := filepath.Abs("../../deploy/demo/node.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, before, change string
		want                 bool
	}{
		{"a ring that is smaller than itself", entry, ringFilter("ring", "10", "5"), true},
		{"a ring", entry, ringFilter("ring", "5", "10"), false},
		{"refused before", entry + "---\n" + ringFilter("ring", "10", "5"), host, false},
	} {
		dir := t.TempDir()
		file := filepath.Join(t.TempDir(), "change.yaml")
		for path, text := range map[string]string{filepath.Join(dir, "a.yaml"): c.before, file: c.change} {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		p := planning{files: []string{file}, proxies: []string{node}, envoy: envoy, from: offline{configDir: dir, cluster: "Kubernetes", domain: "cluster.local"}}
		change, err := p.read(nil)
		if err != nil {
			t.Fatal(err)
		}
		r, err := p.report(t.Context(), &change, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Affected) != 1 || r.Affected[0].Bootstrap == nil || r.Affected[0].Bootstrap.Lacking != "" {
			t.Fatalf("%s: %+v", c.name, r.Affected)
		}
		var said strings.Builder
		if err := validated(t.Context(), envoy, r, &said); err != nil || said.Len() > 0 {
			t.Fatalf("%s: %v, %s", c.name, err, said.String())
		}
		first := r.Risks[:min(len(r.Risks), 1)]
		got := len(first) == 1 && first[0].Code == meaning.EnvoyRefuses
		if got != c.want || r.Affected[0].Bootstrap != nil {
			t.Errorf("%s: %+v", c.name, r.Risks)
		}
		if got && (!strings.Contains(first[0].Text, "minimum_ring_size") || strings.Contains(first[0].Text, "/tmp") ||
			len(first[0].Objects) != 1 || first[0].Level != "high") {
			t.Errorf("%s: %+v", c.name, first[0])
		}
	}
	if _, err := refusal(t.Context(), filepath.Join(t.TempDir(), "absent"), nil); err == nil {
		t.Error("an Envoy that is not there")
	}
}

// An Envoy that is killed has judged nothing: that is an error, and not a refusal or an acceptance.
func TestEnvoyIsKilled(t *testing.T) {
	file := filepath.Join(t.TempDir(), "envoy")
	if err := os.WriteFile(file, []byte("#!/bin/sh\nkill -9 $$\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	if why, err := refusal(t.Context(), file, nil); err == nil {
		t.Errorf("no error, refusal %q", why)
	}
}

// Refusals for one reason are one risk, whose groups and proxies are added.
func TestRefusalsForOneReasonAreOneRisk(t *testing.T) {
	r := &preview.Report{}
	other := []preview.Risk{{Code: meaning.MeshWide, Text: "x"}}
	for _, c := range []struct {
		label, text string
		proxies     int
	}{{"a", "no ring", 2}, {"b", "no ring", 3}, {"c", "no port", 1}} {
		other = withRefusal(other, refusedBy(&preview.Group{Label: c.label, Proxies: c.proxies}, r, c.text))
	}
	if len(other) != 3 || other[1].Proxies != 5 || other[1].Views != 2 || len(other[1].Subjects) != 2 || other[0].Proxies != 1 {
		t.Errorf("%+v", other)
	}
}

// A group that the report does not validate for a reason is named, and does not count among those beyond the bound.
func TestGroupsThatAreNotValidatedCountOnce(t *testing.T) {
	r := &preview.Report{Affected: []preview.Group{
		{Label: "large", Bootstrap: &preview.Bootstrap{Lacking: "has more than 4 MiB"}}, {Label: "a"}, {Label: "b"}}}
	var said strings.Builder
	if err := validated(t.Context(), "", r, &said); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"large is not validated: has more than 4 MiB", "2 of 3 groups"} {
		if !strings.Contains(said.String(), want) {
			t.Errorf("%q: want %s", said.String(), want)
		}
	}
}
