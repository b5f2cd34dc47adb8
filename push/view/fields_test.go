package view

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"unique"

	"navarch.io/navarch/push/extension"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/proxyconfig"
)

// another returns a value of the same type that differs from v.
func another(t *testing.T, v reflect.Value) reflect.Value {
	t.Helper()
	next := reflect.New(v.Type()).Elem()
	next.Set(v)
	switch v.Interface().(type) {
	case model.Key:
		return reflect.ValueOf(model.Key{Kind: model.KindSidecar, Namespace: "other", Name: "other"})
	case Identity:
		return reflect.ValueOf(Identity{Namespace: "other", Account: "other"})
	case intern.List[Patch]:
		return reflect.ValueOf(patches.List(Patch{Filter: model.Key{Kind: model.KindEnvoyFilter, Name: "other"}}))
	case map[string]string:
		return reflect.ValueOf(map[string]string{"app": "other", "ISTIO_VERSION": "9.9"})
	case xds.Listening:
		return reflect.ValueOf(xds.Listening{HTTP10: true})
	case RouterSettings:
		return reflect.ValueOf(RouterSettings{OwnNamespace: true, QUIC: true, Routed: true, Misdirected404: true, Local: true})
	case proxyconfig.Routes:
		return reflect.ValueOf(proxyconfig.Routes{NoAttempts: true})
	case *proxyconfig.Settings:
		return reflect.ValueOf(&proxyconfig.Settings{HeaderCase: true, Routes: proxyconfig.Routes{ForwardedHost: true}, Tracing: "other",
			Listeners: proxyconfig.Listeners{Headers: "other"}})
	case []string:
		return reflect.ValueOf([]string{"10.9.9.9"})
	case intern.List[model.Key]:
		return reflect.ValueOf(keys.List(model.Key{Kind: model.KindGateway, Namespace: "shop", Name: "other"}))
	case intern.List[string]:
		return reflect.ValueOf(strs.List("app=other"))
	case intern.List[extension.Filter]:
		return reflect.ValueOf(filters.List(extension.Filter{Closed: true}))
	case Self:
		return reflect.ValueOf(Self{Cluster: "other"})
	case unique.Handle[Edge]:
		return reflect.ValueOf(unique.Make(Edge{Unprivileged: true}))
	case Own:
		return reflect.ValueOf(Own{Workload: "other"})
	case proxyconfig.Own[proxyconfig.Listeners]:
		return reflect.ValueOf(proxyconfig.Own[proxyconfig.Listeners]{Stated: true})
	}
	switch v.Kind() {
	case reflect.String:
		next.SetString(v.String() + "other")
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		next.SetUint(v.Uint() ^ 1)
	case reflect.Bool:
		next.SetBool(!v.Bool())
	default:
		t.Fatalf("%v: the test makes no other value of it", v.Type())
	}
	return next
}

// Each field of a Scope is part of its name, because replicas and debug pages distinguish scopes by name.
func TestScopeNamesEveryField(t *testing.T) {
	base := Scope{Namespace: "shop", Domain: "svc.cluster.local", Caps: xds.StockCaps}
	for i := range reflect.TypeFor[Scope]().NumField() {
		changed := base
		field := reflect.ValueOf(&changed).Elem().Field(i)
		field.Set(another(t, field))
		if changed == base || changed.String() == base.String() {
			t.Errorf("the name does not say %s", reflect.TypeFor[Scope]().Field(i).Name)
		}
	}
}

// An Index remembers which records' selectors select a node, by a key of the node's fields. For each pair of nodes that
// differ in one field, the view of the second node is the one that an index without memory computes. The test fails if
// a selection reads a field that is missing from the key.
func TestChoiceReadsNothingThatItsKeyHasNot(t *testing.T) {
	s := snapshot(
		rec(t, model.KindService, "shop/web", "{hosts: [web], selector: {app: web}, headless: true, ports: [{number: 9, name: tcp, protocol: PROTOCOL_TCP}]}"),
		rec(t, model.KindSidecar, "shop/own", "{workloadSelector: {labels: {app: web}}, ingress: [{port: {number: 80, protocol: HTTP, name: http}, defaultEndpoint: '0.0.0.0:80'}]}"),
		rec(t, model.KindEnvoyFilter, "shop/f", "configPatches: [{applyTo: CLUSTER, match: {context: SIDECAR_OUTBOUND, proxy: {proxyVersion: '1\\.30.*', metadata: {A: b}}}, patch: {operation: REMOVE}}]"),
		rec(t, model.KindEnvoyFilter, "shop/g", "configPatches: [{applyTo: CLUSTER, match: {context: GATEWAY}, patch: {operation: REMOVE}}]"),
		rec(t, model.KindVirtualService, "shop/v", "{hosts: [web], http: [{match: [{sourceLabels: {app: web}}], route: [{destination: {host: web}}]}]}"),
		rec(t, model.KindPeerAuthentication, "shop/p", "selector: {app: web}"), rec(t, model.KindAuthorizationPolicy, "shop/a", "selector: {app: web}"),
		rec(t, model.KindTelemetry, "shop/t", "{selector: {matchLabels: {app: web}}, tracing: [{disableSpanReporting: true}]}"))
	base := Node{ID: "sidecar~10.0.0.1~web.shop~shop.svc.cluster.local", Name: "web", Namespace: "shop", Domain: "svc.cluster.local", Addresses: []string{"10.0.0.1"},
		Labels: map[string]string{"app": "web"}, Version: "1.30.1", Caps: xds.StockCaps, Metadata: map[string]string{"A": "b"}}
	nodes := map[string]Node{"nothing": base}
	for i := range reflect.TypeFor[Node]().NumField() {
		changed := base
		field := reflect.ValueOf(&changed).Elem().Field(i)
		field.Set(another(t, field))
		nodes[reflect.TypeFor[Node]().Field(i).Name] = changed
	}
	for kind := range Proxyless + 1 {
		changed := base
		changed.Kind = kind
		nodes[fmt.Sprint("Kind ", kind)] = changed
	}
	for first, one := range nodes {
		for second, other := range nodes {
			x := NewIndex(s)
			x.View(s, one)
			if got, want := x.View(s, other), Of(s, other); got != want {
				t.Errorf("after a node that differs in %s, one that differs in %s has the view\n%+v, want\n%+v", first, second, got, want)
			}
		}
	}
}

// ofListeners are the inputs that no cluster or assignment of a host reads: listeners read them, and the cluster of the
// proxy's own workload reads Own.
var ofListeners = []string{"Telemetry", "Self", "Extensions", "Listeners", "Own"}

// Each field of Inputs is either selected by a field of Reads or listed in ofListeners, and each field of Reads selects
// at least one input. The test fails if a new input is missing from Reads.Of.
func TestReadsGiveEveryInput(t *testing.T) {
	var all Reads
	every := reflect.ValueOf(&all).Elem()
	for i := range every.NumField() {
		if field := every.Field(i); field.Kind() == reflect.Bool {
			field.SetBool(true)
		}
	}
	all = all.With([]string{"app"})
	for i := range reflect.TypeFor[Inputs]().NumField() {
		var in Inputs
		name, field := reflect.TypeFor[Inputs]().Field(i).Name, reflect.ValueOf(&in).Elem().Field(i)
		field.Set(another(t, field))
		switch given := all.Of(in) == in; {
		case in == Inputs{}:
			t.Errorf("%s: no other value", name)
		case given == slices.Contains(ofListeners, name):
			t.Errorf("%s: given to entries of hosts: %v; listed as read by listeners alone: %v", name, given, !given)
		case Reads{}.Of(in) != Inputs{}:
			t.Errorf("%s: given to an entry that reads nothing", name)
		}
	}
	in := Inputs{Labels: strs.List("app=web"), Locality: "region/zone", Network: "one", Node: "node"}
	for i := range every.NumField() {
		less := all
		field := reflect.ValueOf(&less).Elem().Field(i)
		field.SetZero()
		if less.Of(in) == in {
			t.Errorf("Reads.%s gives nothing", every.Type().Field(i).Name)
		}
	}
}
