// Package debug has the pages below /debug, and the answers to what istioctl asks for on a stream. push/inspect draws them from the loops that
// this process runs, and a caller sees of them what it may see.
//
// Owns: the turns of those who ask.  Reads: the loops, through what they show; cmd/navarchd/debug/authz.  Never: changes anything,
// nor shows one tenant what belongs to another.
package debug

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"navarch.io/navarch/cmd/internal/web"
	"navarch.io/navarch/cmd/navarchd/debug/authz"
	"navarch.io/navarch/cmd/navarchd/removals"
	"navarch.io/navarch/push/inspect"
	"navarch.io/navarch/push/join"
	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/plan"
	"navarch.io/navarch/push/problems"
	"navarch.io/navarch/push/serve"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/obs"
	"navarch.io/navarch/store/problem"
)

// maxCostly is how many pages that cost are made at once, by this process and over all ways to ask for them; maxOfCaller
// how many of one caller are made, waited for, or not read yet: a dump may have tens of megabytes.
const (
	maxCostly   = 2
	maxOfCaller = 8
)

// Pages are the pages of one process. What a role does not give them is empty.
type Pages struct {
	ID    string            // of this process
	Rules *authz.Authorizer // who may see what
	// Proxies are those that this process serves; nil: it does not have role xds.
	Proxies *Proxies
	// Objects are those that this process reads; nil: it does not have role ingest.
	Objects *Objects
	// Clusters are those that are read; nil: no Kubernetes cluster is.
	Clusters func() []inspect.Cluster
	// Removals are those that the leader holds.
	Removals *removals.Known
	// Acceptor lets one of them go, for a POST request to their page; nil: this process does not have role ingest.
	Acceptor *removals.Acceptor
	// Store is what is wrong with the store itself, for those who see everything; nil: there is no store.
	Store func() []inspect.Problem

	turns *web.Turns
}

// Proxies are what role xds shows.
type Proxies struct {
	Server  *serve.Server
	Planner *plan.Loop
	Mirror  *mirror.Mirror
	Cluster string // what the config cluster is called
	Fleet   func(owners bool) any
}

// Objects are what role ingest shows.
type Objects struct {
	Sources func() []object.Problem // of the folder and the cluster
	Loop    func() []object.Problem // of the objects that the ingester knows
	Total   func() problem.Count    // of them, those that Loop does not list included
	Found   *problems.Collector     // what the replicas found, while this process leads
	Commits func() []inspect.Commit // the newest of this process
	Leader  func(context.Context) (inspect.Leader, error)
}

// New completes p, which it keeps.
func New(p Pages) *Pages {
	p.turns = web.NewTurns(maxCostly, maxOfCaller)
	return &p
}

// Handler serves the pages below /debug/ as far as their caller may see them.
func (p *Pages) Handler() http.Handler { return p.Rules.Guard(p.debug) }

// debug serves the pages from the loops that this process runs; a role that it does not have answers with nothing.
func (p *Pages) debug(who authz.Caller) http.Handler {
	pages := inspect.Handler(p.shown(who))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == removals.Path && r.Method == http.MethodPost {
			_, done, err := p.turn(r.Context(), who, false)
			if err != nil {
				w.Header().Set("Retry-After", "1")
				http.Error(w, err.Error(), http.StatusTooManyRequests)
				return
			}
			defer done()
			proved := who.Sees == nil && (!p.Rules.Open || web.SameMachine(r))
			p.Acceptor.Accept(who.Name, proved, w, r)
			return
		}
		pages.ServeHTTP(w, r)
	})
}

// turn waits until a caller may be answered; made is to be called once the answer is made, and read once the caller has it. A tenant is answered at the pace of what that costs: it
// sees its own proxies, of which there may be thousands, and whoever asks again and again takes the processor from planning and sending. Who sees everything waits where the
// answer is costly. Errors are those of web.Turns.
func (p *Pages) turn(ctx context.Context, who authz.Caller, costly bool) (made, read func(), err error) {
	if who.Tenant == "" && !costly {
		return func() {}, func() {}, nil
	}
	turn, err := p.turns.Take(ctx, web.Question{Caller: who.Name, Tenant: who.Tenant, Costly: costly})
	return turn.Made, turn.Done, err
}

// shown is what they read, as far as the caller may see it.
func (p *Pages) shown(who authz.Caller) inspect.Config {
	sees := who.Sees
	c := inspect.Config{
		Turn: func(ctx context.Context, costly bool) (made, read func(), err error) {
			return p.turn(ctx, who, costly)
		},
		ID:       p.ID,
		Version:  obs.Version,
		Streams:  func(string) []inspect.Stream { return nil },
		Snapshot: func() *mirror.Snapshot { return nil },
		Problems: func() []inspect.Problem { return p.problems(sees) },
		Clusters: p.Clusters,
		Removals: func() any { return p.Removals.Of(sees.Of) },
	}
	if p.Objects != nil {
		c.Commits, c.Leader = p.Objects.Commits, p.Objects.Leader
	}
	if p.Proxies != nil {
		c.Streams, c.Snapshot, c.Fleet = func(id string) []inspect.Stream { return p.Proxies.streams(sees, id) }, p.Proxies.Mirror.Current, p.Proxies.Fleet
		c.Patches = func() []inspect.Patch { return p.Proxies.patches(sees) }
	}
	return c
}

// streams are those of the proxies that somebody may see, of one with a node id or name.namespace or, where that is empty, of all.
func (p *Proxies) streams(sees authz.Visible, id string) []inspect.Stream {
	infos := p.Server.InspectOf(func(node string, v serve.Proxy) bool {
		return sees.Of(v.Namespace()) && (id == "" || id == node || id == nameOf(v))
	})
	all := make([]inspect.Stream, len(infos))
	for i, info := range infos {
		all[i] = p.stream(info)
	}
	return all
}

// nameOf is name.namespace of a proxy; empty: it has neither.
func nameOf(v serve.Proxy) string {
	if proxy, ok := v.(*join.Proxy); ok {
		return proxy.Node.Name + "." + proxy.Node.Namespace
	}
	return ""
}

func (p *Proxies) stream(info serve.StreamInfo) inspect.Stream {
	s := inspect.Stream{
		Node: info.Node, Identity: info.Identity, Address: info.Addr, Connected: info.Opened, Revision: info.Target,
		Proxy: info.Node,
		Held: func() inspect.Resources {
			held, _ := p.Server.Dump(info.ID) // a stream that has ended holds nothing
			return held
		},
		Planned: func(t xds.Type, name string) *xds.Resource { return p.planned(info, t, name) },
		Explain: func() (*manifest.Set, inspect.Specs, error) { return p.explain(info) },
		Secret:  func(name string) (inspect.Standing, bool) { return p.standing(info, name) },
	}
	if proxy, ok := p.Server.ProxyOf(info.ID).(*join.Proxy); ok {
		s.Proxy, s.Cluster, s.Version = nameOf(proxy), cmp.Or(proxy.Node.Cluster, p.Cluster), proxy.Node.Version
	}
	for t := range xds.NumTypes {
		i := info.Types[t]
		s.Types[t] = inspect.TypeStatus{Subscribed: i.Subscribed, Synced: i.Synced, Sent: i.Sent, Acked: i.Acked}
	}
	if w := info.Warming; w.NotRequested || !w.Since.IsZero() {
		s.Types[xds.Cluster].Warming = &inspect.Warming{Since: w.Since, Clusters: w.Clusters, More: w.More, NotRequested: w.NotRequested}
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
func (p *Proxies) planned(info serve.StreamInfo, t xds.Type, name string) *xds.Resource {
	proxy, ok := p.Server.ProxyOf(info.ID).(*join.Proxy)
	if !ok {
		return nil
	}
	return proxy.Set().Types[t].Get(name)
}

// explain is from the plan as it is, which has the Specs of what it was built of: no page costs as much as planning a view.
func (p *Proxies) explain(info serve.StreamInfo) (*manifest.Set, inspect.Specs, error) {
	now, ok := p.Server.ProxyOf(info.ID).(*join.Proxy)
	if !ok {
		return nil, nil, errors.New("the stream has ended")
	}
	return now.Set(), func(t xds.Type, name string) []any {
		_, specs := p.Planner.Explain(now.Proxy, t, name)
		return specs
	}, nil
}

// standing is where a Secret stands for one stream's proxy, from the plan as it is.
func (p *Proxies) standing(info serve.StreamInfo, name string) (inspect.Standing, bool) {
	proxy, ok := p.Server.ProxyOf(info.ID).(*join.Proxy)
	if !ok {
		return inspect.Standing{}, false
	}
	s := p.Planner.Standing(proxy.Proxy, name)
	out := inspect.Standing{State: "withheld", Why: s.Why, Wanted: append([]string{}, s.Wanted...)}
	if s.Object != (model.Key{}) {
		out.Object = s.Object.String()
	}
	held, _ := p.Server.Dump(info.ID)
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

// Blame names what made a refused resource, from the plan as it is.
func (p *Proxies) Blame(v serve.Proxy, t xds.Type, name, text string) []model.Place {
	proxy, ok := v.(*join.Proxy)
	if !ok {
		return nil
	}
	_, specs := p.Planner.Explain(proxy.Proxy, t, name)
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

// Named is an object as users name it, as far as it has names: a file that does not parse has none.
func Named(id object.ID) string {
	if id.Name == "" {
		return strings.TrimSpace(id.Kind + id.Origin.Suffix())
	}
	return id.String()
}
