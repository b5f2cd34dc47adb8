package ingest

import (
	"fmt"
	"testing"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/origin"
)

// gatewayUses returns the Secrets that a Gateway of these tests uses: the credentialNames of its servers, with its
// selector.
func gatewayUses(r model.Record, root string) (all []SecretUse) {
	if g, is := r.(*model.Gateway); is {
		for _, s := range g.Spec.GetServers() {
			all = append(all, SecretUse{Name: s.GetTls().GetCredentialName(), Selector: g.Spec.GetSelector()})
		}
	}
	if f, is := r.(*model.EnvoyFilter); is && root == f.Key.Namespace {
		all = append(all, SecretUse{Name: "filtered"})
	}
	if _, is := r.(*model.DestinationRule); is {
		all = append(all, SecretUse{Name: "client", Gateways: true}, SecretUse{Name: "servers", Of: "trust", Gateways: true, ConfigMap: true})
	}
	return all
}

func gateway(t *testing.T, name, selector, secret string) object.Event {
	return put(t, fmt.Sprintf("{apiVersion: networking.istio.io/v1, kind: Gateway, metadata: {name: %s, namespace: apps}, "+
		"spec: {selector: {gw: %q}, servers: [{hosts: [a.com], port: {number: 443, name: a, protocol: HTTPS}, "+
		"tls: {mode: SIMPLE, credentialName: %s}}]}}", name, selector, secret))
}

func podOf(t *testing.T, namespace, name, label, ready string) object.Event {
	return put(t, fmt.Sprintf("{apiVersion: v1, kind: Pod, metadata: {name: %s, namespace: %s, labels: {gw: %q}}, "+
		"status: {podIP: 10.0.0.1, conditions: [{type: Ready, status: %q}]}}", name, namespace, label, ready))
}

// A Secret is referenced if a record names it and workloads exist that the record selects; the reference names the
// record. References are computed again only when records or sets of labels change.
func TestReferences(t *testing.T) {
	s := NewState(Options{SecretUses: gatewayUses})
	check := func(what string, changed bool, want string) {
		t.Helper()
		if got := s.inventory.references.find(s.inventory.objects.Mesh().GetRootNamespace()); got != changed || fmt.Sprint(s.inventory.references.found) != want {
			t.Errorf("%s: changed: %v, found %v, want %s", what, got, s.inventory.references.found, want)
		}
	}
	filter := put(t, "{apiVersion: networking.istio.io/v1alpha3, kind: EnvoyFilter, metadata: {name: f, namespace: apps}, spec: {configPatches: []}}")
	s.Step(Objects{gateway(t, "g", "edge", "web")})
	check("no workload", false, "[]")
	s.Step(Objects{podOf(t, "in", "p1", "edge", "True"), podOf(t, "out", "p2", "other", "True")})
	check("a workload", true, "[{Secret in/web Gateway apps/g}]")
	s.Step(Objects{podOf(t, "in", "p1", "edge", "False"), podOf(t, "in", "p3", "edge", "True")})
	if s.inventory.references.outdated {
		t.Error("it is to be found again though labels are the same")
	}
	s.Step(Objects{gateway(t, "a", "edge", "web"), gateway(t, "b", "other", "web")})
	check("more that refer", true, "[{Secret in/web Gateway apps/a} {Secret out/web Gateway apps/b}]")
	s.Step(Objects{filter})
	check("a filter elsewhere", false, "[{Secret in/web Gateway apps/a} {Secret out/web Gateway apps/b}]")
	s.inventory.objects.Mesh().RootNamespace = "apps"
	check("of the root namespace", true, "[{Secret in/filtered EnvoyFilter apps/f} {Secret in/web Gateway apps/a} {Secret out/filtered EnvoyFilter apps/f} {Secret out/web Gateway apps/b}]")
	s.Step(Objects{gone(filter), gone(gateway(t, "a", "", "")), gone(gateway(t, "g", "", "")), gone(podOf(t, "out", "p2", "", ""))})
	check("all but one Gateway and its workloads go", true, "[]")
}

// Workloads of another cluster use Secrets of their own cluster, otherwise of the config cluster, and of no third
// cluster. Workloads of the config cluster use only its own Secrets.
func TestReferencesOfOtherClusters(t *testing.T) {
	s := NewState(Options{SecretUses: gatewayUses, Remote: true})
	west := podOf(t, "edge", "p1", "edge", "True")
	west.ID.Origin = origin.New("west", origin.Kube)
	west.Object.ID = west.ID
	s.Step(Objects{gateway(t, "g", "edge", "web"), west, podOf(t, "home", "p2", "edge", "True")})
	s.inventory.references.find(s.inventory.objects.Mesh().GetRootNamespace())
	if got, want := fmt.Sprint(s.inventory.references.found), "[{Secret edge/web Gateway apps/g} {Secret edge/web in cluster west Gateway apps/g} {Secret home/web Gateway apps/g}]"; got != want {
		t.Errorf("found %s, want %s", got, want)
	}
	s.Step(Objects{gone(west)})
	s.inventory.references.find(s.inventory.objects.Mesh().GetRootNamespace())
	if got, want := fmt.Sprint(s.inventory.references.found), "[{Secret home/web Gateway apps/g}]"; got != want {
		t.Errorf("once its workloads are gone: found %s, want %s", got, want)
	}
}

// Settle returns after all earlier events are processed and Referred was called with their references.
func TestSettle(t *testing.T) {
	var referred []object.Reference
	l := New(Config{Options: Options{SecretUses: gatewayUses}, Referred: func(all []object.Reference) { referred = all }})
	go func() { _ = l.Run(t.Context()) }()
	for i := range 20 {
		l.Emit([]object.Event{podOf(t, "in", "p", fmt.Sprint(i), "True"), gateway(t, "g", fmt.Sprint(i), fmt.Sprint("s", i))})
		if err := l.Settle(t.Context()); err != nil {
			t.Fatal(err)
		}
		if len(referred) != 1 || referred[0].To.Name != fmt.Sprint("s", i) {
			t.Fatalf("after %d: %v", i, referred)
		}
	}
}

// A rule for gateways refers to Secrets beside the workloads that Gateways select, and to ConfigMaps where there are
// such workloads.
func TestReferencesOfRules(t *testing.T) {
	s := NewState(Options{SecretUses: gatewayUses})
	check := func(what, want string) {
		t.Helper()
		s.inventory.references.find(s.inventory.objects.Mesh().GetRootNamespace())
		if got := fmt.Sprint(s.inventory.references.found); got != want {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
	}
	rule := put(t, "{apiVersion: networking.istio.io/v1, kind: DestinationRule, metadata: {name: r, namespace: apps}, spec: {host: a.com}}")
	s.Step(Objects{rule, podOf(t, "edge", "p1", "edge", "True"), podOf(t, "shop", "p2", "app", "True")})
	check("no Gateway", "[]")
	first := gateway(t, "g", "edge", "web")
	s.Step(Objects{first})
	const all = "[{ConfigMap trust/servers DestinationRule apps/r} {Secret edge/client DestinationRule apps/r} {Secret edge/web Gateway apps/g}]"
	check("a Gateway", all)
	s.Step(Objects{gateway(t, "h", "edge", "web")})
	s.Step(Objects{gone(gateway(t, "h", "edge", "web"))})
	check("another one comes and goes", all)
	s.Step(Objects{gone(podOf(t, "edge", "p1", "", ""))})
	check("its workload goes", "[]")
	s.Step(Objects{podOf(t, "edge", "p1", "edge", "True"), gone(first)})
	check("the Gateway goes", "[]")
}
