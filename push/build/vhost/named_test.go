package vhost

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestNamed(t *testing.T) {
	vs := service(t, `
http:
- route:
  - {destination: {host: b, subset: v2}, weight: 1}
  - {destination: {host: a}, weight: 1}
  mirror: {host: m}
  mirrors: [{destination: {host: a, port: {number: 90}}}, {destination: {host: m}}]
- directResponse: {status: 200}
- route: [{destination: {host: b, subset: v2}}, {destination: {host: b, subset: v1, port: {number: 90}}}]
`)
	want := []Ref{{"b", "v2", 0}, {"a", "", 0}, {"m", "", 0}, {"a", "", 90}, {"b", "v1", 90}}
	if diff := cmp.Diff(want, Named(vs)); diff != "" {
		t.Error(diff)
	}
}

func TestReads(t *testing.T) {
	vs := service(t, `
http:
- match: [{sourceLabels: {tier: x, app: web}}, {sourceLabels: {app: api}}, {gateways: [gw], sourceLabels: {edge: e}, sourceNamespace: ops}]
  route: [{destination: {host: a}}]
`)
	if diff := cmp.Diff([]string{"app", "tier"}, SourceLabelKeys(vs)); diff != "" {
		t.Error(diff)
	}
	if ReadsNamespace(vs) {
		t.Error("a match for a gateway reads nothing of a sidecar")
	}
	if !ReadsNamespace(service(t, `http: [{match: [{sourceNamespace: ops}], route: [{destination: {host: a}}]}]`)) {
		t.Error("sourceNamespace is read")
	}
}
