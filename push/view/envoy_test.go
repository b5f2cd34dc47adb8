package view

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"navarch.io/navarch/push/xds"
)

// Envoy's version is read from its build version, otherwise from its user agent, and the text read is bounded.
func TestEnvoyVersion(t *testing.T) {
	build := func(major, minor, patch uint32) *corev3.Node {
		return &corev3.Node{Id: "n", UserAgentName: "envoy", UserAgentVersionType: &corev3.Node_UserAgentBuildVersion{
			UserAgentBuildVersion: &corev3.BuildVersion{Version: &typev3.SemanticVersion{MajorNumber: major, MinorNumber: minor, Patch: patch}}},
			Extensions: []*corev3.Extension{{Name: "x"}}}
	}
	written := func(version string) *corev3.Node {
		return &corev3.Node{Id: "n", UserAgentVersionType: &corev3.Node_UserAgentVersion{UserAgentVersion: version}}
	}
	for want, node := range map[string]*corev3.Node{"1.40.0": build(1, 40, 0), "1.39.12": build(1, 39, 12), "4.0.1": build(4, 0, 1),
		"0.0.0": build(0, 0, 0), "1.2-custom": written("1.2-custom"), "": {Id: "n"}} {
		raw, err := proto.Marshal(node)
		if err != nil {
			t.Fatal(err)
		}
		if got := Envoy(raw); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	raw, err := proto.Marshal(written(strings.Repeat("v", longestVersion+1)))
	if err != nil {
		t.Fatal(err)
	}
	if got := Envoy(raw); got != "" {
		t.Errorf("of a version of %d bytes: %q", longestVersion+1, got)
	}
	raw, err = proto.Marshal(build(1, 40, 7))
	if err != nil {
		t.Fatal(err)
	}
	number := protowire.AppendVarint(protowire.AppendTag(slices.Clone(raw), nodeAgentVersion, protowire.VarintType), 1)
	if got := Envoy(number); got != "1.40.7" {
		t.Errorf("with a user_agent_version that is a number: %q", got)
	}
	for end := range raw {
		Envoy(raw[:end]) // a truncated node causes no panic
	}
}

// The stats access logger is used for an Envoy that lists the extension and reports that it supports its scopes.
func TestStatsAccessLogger(t *testing.T) {
	for version, want := range map[string]bool{"": false, "1.38.9": false, "1.39.0": true, "1.40.3": true, "2.0.0": true, "0.40.0": false} {
		n := &corev3.Node{Id: "sidecar~~a.b~c", Extensions: []*corev3.Extension{{Name: "envoy.access_loggers.stats"}}}
		var v typev3.SemanticVersion
		if k, err := fmt.Sscanf(version, "%d.%d.%d", &v.MajorNumber, &v.MinorNumber, &v.Patch); err == nil && k == 3 {
			n.UserAgentVersionType = &corev3.Node_UserAgentBuildVersion{UserAgentBuildVersion: &corev3.BuildVersion{Version: &v}}
		}
		raw, err := proto.Marshal(n)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := Parse(raw, ""); err != nil || got.Caps.Has(xds.CapStatsLog) != want {
			t.Errorf("%q: %v, %v, want %v", version, got.Caps.Has(xds.CapStatsLog), err, want)
		}
	}
}
