package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"navarch.io/navarch/push/inspect"
	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/plan"
	"navarch.io/navarch/push/serve"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/ingest"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/obs"
	"navarch.io/navarch/store/problem"
)

// maxCostly is how many pages that cost are made at once, by this process and over all ways to ask for them; maxCostlyOfCaller
// how many of one caller are made, waited for, or not read yet: a dump may have tens of megabytes.
const (
	maxCostly         = 2
	maxCostlyOfCaller = 8
)

// debug serves the pages below /debug/ from the loops that this process runs; a role that it does not have answers with
// nothing.
func (p *process) debug(who caller) http.Handler { return inspect.Handler(p.shown(who)) }

// shown is what they read, as far as the caller may see it.
func (p *process) shown(who caller) inspect.Config {
	sees := who.sees
	return inspect.Config{
		Costly: func(ctx context.Context) (made, read func(), err error) {
			turn, err := p.costly.Take(ctx, who.name)
			return turn.Made, turn.Done, err
		},
		ID:      p.config.processName(),
		Version: obs.Version,
		Streams: func() []inspect.Stream {
			if p.server == nil {
				return nil
			}
			var all []inspect.Stream
			for _, info := range p.server.Inspect() {
				if sees.of(info.Namespace) {
					all = append(all, p.stream(info))
				}
			}
			return all
		},
		Snapshot: func() *mirror.Snapshot {
			if p.mirror == nil {
				return nil
			}
			return p.mirror.Current()
		},
		Problems: func() []inspect.Problem { return p.problems(sees) },
		Commits:  p.newest(),
		Fleet:    p.members(),
	}
}

func (p *process) stream(info serve.StreamInfo) inspect.Stream {
	s := inspect.Stream{
		Node: info.Node, Identity: info.Identity, Address: info.Addr, Connected: info.Opened, Revision: info.Target,
		Proxy: info.Node,
		Held: func() inspect.Resources {
			held, _ := p.server.Dump(info.ID) // a stream that has ended holds nothing
			return held
		},
		Planned: func(t xds.Type, name string) *xds.Resource { return p.planned(info, t, name) },
		Explain: func() (*manifest.Set, inspect.Specs, error) { return p.explain(info) },
		Secret:  func(name string) (inspect.Standing, bool) { return p.standing(info, name) },
	}
	if proxy, ok := p.server.ViewOf(info.ID).(*served); ok {
		s.Proxy, s.Cluster, s.Version = proxy.Node.Name+"."+proxy.Node.Namespace, cmp.Or(proxy.Node.Cluster, p.config.cluster), proxy.Node.Version
	}
	for t := range xds.NumTypes {
		i := info.Types[t]
		s.Types[t] = inspect.TypeStatus{Subscribed: i.Subscribed, Sent: i.Sent, Acked: i.Acked}
	}
	for _, r := range info.Refusals {
		s.Types[r.Type].Refused = append(s.Types[r.Type].Refused,
			inspect.Refused{Name: r.Name, Version: r.Version, Good: r.Good, Text: r.Text, Last: r.At, Objects: places(r.Objects)})
	}
	for _, w := range info.Withheld {
		s.Types[w.Type].Withheld = append(s.Types[w.Type].Withheld, inspect.Withheld{Name: w.Name, Version: w.Version, Good: w.Good,
			RefusedBy: w.RefusedBy, First: w.First, Last: w.Last, Text: w.Text, Objects: places(w.Objects)})
	}
	return s
}

// planned is a resource of the newest set of the stream's view; nil: there is none.
func (p *process) planned(info serve.StreamInfo, t xds.Type, name string) *xds.Resource {
	proxy, ok := p.server.ViewOf(info.ID).(*served)
	if !ok {
		return nil
	}
	return proxy.Set().Types[t].Get(name)
}

// explain plans the proxy's view from nothing at the current snapshot: nothing is shared with the serving path.
func (p *process) explain(info serve.StreamInfo) (*manifest.Set, inspect.Specs, error) {
	now, ok := p.server.ViewOf(info.ID).(*served)
	if !ok {
		return nil, nil, errors.New("the stream has ended")
	}
	planner := plan.New(plan.Settings{Snapshot: p.planner.Newest()})
	node := now.Node
	node.Verified = view.Identity{} // no Secret is opened for a page
	proxy := planner.Join(node)
	return proxy.Set(), func(t xds.Type, name string) []any { return planner.Explain(proxy, t, name) }, nil
}

// standing is where a Secret stands for one stream's proxy, from the plan as it is.
func (p *process) standing(info serve.StreamInfo, name string) (inspect.Standing, bool) {
	proxy, ok := p.server.ViewOf(info.ID).(*served)
	if !ok {
		return inspect.Standing{}, false
	}
	s := p.planner.Standing(proxy.Proxy, name)
	out := inspect.Standing{State: "withheld", Why: s.Why, Wanted: append([]string{}, s.Wanted...)}
	if s.Object != (model.Key{}) {
		out.Object = s.Object.String()
	}
	held, _ := p.server.Dump(info.ID)
	has := s.Planned != nil && slices.ContainsFunc(held[xds.Secret], func(r *xds.Resource) bool {
		return r.Name == name && r.Version == s.Planned.Version
	})
	refused := slices.IndexFunc(info.Refusals, func(r serve.Refusal) bool { return r.Type == xds.Secret && r.Name == name })
	switch {
	case refused >= 0:
		out.State, out.Why = "refused", info.Refusals[refused].Text
	case s.Asking:
		out.State = "waiting for the authoriser"
	case s.Opening:
		out.State = "being opened"
		if s.Failed > 0 {
			out.Why = fmt.Sprintf("%d attempts, the last: %s", s.Failed, s.Why)
		}
		if has {
			out.Why = strings.TrimPrefix(out.Why+"; the last good one stands", "; ")
		}
	case has:
		out.State = "sent"
	case s.Planned != nil:
		out.State = "on its way"
	case !s.Asked && s.Why == "":
		out.State = "not asked for"
	}
	return out, true
}

// problems is everything that is wrong, from the folder to the proxies' refusals, as far as somebody may see it.
func (p *process) problems(sees visibleTenants) []inspect.Problem {
	all, own := p.reported(sees), map[model.Problem]bool{}
	if p.planner != nil {
		for _, one := range p.planner.Problems() {
			own[one] = true
			if !sees.of(one.Key.Namespace) {
				continue
			}
			all = append(all, inspect.Problem{Object: one.Key.String(), Field: one.Field, Code: one.Code, Severity: one.Severity, Message: one.Message})
		}
	}
	return append(all, p.found(sees, own)...)
}

// found is what other replicas found, where this process leads; own is what this one did.
func (p *process) found(sees visibleTenants, own map[model.Problem]bool) (all []inspect.Problem) {
	if p.ingester == nil {
		return nil
	}
	found, more := p.ingester.found.All()
	for _, one := range found {
		if own[one.Problem] || !sees.of(one.Key.Namespace) {
			continue
		}
		at := "replica " + one.First
		if one.Replicas > 1 {
			at += fmt.Sprintf(" and %d more", one.Replicas-1)
		}
		all = append(all, inspect.Problem{Object: one.Key.String(), Location: at, Field: one.Field, Code: one.Code, Severity: one.Severity, Message: one.Message})
	}
	if more > 0 && sees.of("") {
		all = append(all, inspect.Problem{Object: "replicas", Location: "etcd", Code: problem.NotAllowed, Severity: problem.Warning,
			Message: fmt.Sprintf("%d problems that replicas found are not listed here: /debug/problems of each replica lists its own", more)})
	}
	return all
}

// reported is what is wrong before and after the plan: cheap to ask for.
func (p *process) reported(sees visibleTenants) []inspect.Problem {
	all := []inspect.Problem{}
	if p.ingester != nil {
		if held, is := p.ingester.heldProblem(); is && sees.of("") {
			all = append(all, held)
		}
		for _, list := range [][]object.Problem{p.ingester.sourceProblems(), p.ingester.loop.Problems()} {
			for _, one := range list {
				if !sees.of(ingest.NamespaceOf(one)) {
					continue
				}
				all = append(all, inspect.Problem{Object: named(one.ID), Location: one.Location, Field: one.Field, Code: one.Code, Severity: one.Severity, Message: one.Message})
			}
		}
	}
	if p.mirror != nil {
		for _, one := range p.mirror.Status().Problems {
			if key, _ := model.ParsePath(one.Path); !sees.of(key.Namespace) {
				continue
			}
			all = append(all, inspect.Problem{Object: "records/" + one.Path, Location: "etcd", Code: problem.Unreadable, Severity: severity(one.Kept), Message: one.String()})
		}
	}
	if sees.of("") {
		all = append(all, p.space.problems()...)
	}
	if p.mirror != nil && sees.of("") {
		all = append(all, contentsProblems(p.mirror.Status())...)
	}
	if p.mirror != nil {
		for _, one := range p.mirror.Status().Unknown {
			if sees.of(one.Namespace) {
				all = append(all, inspect.Problem{Object: "records/" + one.Path, Location: "etcd", Code: problem.NotSupported, Severity: severity(!one.Closing), Message: one.String()})
			}
		}
	}
	if p.planner != nil {
		for _, one := range p.planner.SetAside() {
			if sees.of(one.Key.Namespace) {
				all = append(all, inspect.Problem{Object: one.Key.String(), Code: one.Code, Severity: one.Severity, Message: one.Message})
			}
		}
	}
	if p.server != nil {
		all = append(all, refused(p.refusals(sees))...)
		all = append(all, withheld(p.server.Withheld(), sees)...)
	}
	return all
}

// contentsProblems is what is wrong with the store, and with the stored records as a whole.
func contentsProblems(s mirror.Status) (all []inspect.Problem) {
	if s.Alarm != nil {
		all = append(all, inspect.Problem{Object: "head", Location: "etcd", Code: problem.Held, Severity: problem.Error, Message: s.Alarm.Error()})
	}
	for _, one := range s.Held {
		all = append(all, inspect.Problem{Object: "records/" + one.Kind, Location: "etcd", Code: problem.Held, Severity: problem.Error, Message: one.String()})
	}
	if s.Unchecked != "" {
		all = append(all, inspect.Problem{Object: "head", Location: "etcd", Code: problem.Unreadable, Severity: problem.Warning, Message: "what others than the leader change in the store is not noticed: " + s.Unchecked})
	}
	return all
}

// blame names what made a refused resource, from the plan as it is.
func (p *process) blame(v serve.View, t xds.Type, name, text string) []model.Place {
	proxy, ok := v.(*served)
	if !ok {
		return nil
	}
	_, specs := p.planner.Explain(proxy.Proxy, t, name)
	return inspect.Blame(specs, text)
}

// places are as users read them.
func places(of []model.Place) (out []string) {
	for _, at := range of {
		out = append(out, at.String())
	}
	return out
}

// severity is that of a problem that spoils something, or does not.
func severity(harmless bool) problem.Severity {
	if harmless {
		return problem.Warning
	}
	return problem.Error
}

// named is an object as users name it, as far as it has names: a file that does not parse has none.
func named(id object.ID) string {
	if id.Name == "" {
		return id.Kind
	}
	return id.String()
}
