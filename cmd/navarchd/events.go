package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"

	"navarch.io/navarch/push/problems"
	"navarch.io/navarch/store/events"
	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/lead/promoted"
	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/origin"
	"navarch.io/navarch/store/problem"
	"navarch.io/navarch/store/status"
)

// warnings maintains Kubernetes Events about refused and held objects while this process leads. An object is held while
// its removal or its newest version waits for time or for an operator.
type warnings struct {
	events *events.Events
	writer *status.Events
	origin origin.Origin // of the config cluster
	home   string        // the control plane's namespace
	loop   desk
	listed func() []object.Problem // returns the problems of the sources and of the leader's tasks
	found  *problems.Collector
}

// desk has the methods of the ingest loop that warnings uses.
type desk interface {
	EveryProblem(context.Context) ([]object.Problem, error)
	Objects(context.Context, []object.ID) (map[object.ID]*object.Object, error)
	Settled() bool
}

// newWarnings returns a warnings without sending a request. The parameter from is the origin of the config cluster's
// objects. All writes to Kubernetes share limit. Errors name flags.
func newWarnings(i *ingester, c *config, from origin.Origin, writes *promoted.Writer, limit *rate.Limiter) (*warnings, error) {
	writer, err := status.NewEvents(c.kubeconfig, status.Config[corev1.Event]{Until: writes.Until, Limit: limit, Log: i.log})
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig, --registries: %w", err)
	}
	return &warnings{events: events.New(c.env.podNamespace), writer: writer,
		origin: from, home: c.env.podNamespace, loop: i.loop, listed: i.sourceProblems, found: i.found}, nil
}

// lookForWarnings is the interval at which a leader collects refused and held objects.
const lookForWarnings = time.Second

// lead writes the Events during one term (time as leader), until ctx ends.
func (w *warnings) lead(ctx context.Context, epoch kv.Epoch) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = w.writer.Run(ctx, epoch.Revision) // its error is the context's
	}()
	defer func() { <-ended }()
	defer w.writer.Show(nil)
	defer w.events.Reset()
	tick := time.NewTicker(lookForWarnings)
	defer tick.Stop()
	last, version := map[warned]string{}, uint64(0)
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if next, known := w.collect(ctx); known {
			w.state(ctx, last, next)
			last = next
		}
		if all, now := w.events.Present(); now != version {
			w.writer.Show(all)
			version = now
		}
	}
}

// warned identifies one warning.
type warned struct {
	id     object.ID
	reason events.Reason
}

// collect returns the messages about refused and held objects, or false while not all problems are known.
func (w *warnings) collect(ctx context.Context) (map[warned]string, bool) {
	every, err := w.loop.EveryProblem(ctx)
	if err != nil || !w.loop.Settled() {
		return nil, false
	}
	all := slices.Concat(w.listed(), every)
	found, _ := w.found.All()
	for _, p := range found {
		all = append(all, object.Problem{ID: normal.SourceObject(p.Key),
			Field: p.Field, Code: p.Code, Analyzer: p.Analyzer, Severity: p.Severity, Message: p.Message, Whole: p.Whole})
	}
	return w.messages(all), true
}

// messages returns one text for each object that is refused (severity error) or held. A text joins the problems of its
// object. A problem without an object counts for its namespace, or else for the control plane's namespace. Problems of
// sources other than the config cluster are left out.
func (w *warnings) messages(all []object.Problem) map[warned]string {
	texts := map[warned][]string{}
	for _, p := range all {
		k := warned{p.ID, events.Refused}
		switch {
		case p.Code == problem.Held:
			k.reason = events.Held
		case p.Severity != problem.Error:
			continue
		}
		if p.ID.Origin != w.origin && p.ID.Origin != (origin.Origin{}) {
			continue
		}
		parts := []string{p.Field, p.Message + p.Analyzer.Suffix()}
		if p.ID.Name == "" {
			namespace := cmp.Or(p.ID.Namespace, w.home)
			k.id = object.ID{Origin: w.origin, Kind: "Namespace", Namespace: namespace, Name: namespace}
			parts = append([]string{p.ID.Kind}, parts...)
		}
		text := strings.Join(slices.DeleteFunc(parts, func(part string) bool { return part == "" }), ": ")
		texts[k] = append(texts[k], text)
	}
	out := make(map[warned]string, len(texts))
	for k, list := range texts {
		slices.Sort(list)
		out[k] = strings.Join(slices.Compact(list), "; ")
	}
	return out
}

// state starts Events for new and changed messages, and ends the Events of messages that no longer apply.
func (w *warnings) state(ctx context.Context, last, next map[warned]string) {
	var fresh []warned
	for k, message := range next {
		if last[k] != message {
			fresh = append(fresh, k)
		}
	}
	for k := range last {
		if next[k] == "" {
			w.events.Over(k.id, k.reason)
		}
	}
	if len(fresh) == 0 {
		return
	}
	slices.SortFunc(fresh, func(a, b warned) int { return cmp.Or(a.id.Compare(b.id), cmp.Compare(a.reason, b.reason)) })
	ids := make([]object.ID, len(fresh))
	for i, k := range fresh {
		ids[i] = k.id
	}
	objects, err := w.loop.Objects(ctx, ids)
	if err != nil {
		return // the term ends
	}
	for _, k := range fresh {
		of := events.Object{ID: k.id}
		if o := objects[k.id]; o != nil {
			of.Version, of.UID, of.Generation = o.Version, o.UID, o.Generation
		}
		w.events.Warn(of, k.reason, next[k])
	}
}

// problems returns the problems of writing Events.
func (w *warnings) problems() (all []object.Problem) {
	for _, p := range w.writer.Problems() {
		id := object.ID{Origin: w.origin, Kind: "Event", Namespace: p.Key.Namespace, Name: p.Key.Name}
		all = append(all, object.Problem{ID: id, Location: "Kubernetes", Code: problem.Pending, Severity: problem.Warning, Message: p.Message})
	}
	return all
}
