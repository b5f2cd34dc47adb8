package main

import (
	"context"
	"maps"
	"testing"

	"navarch.io/navarch/store/events"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/origin"
	"navarch.io/navarch/store/problem"
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
