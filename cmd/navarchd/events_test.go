package main

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"

	"navarch.io/navarch/store/events"
	"navarch.io/navarch/store/ingest"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/origin"
	"navarch.io/navarch/store/problem"
	"navarch.io/navarch/store/source/files"
)

// objectsDesk is an ingester that has these objects.
type objectsDesk struct {
	objects map[object.ID]*object.Object
}

func (d objectsDesk) EveryProblem(context.Context) ([]object.Problem, error) { return nil, nil }
func (d objectsDesk) Settled() bool                                          { return true }
func (d objectsDesk) Objects(_ context.Context, ids []object.ID) (map[object.ID]*object.Object, error) {
	return d.objects, nil
}

// Errors of an object are one warning, and its held removals another. Warnings of analysis, other sources and ended
// problems have no Event. The Event has the object's UID.
func TestWarningsOfProblems(t *testing.T) {
	kube := origin.New("", origin.Kube)
	of := func(from origin.Origin, kind, namespace, name string) object.ID {
		return object.ID{Origin: from, Group: "networking.istio.io", Kind: kind, Namespace: namespace, Name: name}
	}
	route := of(kube, "VirtualService", "shop", "r")
	w := &warnings{events: events.New("istio-system"), origin: kube, home: "istio-system",
		loop: objectsDesk{map[object.ID]*object.Object{route: {ID: route, Version: "v1", UID: "u", Generation: 3}}}}
	shown := func() map[string]string {
		out := map[string]string{}
		all, _ := w.events.Present()
		for _, one := range all {
			out[one.Namespace+" "+one.ID.Kind+" "+one.ID.Name+" "+string(one.Reason)+" "+one.UID] = one.Message
		}
		return out
	}
	first := w.messages([]object.Problem{
		{ID: route, Field: "spec.http", Code: problem.Invalid, Severity: problem.Error, Message: "is bad"},
		{ID: route, Field: "spec.hosts", Code: problem.Required, Severity: problem.Error, Message: "is missing"},
		{ID: route, Field: "spec.hosts", Code: problem.Required, Severity: problem.Error, Message: "is missing"},
		{ID: route, Field: "spec.tls", Code: problem.NoEffect, Severity: problem.Warning, Message: "does nothing"},
		{ID: of(kube, "VirtualService", "shop", "gone"), Code: problem.Held, Severity: problem.Error, Message: "is held"},
		{ID: object.ID{Origin: kube, Kind: "Sidecar"}, Code: problem.Held, Severity: problem.Error, Message: "all are held"},
		{ID: of(origin.New("", origin.Files), "VirtualService", "shop", "file"), Code: problem.Invalid, Severity: problem.Error, Message: "is bad"},
		{ID: of(origin.New("east", origin.Kube), "Service", "shop", "far"), Code: problem.Invalid, Severity: problem.Error, Message: "is bad"},
	})
	w.state(t.Context(), nil, first)
	if want := map[string]string{"shop VirtualService r Refused u": "spec.hosts: is missing; spec.http: is bad", "shop VirtualService gone Held ": "is held",
		"istio-system Namespace istio-system Held ": "Sidecar: all are held"}; !maps.Equal(shown(), want) {
		t.Errorf("%v", shown())
	}
	_, version := w.events.Present()
	w.state(t.Context(), first, first)
	if _, again := w.events.Present(); again != version {
		t.Error("problems that have not changed are a change of Events")
	}
	w.state(t.Context(), first, nil)
	if left := shown(); len(left) != 0 {
		t.Errorf("%v", left)
	}
}

// An object that its tenant's budget of memory refuses has an Event, which names the tenant, the flag and the weight.
// The Event ends with the refusal.
// Promise: security-tenants.md#stop-or-slow-the-control-plane
func TestRefusalByWeightIsAnEvent(t *testing.T) {
	var spec strings.Builder
	for i := range 256 {
		fmt.Fprintf(&spec, "  - {name: p%d, number: %d, protocol: HTTP}\n", i, 8000+i)
	}
	read, _ := files.Parse("heavy.yaml", []byte("apiVersion: networking.istio.io/v1\nkind: ServiceEntry\n"+
		"metadata: {name: heavy, namespace: shop}\n"+
		"spec:\n  hosts: [a.example.com, b.example.com]\n  resolution: DNS\n  ports:\n"+spec.String()))
	if len(read) != 1 || read[0].Op != object.Put {
		t.Fatalf("%+v", read)
	}
	kube := origin.New("", origin.Kube)
	heavy := *read[0].Object
	heavy.ID.Origin, heavy.UID = kube, "u"
	put := object.Event{Op: object.Put, ID: heavy.ID, Object: &heavy}
	s := ingest.NewState(ingest.Options{Budget: ingest.Budget{Exported: 2, Own: 2}})
	w := &warnings{events: events.New("istio-system"), origin: kube, home: "istio-system",
		loop: objectsDesk{map[object.ID]*object.Object{heavy.ID: &heavy}}}
	s.Step(ingest.Objects{put, {Op: object.Synced, ID: object.ID{Origin: kube}}})
	first := w.messages(s.Problems())
	w.state(t.Context(), nil, first)
	all, _ := w.events.Present()
	if len(all) != 1 || all[0].ID.Name != "heavy" || all[0].UID != "u" || all[0].Reason != events.Refused {
		t.Fatalf("%+v of %+v", all, s.Problems())
	}
	for _, part := range []string{`tenant "shop" would have`, "--tenant-max-exported", "the object is not in effect",
		"by itself it counts for"} {
		if !strings.Contains(all[0].Message, part) {
			t.Errorf("%s does not say %s", all[0].Message, part)
		}
	}
	s.Step(ingest.Objects{{Op: object.Delete, ID: heavy.ID}})
	w.state(t.Context(), first, w.messages(s.Problems()))
	if all, _ := w.events.Present(); len(all) != 0 {
		t.Errorf("after the deletion: %+v", all)
	}
}
