package model

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	extensionsv1 "istio.io/api/extensions/v1alpha1"
	networkingv1 "istio.io/api/networking/v1alpha3"
	proxyconfigv1 "istio.io/api/networking/v1beta1"
	telemetryv1 "istio.io/api/telemetry/v1alpha1"

	"navarch.io/navarch/store/origin"
)

// stored lists the kinds of record with their marks and levels (0: stored at every level). It is written out here,
// independently of the tables, so that a change of the tables must consider the builds that are already installed.
var stored = map[string]string{
	"Mesh":                  "skippable 0",
	"Service":               "skippable 0",
	"ServiceEntry":          "skippable 0",
	"Endpoints":             "skippable 0",
	"VirtualService":        "skippable 0",
	"DestinationRule":       "skippable 0",
	"Sidecar":               "skippable 0",
	"EnvoyFilter":           "skippable 0",
	"PeerAuthentication":    "closing 0",
	"AuthorizationPolicy":   "closing 0",
	"RequestAuthentication": "closing 0",
	"Secret":                "skippable 0",
	"Gateway":               "skippable 0",
	"SecretReader":          "skippable 0",
	"Workload":              "skippable 0",
	"ServiceAccount":        "skippable 0",
	"WorkloadGroup":         "skippable 0",
	"Namespace":             "skippable 0",
	"NetworkGateways":       "skippable 0",
	"Telemetry":             "skippable 0",
	"WasmPlugin":            "skippable 0",
	"TrafficExtension":      "skippable 0",
	"ProxyConfig":           "skippable 0",
}

// bodies is one body for every kind; a kind without one fails the tests.
func bodies() map[Kind]proto.Message {
	service := func() *ServiceSpec {
		return &ServiceSpec{Hosts: []string{"a.shop.svc"}, Ports: []*ServicePort{{Number: 80, Protocol: Protocol_PROTOCOL_HTTP}},
			Selector: map[string]string{"a": "1", "b": "2", "c": "3", "d": "4", "e": "5"}}
	}
	policy := func() *PolicySpec { return &PolicySpec{Selector: map[string]string{"app": "a"}, Closed: true} }
	return map[Kind]proto.Message{
		KindMesh:                  MeshDefaults(),
		KindService:               service(),
		KindServiceEntry:          service(),
		KindEndpoints:             &EndpointsSpec{Hosts: []string{"a"}, Endpoints: []*Endpoint{{Address: "10.0.0.1", Labels: map[string]string{"x": "1", "y": "2", "z": "3"}}}},
		KindVirtualService:        &networkingv1.VirtualService{Hosts: []string{"a"}, Http: []*networkingv1.HTTPRoute{{Timeout: durationpb.New(time.Second)}}},
		KindDestinationRule:       &networkingv1.DestinationRule{Host: "a", Subsets: []*networkingv1.Subset{{Name: "v1", Labels: map[string]string{"a": "1", "b": "2", "c": "3"}}}},
		KindSidecar:               &networkingv1.Sidecar{Egress: []*networkingv1.IstioEgressListener{{Hosts: []string{"./*"}}}},
		KindEnvoyFilter:           &networkingv1.EnvoyFilter{Priority: 3},
		KindPeerAuthentication:    policy(),
		KindAuthorizationPolicy:   policy(),
		KindRequestAuthentication: policy(),
		KindSecret:                &SecretSpec{Chain: []byte("chain"), Key: []byte("sealed"), Mac: []byte("mac")},
		KindGateway:               &networkingv1.Gateway{Selector: map[string]string{"a": "1", "b": "2", "c": "3"}},
		KindSecretReader:          &SecretReaderSpec{Accounts: []string{"shop/gateway"}},
		KindWorkload: &WorkloadSpec{Endpoint: &Endpoint{Address: "10.1.0.1", Labels: map[string]string{"a": "1", "b": "2", "c": "3"}},
			Uid: UID("5d0e7a54-1a25-4b4b-9c1e-0a3f5b1c2d3e")},
		KindServiceAccount:   &ServiceAccountSpec{Uid: UID("no uuid")},
		KindNamespace:        &ServiceAccountSpec{},
		KindWorkloadGroup:    &networkingv1.WorkloadGroup{Template: &networkingv1.WorkloadEntry{ServiceAccount: "vm"}},
		KindNetworkGateways:  &NetworkGatewaysSpec{Gateways: []*NetworkGateway{{Network: "n", Address: "192.0.2.1", Port: 15443}}},
		KindTelemetry:        &telemetryv1.Telemetry{AccessLogging: []*telemetryv1.AccessLogging{{Filter: &telemetryv1.AccessLogging_Filter{Expression: "true"}}}},
		KindWasmPlugin:       &extensionsv1.TrafficExtension{FilterConfig: &extensionsv1.TrafficExtension_Wasm{Wasm: &extensionsv1.WasmConfig{Url: "a"}}},
		KindTrafficExtension: &extensionsv1.TrafficExtension{FilterConfig: &extensionsv1.TrafficExtension_Lua{Lua: &extensionsv1.LuaConfig{InlineCode: "a"}}},
		KindProxyConfig:      &proxyconfigv1.ProxyConfig{EnvironmentVariables: map[string]string{"A": "1", "B": "2", "C": "3"}},
	}
}

// kindNow is a kind as the tables have it.
type kindNow struct {
	name  string
	mark  Mark
	level uint32
}

func (k kindNow) String() string {
	return fmt.Sprintf("%s %d", map[Mark]string{Unmarked: "unmarked", Skippable: "skippable", Closing: "closing"}[k.mark], k.level)
}

// unfrozen returns instructions, as sentences, for kinds that differ from those of installed builds; top is Level.
func unfrozen(now []kindNow, top uint32) (todo []string) {
	seen := map[string]bool{}
	for _, k := range now {
		seen[k.name] = true
		was, known := stored[k.name]
		switch {
		case k.mark == Unmarked:
			todo = append(todo, fmt.Sprintf("kind %s has no mark: say in Marks (mark.go) what a build does that does not know it: Closing where a record refuses something to somebody, else Skippable", k.name))
		case k.mark == Closing && k.level != 0:
			todo = append(todo, fmt.Sprintf("kind %s closes and has level %d: closing kinds are stored at every level, take it out of levels (level.go)", k.name, k.level))
		case k.level > top:
			todo = append(todo, fmt.Sprintf("kind %s has level %d and this build says that it reads %d: raise Level (level.go)", k.name, k.level, top))
		case !known:
			todo = append(todo, fmt.Sprintf("kind %s is new. Where a version without it has been released and it is Skippable, give it a level of its own (levels in level.go) and raise Level to that. Then add %q: %q here", k.name, k.name, k))
		case was != k.String():
			todo = append(todo, fmt.Sprintf("kind %s is %q here and %q for builds that are installed: a mark and a level stay what they were", k.name, k, was))
		}
	}
	for name := range stored {
		if !seen[name] {
			todo = append(todo, fmt.Sprintf("kind %s is gone, and stores have records of it: keep the name, or remove its records at a level of its own first", name))
		}
	}
	slices.Sort(todo)
	return todo
}

func kindsNow() (now []kindNow) {
	for _, k := range Kinds() {
		now = append(now, kindNow{k.String(), Marks[k], levels[k]})
	}
	return now
}

// A new kind, or a change of a stored form, needs an entry for the builds that do not know it.
func TestKindsByLevel(t *testing.T) {
	for _, todo := range unfrozen(kindsNow(), Level) {
		t.Error(todo)
	}
	added := func(k kindNow) []kindNow { return append(kindsNow(), k) }
	for _, c := range []struct {
		name string
		now  []kindNow
		want string
	}{
		{"a new one", added(kindNow{"Novel", Skippable, Level}), "kind Novel is new"},
		{"a new one that closes", added(kindNow{"Novel", Closing, 0}), `add "Novel": "closing 0" here`},
		{"without a mark", added(kindNow{"Novel", Unmarked, 0}), "kind Novel has no mark"},
		{"above what this build reads", added(kindNow{"Novel", Skippable, Level + 1}), "raise Level"},
		{"one that closes from a level on", added(kindNow{"Novel", Closing, Level}), "stored at every level"},
		{"another mark", append(kindsNow()[1:], kindNow{"Mesh", Closing, 0}), `kind Mesh is "closing 0" here and "skippable 0"`},
		{"gone", kindsNow()[1:], "kind Mesh is gone"},
	} {
		if got := unfrozen(c.now, Level); len(got) != 1 || !strings.Contains(got[0], c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// Installed builds list and parse the paths of records: they report an unknown path, and continue without the record. A
// build that needs another form of path writes it from a level on, or below another folder.
func TestPathsAreFrozen(t *testing.T) {
	for key, want := range map[Key]string{
		{Kind: KindService, Namespace: "shop", Name: "web", Origin: origin.New("east", "kubernetes")}: "Service/east/kubernetes/shop/web",
		{Kind: KindWorkload, Namespace: "shop", Name: "workloadentry:vm"}:                             "Workload///shop/workloadentry:vm",
		{Kind: KindMesh, Name: "mesh"}: "Mesh////mesh",
	} {
		if got, err := ParsePath(want); key.Path() != want || got != key || err != nil {
			t.Errorf("%v has path %q (%v): installed builds write and read %q", key, key.Path(), err, want)
		}
	}
}
