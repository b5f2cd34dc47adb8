package debug

import (
	"navarch.io/navarch/push/describe"
	"navarch.io/navarch/push/plan"
	"navarch.io/navarch/push/serve"
	"navarch.io/navarch/push/view"
)

// Describe describes the subject of a query, for example a host or a Pod. It uses the plan of this process, and the
// proxies that are connected to this process. The function sees reports whether the caller may see a namespace. Errors
// are those of describe.Of.
func (p *Proxies) Describe(of describe.Query, sees func(namespace string) bool) (describe.Part, error) {
	source := connected{p.Planner, map[string]bool{}}
	p.Server.InspectOf(func(node string, _ serve.Proxy) bool {
		source.nodes[node] = true
		return false
	})
	return describe.Of(source, p.Mirror.Current(), of, sees)
}

// connected is a plan that shows only the proxies with a stream at this process. It hides proxies that have not
// connected yet, and proxies that have left.
type connected struct {
	*plan.Loop
	nodes map[string]bool // ids of the proxies' nodes
}

// Seen implements describe.Source.
func (c connected) Seen(selects func(view.Node, view.View) bool) []plan.Seen {
	return c.Loop.Seen(func(n view.Node, v view.View) bool { return c.nodes[n.ID] && selects(n, v) })
}
