package validate

import (
	"fmt"
	"strings"
	"testing"

	"navarch.io/navarch/store/ingest"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/object"
)

// running are the objects of a running mesh.
const running = `
{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {name: web, namespace: shop, creationTimestamp: "2020-01-01T00:00:00Z"}, spec: {hosts: [web], http: [{route: [{destination: {host: web}}]}]}}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: out, namespace: shop, creationTimestamp: "2020-01-01T00:00:00Z"}
spec: {hosts: [api.example.com], resolution: STATIC, ports: [{number: 443, name: tls, protocol: TLS}], endpoints: [{address: 1.2.3.4}]}
---
apiVersion: security.istio.io/v1
kind: RequestAuthentication
metadata: {name: jwt, namespace: shop}
spec: {jwtRules: [{issuer: a, jwksUri: "https://keys.example.com/set"}]}
---
{apiVersion: networking.istio.io/v1, kind: Gateway, metadata: {name: old, namespace: shop}, spec: {selector: {a: b}, servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ["*"]}]}}
`

// An object over a snapshot has the records that the leader would make: an existing object keeps its creation time and
// origin, its fetched keys and automatic addresses. Objects that cannot be previewed are refused by name.
func TestProposals(t *testing.T) {
	records, _ := ingest.Records(eventsOf(t, running), normal.Options{})
	for _, r := range records {
		switch body := r.(type) {
		case *model.Service:
			body.Spec.Automatic = []*model.HostAddresses{{Host: "api.example.com", Addresses: []string{"240.240.0.7"}}}
		case *model.Policy:
			fetched := model.Authentication(body)
			fetched.JwtRules[0].Jwks = `{"keys":[]}`
		}
	}
	known := mirror.Empty().Apply(7, records, nil).New
	w := webhook()
	for _, one := range []struct {
		name, text string
		gone       bool
		want       string
	}{
		{"changed", `{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {name: web, namespace: shop}, spec: {hosts: [web, more], http: [{route: [{destination: {host: web}}]}]}}`, false,
			"VirtualService/shop/web@1577836800"},
		{"equal", `{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {name: web, namespace: shop}, spec: {hosts: [web], http: [{route: [{destination: {host: web}}]}]}}`, false, ""},
		{"equal, without a time", `{apiVersion: networking.istio.io/v1, kind: Gateway, metadata: {name: old, namespace: shop}, spec: {selector: {a: b}, servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ["*"]}]}}`, false, ""},
		{"deleted, with all its records", `{apiVersion: networking.istio.io/v1, kind: ServiceEntry, metadata: {name: out, namespace: shop}, spec: {}}`, true,
			"-ServiceEntry -Endpoints"},
		{"absent", `{apiVersion: networking.istio.io/v1, kind: Sidecar, metadata: {name: none, namespace: shop}, spec: {}}`, true, "refused: does not exist"},
		{"of Kubernetes", `{apiVersion: v1, kind: Service, metadata: {name: web, namespace: shop}, spec: {}}`, false, "refused: apiVersion: is not a kind"},
		{"unknown version", `{apiVersion: networking.istio.io/v9, kind: Sidecar, metadata: {name: web, namespace: shop}, spec: {}}`, false,
			`refused: apiVersion: version "v9" is not served: want one of v1, v1beta1, v1alpha3`},
		{"misspelt kind", `{apiVersion: networking.istio.io/v1, kind: Sidcar, metadata: {name: web, namespace: shop}, spec: {}}`, false,
			"refused: kind: kind Sidcar of networking.istio.io is not known: the group has DestinationRule, EnvoyFilter, Gateway, "},
		{"kind of another group", `{apiVersion: networking.istio.io/v1, kind: PeerAuthentication, metadata: {name: web, namespace: shop}, spec: {}}`, false,
			"refused: kind: kind PeerAuthentication of networking.istio.io is not known: this kind belongs to security.istio.io"},
		{"against the definition", `{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {name: web, namespace: shop}, spec: {hosts: 7}}`, false, "refused: spec.hosts"},
		{"invalid", `{apiVersion: networking.istio.io/v1, kind: Sidecar, metadata: {name: s, namespace: shop}, spec: {egress: [{hosts: ["no slash"]}]}}`, false, "refused: spec.egress[0].hosts[0]"},
		{"twice", `{apiVersion: networking.istio.io/v1, kind: Sidecar, metadata: {name: s, namespace: shop}, spec: {egress: [{hosts: ["./*"]}]}}
---
{apiVersion: networking.istio.io/v1, kind: Sidecar, metadata: {name: s, namespace: shop}, spec: {egress: [{hosts: ["./*"]}]}}`, false, "refused: is named twice"},
	} {
		var objects []*object.Object
		for _, e := range eventsOf(t, one.text) {
			objects = append(objects, e.Object)
		}
		c, proposed := w.Propose(t.Context(), known, proposalOf(objects, one.gone))
		if got := proposals(c, proposed); !strings.HasPrefix(got, one.want) || one.want == "" && got != "" {
			t.Errorf("%s: %q, want %q", one.name, got, one.want)
		}
	}
	entry := `{apiVersion: networking.istio.io/v1, kind: ServiceEntry, metadata: {name: out, namespace: shop}, spec: {hosts: [api.example.com], resolution: STATIC, ports: [{number: 443, name: tls, protocol: TLS}], endpoints: [{address: 1.2.3.5}]}}`
	l := proposalLookup{known: known}
	if got := l.Automatic(normal.AutomaticID("shop", "out")); fmt.Sprint(got) != "map[api.example.com:[240.240.0.7]]" {
		t.Errorf("automatic addresses: %v", got)
	}
	c, _ := w.Propose(t.Context(), known, Proposal{Objects: []*object.Object{parseYAML(t, entry).Object}})
	if len(c.Edits) == 0 || c.New.Revision() != 8 {
		t.Errorf("%v", c.Edits)
	}
}

// Warnings of an object are those that it has together with the other objects of the proposal, in any order.
// Promise: plan.md#edge-cases
func TestProposedTogether(t *testing.T) {
	const route = `{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {name: v, namespace: shop}, spec: {hosts: [a.com], gateways: [GATEWAY], http: [{directResponse: {status: 200}}]}}`
	const gateway = `{apiVersion: networking.istio.io/v1, kind: Gateway, metadata: {name: new, namespace: shop}, spec: {selector: {a: b}, servers: [{port: {number: 81, name: http, protocol: HTTP}, hosts: ["*"]}]}}`
	known := mirror.Empty().Apply(7, nil, nil).New
	to := func(name string) string { return strings.Replace(route, "GATEWAY", name, 1) }
	for text, want := range map[string]string{
		to("new"):                        "Gateway shop/new does not exist",
		to("new") + "\n---\n" + gateway:  "",
		gateway + "\n---\n" + to("new"):  "",
		gateway + "\n---\n" + to("none"): "Gateway shop/none does not exist",
	} {
		var objects []*object.Object
		for _, e := range eventsOf(t, text) {
			objects = append(objects, e.Object)
		}
		c, proposed := webhook().Propose(t.Context(), known, Proposal{Objects: objects})
		var found []string
		for _, d := range proposed {
			for _, p := range d.Problems {
				found = append(found, p.Message)
			}
		}
		if got := strings.Join(found, "; "); len(c.Edits) != len(objects) || !strings.Contains(got, want) || (got == "") != (want == "") {
			t.Errorf("%s: %d edits, %q, want %q", text, len(c.Edits), got, want)
		}
	}
}

// proposalOf puts objects, or removes them.
func proposalOf(objects []*object.Object, gone bool) Proposal {
	if gone {
		return Proposal{Removed: objects}
	}
	return Proposal{Objects: objects}
}

// proposals describes a change, or the refusals.
func proposals(c mirror.Change, all []Proposed) string {
	var out []string
	for _, d := range all {
		for _, p := range d.Problems {
			if d.Refused {
				out = append(out, "refused: "+strings.TrimPrefix(p.Field+": "+p.Message, ": "))
			}
		}
	}
	for _, e := range c.Edits {
		if e.New == nil {
			out = append(out, "-"+e.Key().Kind.String())
			continue
		}
		out = append(out, fmt.Sprintf("%v/%s/%s@%d", e.Key().Kind, e.Key().Namespace, e.Key().Name, e.New.Meta().Created))
	}
	return strings.Join(out, " ")
}
