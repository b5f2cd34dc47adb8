package main

import (
	"io"
	"net/http"
	"strings"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"navarch.io/navarch/push/agentapi"
	"navarch.io/navarch/store/loopback"
)

// TestMerged: each kind of value is merged by the rules of agentapi.BootstrapPatch.
func TestMerged(t *testing.T) {
	const base = `{"a": {"b": 1, "c": [1]}, "any": {"@type": "x", "y": 1}, "list": [{"n": 1}], "big": 12345678901234567890, "one": {"x": {"k": 1}}}`
	got, err := merged([]byte(base),
		agentapi.BootstrapPatch{Merge: object{"a": object{"b": 2.0, "c": []any{2.0}, "d": object{"e": nil, "f": true}}, "any": object{"@type": "x", "z": 2.0}}},
		agentapi.BootstrapPatch{Merge: object{"list": []any{object{"n": 2.0}}, "one": object{"x": nil, "y": "set"}, "new": object{"l": []any{1.0}}}})
	want := `{"a":{"b":2,"c":[1,2],"d":{"f":true}},"any":{"@type":"x","z":2},"big":12345678901234567890,"list":[{"n":1},{"n":2}],"new":{"l":[1]},"one":{"y":"set"}}`
	if flat := strings.NewReplacer("\n", "", " ", "").Replace(string(got)); flat != want || err != nil {
		t.Errorf("%s %v, want\n%s", flat, err, want)
	}
	for _, bad := range []string{"", "null", "[]"} {
		if _, err := merged([]byte(bad)); err == nil {
			t.Errorf("%q is a bootstrap", bad)
		}
	}
}

// bootstrapResource returns a control plane's response with patches.
func bootstrapResource(t *testing.T, patches ...agentapi.BootstrapPatch) *discoveryv3.Resource {
	t.Helper()
	message, err := agentapi.EncodeBootstrap(patches)
	if err != nil {
		t.Fatal(err)
	}
	body, err := anypb.New(message)
	if err != nil {
		t.Fatal(err)
	}
	return &discoveryv3.Resource{Name: agentapi.BootstrapName, Version: "1", Resource: body}
}

// TestBootstrapIsPatched: Envoy starts with all patches except one that it refuses, which is logged.
func TestBootstrapIsPatched(t *testing.T) {
	ads := newFakeADS(t, loopback.For(t), "127.0.0.1:1")
	ads.resources[agentapi.BootstrapURL] = bootstrapResource(t,
		agentapi.BootstrapPatch{From: "EnvoyFilter shop/one: spec.configPatches[0]", Merge: object{"static_resources": object{"clusters": []any{object{"name": "patched", "type": "STATIC"}}}}},
		agentapi.BootstrapPatch{From: "EnvoyFilter shop/bad: spec.configPatches[0]", Merge: object{"static_resources": object{"clusters": []any{object{"name": "refused", "type": "EDS"}}}}},
		agentapi.BootstrapPatch{From: "EnvoyFilter shop/two: spec.configPatches[0]", Merge: object{"stats_flush_interval": "7s"}})
	addr, _ := ads.start(t, loopback.For(t))
	t.Setenv("BOOTSTRAP_XDS_AGENT", "true")
	p := startAgent(t, addr, "--xds-plaintext")
	if first := <-ads.first; first.request.TypeUrl != agentapi.BootstrapURL || first.request.Node.GetMetadata().GetFields()[bootstrapKey].GetStringValue() != bootstrapAsks {
		t.Errorf("the first request is for %s", first.request.TypeUrl)
	}
	p.until("ready", func(d debugPage) bool { return d.Ready })
	resp, err := http.Get("http://" + p.admin + "/config_dump?resource=&mask=bootstrap")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	dump, err := io.ReadAll(resp.Body)
	if err != nil || !strings.Contains(string(dump), `"patched"`) || strings.Contains(string(dump), `"refused"`) || !strings.Contains(string(dump), `"stats_flush_interval": "7s"`) {
		t.Errorf("%v %s", err, dump)
	}
	if log := p.out.String(); strings.Count(log, "is left out") != 1 || !strings.Contains(log, `patch="EnvoyFilter shop/bad: spec.configPatches[0]"`) {
		t.Error("not the bad patch alone is named")
	}
}

// TestBootstrapIsNotWaitedFor: a control plane without an answer about patches does not block Envoy's start.
func TestBootstrapIsNotWaitedFor(t *testing.T) {
	ads := newFakeADS(t, loopback.For(t), "127.0.0.1:1")
	addr, _ := ads.start(t, loopback.For(t))
	p := startAgent(t, addr, "--xds-plaintext", "--bootstrap-patches", "--bootstrap-wait", "300ms")
	p.until("ready", func(d debugPage) bool { return d.Ready })
	if !strings.Contains(p.out.String(), "Envoy starts without patches of its bootstrap") {
		t.Error("nothing is said of it")
	}
}
