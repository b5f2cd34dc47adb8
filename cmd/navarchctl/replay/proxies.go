package replay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"navarch.io/navarch/cmd/internal/report"
	"navarch.io/navarch/cmd/navarchd/collect"
	"navarch.io/navarch/cmd/navarchd/debug"
	"navarch.io/navarch/cmd/navarchd/debug/authz"
	"navarch.io/navarch/push/access"
	"navarch.io/navarch/push/describe"
	"navarch.io/navarch/push/inspect"
	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/plan"
	"navarch.io/navarch/push/resolve"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// planOnce is the plan (the computed configuration) of the proxies of one process in a report. The first use of the
// plan computes it.
type planOnce struct {
	once     sync.Once
	mu       sync.Mutex // guards planner and resolver
	planner  *plan.Planner
	resolver *resolve.Resolver
	handles  []*plan.Handle // by index in Proxies
	err      error
}

// planned returns the plan of the process's proxies, which the first call computes. Every call returns an error if the
// report cannot be planned.
func (p *process) planned() (*planOnce, error) {
	p.plan.once.Do(func() {
		defer func() {
			if r := recover(); r != nil { // the report is untrusted
				p.plan.err = fmt.Errorf("the report cannot be planned: %v", r)
			}
		}()
		p.plan.err = p.makePlan()
	})
	return &p.plan, p.plan.err
}

func (p *process) makePlan() error {
	if p.snapshot == nil {
		return errors.New("the report has no records, so nothing can be planned")
	}
	l := &p.plan
	l.resolver = resolve.New(nil)
	l.planner = plan.New(plan.Settings{Snapshot: l.resolver.Step(mirror.Diff(mirror.Empty(), p.snapshot)).New, Cluster: p.Cluster})
	for i := range p.Proxies {
		h := l.planner.Join(view.Node(p.Proxies[i].Node))
		l.handles = append(l.handles, h)
		held, _ := p.Held.Set(p.Proxies[i].Set)
		var names []string
		for _, r := range held[xds.Secret] {
			names = append(names, r.Name)
		}
		l.planner.SubscribeSecrets(h, names, nil)
		who := h.View().Secrets
		right := access.Granted(l.planner.Snapshot(), who)
		l.planner.Authorised(who.OfAccount(), access.Standing{Known: true, Allowed: right.Allowed, Why: right.Why})
	}
	for _, record := range l.planner.Sealed() {
		l.planner.Opened(record, model.PrivateKey{}) // reports do not contain private keys
	}
	return nil
}

// base returns a copy of the plan. A preview may change the copy.
func (p *process) base(context.Context) (*plan.Base, error) {
	l, err := p.planned()
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return &plan.Base{Planner: l.planner.Fork(), Resolver: l.resolver.Fork()}, nil
}

// describe returns the description of a subject, derived from the plan. The argument visible is a function, which
// reports whether the caller may see a namespace. Errors are those of planned and of describe.Of.
func (p *process) describe(of describe.Query, visible func(namespace string) bool) (describe.Part, error) {
	l, err := p.planned()
	if err != nil {
		return describe.Part{}, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return describe.Of(l.planner, p.snapshot, of, visible)
}

// proxies provides the proxies of a report's process to the API (api.Proxies).
type proxies struct{ *process }

// Streams returns the visible proxies whose node ID or name (NAME.NAMESPACE) is id; an empty id selects all proxies.
func (p proxies) Streams(sees authz.Visible, id string) (all []inspect.Stream) {
	for i := range p.Proxies {
		n := &p.Proxies[i].Node
		if sees.Of(n.Namespace) && (id == "" || id == n.ID || id == n.Name+"."+n.Namespace) {
			all = append(all, p.stream(i))
		}
	}
	return all
}

// Departed returns the visible streams that ended in the last ten minutes before the report; nil if the report lacks
// the list of these streams.
func (p proxies) Departed(sees func(string) bool) (all []debug.Left) {
	_ = p.decode(collect.Departed, &all) // a page that the report lacks is empty
	return slices.DeleteFunc(all, func(l debug.Left) bool { return !sees(l.Namespace) })
}

// Planned returns the store's revision that the process served, and the revision up to which its proxies were notified.
// Both are 0 if the process served no proxies.
func (p proxies) Planned() (serves, notified int64) { return p.Served, p.Notified }

// Connected returns the number of the process's proxies.
func (p proxies) Connected() int { return len(p.Proxies) }

// ConfigCluster returns the name of the config cluster.
func (p proxies) ConfigCluster() string { return p.Cluster }

// stream returns the proxy with index i in the form in which navarchd describes a stream.
func (p proxies) stream(i int) inspect.Stream {
	of := &p.Proxies[i]
	n := &of.Node
	return inspect.Stream{Proxy: n.Name + "." + n.Namespace, Node: n.ID, Identity: of.Identity, Address: of.Address,
		Cluster: cmp.Or(n.Cluster, p.Cluster), Version: n.Version, Namespace: n.Namespace, Zone: n.Locality, Labels: n.Labels,
		Connected: of.Connected, Behind: of.Behind, Revision: of.Revision, Types: of.Statuses(),
		Held: func() inspect.Resources {
			held, _ := p.Held.Set(of.Set) // a damaged set is empty
			return held
		},
		Planned: func(t xds.Type, name string) *xds.Resource {
			l, err := p.planned()
			if err != nil {
				return nil
			}
			return l.handles[i].Set().Types[t].Get(name)
		},
		Explain: func() (*manifest.Set, inspect.Specs, error) { return p.explain(i) },
		Secret:  func(name string) (inspect.Standing, bool) { return p.secret(of, i, name) },
		Lacks: func() map[string]string {
			l, err := p.planned()
			if err != nil {
				return nil
			}
			l.mu.Lock()
			defer l.mu.Unlock()
			return l.planner.Lacking(l.handles[i])
		},
		Ports: func() (ports []inspect.ServicePort) {
			l, err := p.planned()
			if err != nil {
				return nil
			}
			l.mu.Lock()
			defer l.mu.Unlock()
			for _, port := range l.planner.ServicePorts(l.handles[i]) {
				ports = append(ports, inspect.ServicePort(port))
			}
			return ports
		},
		Closing: func() (policies []string) {
			l, err := p.planned()
			if err != nil {
				return nil
			}
			l.mu.Lock()
			defer l.mu.Unlock()
			for _, key := range view.Closing(l.planner.Snapshot(), *l.handles[i].Node) {
				policies = append(policies, key.String())
			}
			return policies
		},
	}
}

// explain returns the planned resources of a proxy, and a function that returns the inputs of a resource
// (inspect.Specs).
func (p *process) explain(i int) (*manifest.Set, inspect.Specs, error) {
	l, err := p.planned()
	if err != nil {
		return nil, nil, err
	}
	return l.handles[i].Set(), func(t xds.Type, name string) []any {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.planner.Explain(l.handles[i], t, name)
	}, nil
}

// secret returns the state of a Secret at a proxy. If the report cannot be planned, the state is withheld. If it can be
// planned, the state is refused or sent if the report says so. For other Secrets, the plan of this build decides
// between withheld and not asked for. The second result is always true.
func (p *process) secret(of *report.Proxy, i int, name string) (inspect.Standing, bool) {
	l, err := p.planned()
	if err != nil {
		return inspect.Standing{State: "withheld", Why: err.Error()}, true
	}
	l.mu.Lock()
	s := l.planner.Standing(l.handles[i], name)
	l.mu.Unlock()
	out := inspect.Standing{State: "withheld", Why: s.Why, Wanted: append([]string{}, s.Wanted...)}
	if s.Object != (model.Key{}) {
		out.Object = s.Object.String()
	}
	held, _ := p.Held.Set(of.Set)
	switch {
	case slices.ContainsFunc(held[xds.Secret], func(r *xds.Resource) bool { return r.Name == name }):
		out.State, out.Why = "sent", ""
	case !s.Asked && s.Why == "":
		out.State = "not asked for"
	}
	for _, refused := range of.Types[xds.Secret.Noun()].Refused {
		if refused.Name == name {
			out.State, out.Why = "refused", refused.Text
		}
	}
	return out, true
}
