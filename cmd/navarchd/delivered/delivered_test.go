package delivered

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"navarch.io/navarch/push/acknowledged"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/origin"
	"navarch.io/navarch/store/problem"
	"navarch.io/navarch/store/status"
)

var from = origin.New("", "kube")

func id(kind, name string) object.ID {
	return object.ID{Origin: from, Group: "networking.istio.io", Kind: kind, Namespace: "shop", Name: name}
}

func put(id object.ID, generation int64) object.Event {
	return object.Event{Op: object.Put, ID: id, Object: &object.Object{ID: id, UID: "u", Generation: generation}}
}

var begin = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// said returns the expected status of an object: "generation status reason: text [codes] only".
func said(o *Objects, at time.Duration, f Facts, of object.ID) string {
	r, is := o.Reports(begin.Add(at), f)[status.Kind{Group: of.Group, Kind: of.Kind}][status.Key{Namespace: of.Namespace, Name: of.Name}]
	if !is {
		return "nothing"
	}
	text := fmt.Sprintf("%d %s %s", r.Generation, r.Delivered.Status, r.Delivered.Reason)
	if r.Delivered.Message != "" {
		text += ": " + r.Delivered.Message
	}
	for _, m := range r.Messages {
		text += fmt.Sprintf(" [%s %s]", m.Severity, string(m.Code)+string(m.Analyzer))
	}
	return strings.TrimSpace(text + []string{"", " unsaid", " present", " nowhere"}[r.Delivered.Only])
}

// The status of one object is checked step by step: at each time and with these facts it has this content.
func TestGenerationSettles(t *testing.T) {
	route := id("VirtualService", "r")
	key := model.Key{Kind: model.KindVirtualService, Namespace: "shop", Name: "r", Origin: from}
	o := New()
	check := func(at time.Duration, f Facts, want string) {
		t.Helper()
		if got := said(o, at, f, route); got != want {
			t.Errorf("after %v: %q, want %q", at, got, want)
		}
	}
	o.Take([]object.Event{put(route, 1), put(id("Pod", "p"), 1)}, begin)
	check(0, Facts{Acknowledged: 99}, "nothing")
	o.Stored(o.Taken(), 7)
	if o.Awaited() != 7 {
		t.Errorf("awaited is %d", o.Awaited())
	}
	check(time.Second, Facts{Acknowledged: 6}, "1   nowhere")
	check(29*time.Second, Facts{Acknowledged: 6}, "1   nowhere")
	if due := o.Due(); !due.Equal(begin.Add(30 * time.Second)) {
		t.Errorf("due at %v", due)
	}
	const unknown = "some replicas have not reported that their proxies have it; /debug/syncz of each replica shows the proxies"
	check(30*time.Second, Facts{Acknowledged: 6}, "1 Unknown NotAcknowledged: "+unknown+" unsaid")
	check(31*time.Second, Facts{Acknowledged: 7}, "1 True Acknowledged")
	if o.Awaited() != 0 {
		t.Errorf("awaited is %d, and all is acknowledged", o.Awaited())
	}
	// A replica that comes has acknowledged nothing: that is a join.
	check(32*time.Second, Facts{}, "1 True Acknowledged")

	warning := object.Problem{ID: route, Field: "spec.http[0]", Code: problem.NoEffect, Severity: problem.Warning, Message: "does nothing"}
	fault := object.Problem{ID: route, Field: "spec.hosts", Code: problem.Required, Severity: problem.Error, Message: "is missing"}
	listed := func(all ...object.Problem) Facts { return Facts{Problems: all} }
	check(33*time.Second, listed(warning), "1 True Acknowledged: spec.http[0]: does nothing [warning NoEffect]")
	check(34*time.Second, listed(warning, fault, fault), "1 False Required: spec.hosts: is missing; spec.http[0]: does nothing [error Required] [warning NoEffect]")
	check(35*time.Second, Facts{}, "1 True Acknowledged")

	// Istio's codes replace ours, each once.
	one, two := warning, warning
	one.Analyzer, two.Analyzer, two.Code, two.Field = problem.VirtualServiceUnreachableRule, problem.VirtualServiceUnreachableRule, problem.NotFound, "spec.http[1]"
	check(36*time.Second, listed(one, two, warning),
		"1 True Acknowledged: spec.http[0]: does nothing [IST0130]; spec.http[0]: does nothing; spec.http[1]: does nothing [IST0130] [warning IST0130] [warning NoEffect]")

	// A problem counts for a while after replicas have removed it from their lists.
	found := model.Problem{Key: key, Field: "spec.tls", Code: problem.Invalid, Severity: problem.Error, Message: "is bad"}
	check(40*time.Second, Facts{Found: []model.Problem{found}}, "1 False Invalid: spec.tls: is bad [error Invalid]")
	check(40*time.Second+keep-1, Facts{}, "1 False Invalid: spec.tls: is bad [error Invalid]")
	check(40*time.Second+keep, Facts{}, "1 True Acknowledged")
	refused := Facts{Refused: []acknowledged.Refusal{{Object: key, Text: "no such filter"}}}
	const refusal = "1 False Refused: proxies refuse its configuration and keep the previous one: no such filter [error Refused]"
	check(5*time.Minute, refused, refusal)
	check(5*time.Minute+keep-1, Facts{}, refusal)
	if due := o.Due(); !due.Equal(begin.Add(5*time.Minute + keep)) {
		t.Errorf("due at %v", due)
	}
	check(5*time.Minute+keep, Facts{}, "1 True Acknowledged")
	if !o.Due().IsZero() {
		t.Errorf("due at %v, and nothing changes by time", o.Due())
	}

	// A new generation starts from the beginning; the status of the previous one stays until then.
	check(8*time.Minute, refused, refusal)
	o.Take([]object.Event{put(route, 2)}, begin.Add(9*time.Minute))
	check(9*time.Minute, Facts{Acknowledged: 99}, "nothing")
	o.Stored(o.Taken(), 100)
	check(9*time.Minute, Facts{Acknowledged: 99}, "2   nowhere")
	check(9*time.Minute, Facts{Acknowledged: 100}, "2 True Acknowledged")
	o.Take([]object.Event{put(route, 2)}, begin) // its labels
	check(9*time.Minute, Facts{}, "2 True Acknowledged")
	o.Take([]object.Event{{Op: object.Delete, ID: route}}, begin)
	check(9*time.Minute, Facts{}, "nothing")
	o.Take([]object.Event{put(route, 2), {Op: object.Forget, ID: object.ID{Origin: from}}}, begin)
	if o.Reports(begin, Facts{}) != nil {
		t.Error("what another term has stored counts")
	}
}

// Workloads come and go: no status of their WorkloadEntries is written, and no replica is asked, unless one of them has
// a problem.
func TestWorkloadsComeAndGo(t *testing.T) {
	machine, o := id("WorkloadEntry", "m"), New()
	o.Take([]object.Event{put(machine, 1)}, begin)
	o.Stored(o.Taken(), 7)
	if o.Awaited() != 0 {
		t.Error("replicas are asked about it")
	}
	if got := said(o, time.Hour, Facts{}, machine); got != "1 True Acknowledged present" {
		t.Errorf("it says %q", got)
	}
	bad := object.Problem{ID: machine, Field: "spec.address", Code: problem.Invalid, Severity: problem.Error, Message: "is no address"}
	if got := said(o, time.Hour, Facts{Problems: []object.Problem{bad}}, machine); got != "1 False Invalid: spec.address: is no address [error Invalid]" {
		t.Errorf("it says %q", got)
	}
}

// The time of a condition is that of its last change, and texts are limited.
func TestConditionChanges(t *testing.T) {
	route, o := id("VirtualService", "r"), New()
	o.Take([]object.Event{put(route, 1)}, begin)
	o.Stored(o.Taken(), 7)
	kind, key := status.Kind{Group: route.Group, Kind: route.Kind}, status.Key{Namespace: "shop", Name: "r"}
	long := object.Problem{ID: route, Code: problem.Invalid, Severity: problem.Error, Message: strings.Repeat("ä", maxText)}
	for at, c := range []struct {
		facts Facts
		since int
	}{{Facts{Acknowledged: 7}, 0}, {Facts{}, 0}, {Facts{Problems: []object.Problem{long}}, 2}, {Facts{Problems: []object.Problem{long, long}}, 2}, {Facts{}, 4}} {
		d := o.Reports(begin.Add(time.Duration(at)*time.Second), c.facts)[kind][key].Delivered
		if want := begin.Add(time.Duration(c.since) * time.Second); !d.Since.Equal(want) || len(d.Message) > maxText {
			t.Errorf("step %d: since %v, want %v; %d bytes", at, d.Since, want, len(d.Message))
		}
	}
}
