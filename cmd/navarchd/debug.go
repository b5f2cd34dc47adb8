package main

import (
	"net/http"

	"navarch.io/navarch/push/inspect"
	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/plan"
	"navarch.io/navarch/push/serve"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/obs"
)

// debug serves the pages below /debug/ from the loops that this process runs; a role that it does not have answers with
// nothing.
func (p *process) debug() http.Handler {
	return inspect.Handler(inspect.Config{
		ID:      p.config.processName(),
		Version: obs.Version,
		Streams: func() []inspect.Stream {
			if p.server == nil {
				return nil
			}
			var all []inspect.Stream
			for _, info := range p.server.Inspect() {
				all = append(all, p.stream(info))
			}
			return all
		},
		Snapshot: func() *mirror.Snapshot {
			if p.mirror == nil {
				return nil
			}
			return p.mirror.Current()
		},
		Problems: p.problems,
	})
}

func (p *process) stream(info serve.StreamInfo) inspect.Stream {
	s := inspect.Stream{
		Node: info.Node.GetId(), Identity: info.Identity, Address: info.Addr, Connected: info.Opened, Revision: info.Target,
		Proxy: info.Node.GetId(),
		Held: func() inspect.Resources {
			held, _ := p.server.Dump(info.ID) // a stream that has ended holds nothing
			return held
		},
		Explain: func() (*manifest.Set, inspect.Specs, error) { return p.explain(info) },
	}
	if node, err := parse(info.Node, info.Caps); err == nil {
		s.Proxy, s.Cluster, s.Version = node.Name+"."+node.Namespace, node.Cluster, node.Version
	}
	for t := range xds.NumTypes {
		i := info.Types[t]
		s.Types[t] = inspect.TypeStatus{Subscribed: i.Subscribed, Sent: i.Sent, Acked: i.Acked}
	}
	for _, r := range info.Refusals {
		s.Types[r.Type].Refused = append(s.Types[r.Type].Refused,
			inspect.Refused{Name: r.Name, Version: r.Version, Good: r.Good, Text: r.Text})
	}
	return s
}

// explain plans the proxy's view from nothing at the current snapshot: nothing is shared with the serving path.
func (p *process) explain(info serve.StreamInfo) (*manifest.Set, inspect.Specs, error) {
	node, err := parse(info.Node, info.Caps)
	if err != nil {
		return nil, nil, err
	}
	planner := plan.New(plan.Settings{Snapshot: p.mirror.Current()})
	proxy := planner.Join(node)
	return proxy.Set(), func(t xds.Type, name string) []any { return planner.Explain(proxy, t, name) }, nil
}

// problems is everything that is wrong, from the folder to the proxies' refusals.
func (p *process) problems() []inspect.Problem {
	all := []inspect.Problem{}
	if p.ingester != nil {
		for _, list := range [][]object.Problem{p.ingester.source.Problems(), p.ingester.loop.Problems()} {
			for _, one := range list {
				all = append(all, inspect.Problem{Object: one.ID.String(), Origin: one.Origin, Field: one.Field, Message: one.Message, Warning: one.Warning})
			}
		}
	}
	if p.mirror != nil {
		for _, one := range p.mirror.Status().Problems {
			all = append(all, inspect.Problem{Object: one.Path, Origin: "etcd", Message: one.Err.Error()})
		}
	}
	if p.planner != nil {
		for _, one := range p.planner.Problems() {
			all = append(all, inspect.Problem{Object: one.Key.String(), Field: one.Field, Message: one.Message, Warning: true})
		}
	}
	if p.server != nil {
		for _, info := range p.server.Inspect() {
			for _, r := range info.Refusals {
				all = append(all, inspect.Problem{Object: r.Type.Noun() + " " + r.Name, Origin: "proxy " + r.Node, Message: "refused: " + r.Text})
			}
		}
	}
	return all
}
