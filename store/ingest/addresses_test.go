package ingest

import (
	"strings"
	"testing"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
)

// Pods of a namespace are found by their addresses as long as one of its slices looks one up, and no longer; a slice that does so again finds them as they
// are then.
func TestPodsAreFoundWhileLookedUp(t *testing.T) {
	const slice = "{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: %s, namespace: shop, labels: {kubernetes.io/service-name: web}}, addressType: IPv4, " +
		"ports: [{port: 80}], endpoints: [{addresses: [10.0.0.1]}, {addresses: [10.0.0.2]}]}"
	at := func(name, account string) object.Event {
		return put(t, "{apiVersion: v1, kind: Pod, metadata: {name: "+name+", namespace: shop}, spec: {serviceAccountName: "+account+"}, status: {podIP: 10.0.0.1}}")
	}
	byHand := func(name string) object.Event { return put(t, strings.Replace(slice, "%s", name, 1)) }
	w := newInventory(Options{}.Normal, nil)
	account := func() string {
		return w.want[model.Key{Kind: model.KindEndpoints, Namespace: "shop", Name: "a"}].(*model.Endpoints).Spec.Endpoints[0].ServiceAccount
	}
	w.take([]object.Event{at("p", "one"), byHand("a")})
	w.take([]object.Event{byHand("b")})
	if got := account(); got != "one" {
		t.Errorf("account %q", got)
	}
	w.take([]object.Event{gone(byHand("b"))})
	w.take([]object.Event{at("p", "two")})
	if got := account(); got != "two" {
		t.Errorf("account %q after another slice has gone", got)
	}
	w.take([]object.Event{put(t, epSlice("a", "10.0.0.1", "p"))}) // it names its Pod
	if n := len(w.podsAt.asked); n != 0 {
		t.Errorf("Pods of %d namespaces are kept by their addresses, and no slice looks one up", n)
	}
	w.take([]object.Event{at("p", "three")})
	w.take([]object.Event{byHand("a")})
	if got := account(); got != "three" {
		t.Errorf("account %q once a slice looks addresses up again", got)
	}
	w.take([]object.Event{gone(byHand("a"))})
	if n := len(w.podsAt.asked); n != 0 {
		t.Errorf("Pods of %d namespaces are kept by their addresses once all slices have gone", n)
	}
}
