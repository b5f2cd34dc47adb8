// Package preview computes what every view would get if a change of records were applied, beside the live plan.
//
// # How
//
// A preview begins with a copy of the plan (plan.Base). The copy shares everything that is planned with the live
// planner, and is planned with the code of the live planner: the table of effects gives the work, one plan for each
// view. The results are compared layer by layer, where equal pointers cost nothing, and dropped.
//
// The copy is taken in one piece of the planner's loop. All other work runs in the caller's goroutine. So the loop
// serves changes, joins and endpoints meanwhile, as if there were no preview. Another way, planning in pieces on the
// loop, would delay endpoints by one piece (5 ms) for each turn of a preview. A planner from scratch would build every
// scope again, which takes seconds.
//
// # What the difference means
//
// Facts and risks are those of push/meaning over the views that differ (judge.go). Views with the same outbound side
// and the same differences are judged once, and of a route configuration only the virtual hosts that differ are
// decoded. Risks of reach read the change itself.
//
// Private keys are opened on demand, after the plan. So a new version of a Secret is a part of the preview only if its
// key has been opened before.
//
// Owns: nothing.  Reads: push/plan, push/resolve, push/meaning, snapshots.  Never: changes the live plan; opens a
// private key; asks for a right.
package preview

import (
	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/meaning"
	"navarch.io/navarch/push/plan"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
)

// Plan is the difference that a change of objects makes for the proxies of one replica, or of a list of nodes.
type Plan struct {
	Revision int64    // of the snapshot that the change is applied to
	Objects  []Object // the objects of the change, in their order
	Views    []View   // that get something else, those with the most proxies first
	Proxies  int      // number of proxies of all views, affected or not
	AllViews int      // number of views before the change, affected or not
	Problems Problems // of objects, that planning finds
	Summary  meaning.Summary
}

// Act names the effect of a change on an object.
type Act string

// The acts of a change.
const (
	Created   Act = "created"
	Changed   Act = "changed"
	Deleted   Act = "deleted"
	Unchanged Act = "unchanged" // its records stay the same
	Refused   Act = "refused"   // its problems have the reasons
)

// Object is one object of the change.
type Object struct {
	ID       object.ID
	Act      Act
	Problems []object.Problem // by ingestion; errors, if it is refused
}

// View is a set of proxies that have equal configuration before the change, and equal configuration after it.
type View struct {
	Label     string   // namespace and kind (sidecar, router, grpc), with one proxy's name as example
	Namespace string   // of the proxies
	Kind      string   // of the proxies
	Proxies   []string // IDs of the nodes, sorted
	Changed   []Pair   // the resources whose versions differ, by type and name
	Agent     []Pair   // resources for the agent that differ: "name table" and "bootstrap", without a type
	Bytes     int64    // of the new versions, which one proxy is sent
	// Before and After are the configurations of each of these proxies.
	Before, After *manifest.Set

	after *plan.Handle // one of the proxies, after the change
}

// Pair is a resource before and after the change.
type Pair struct {
	Type     xds.Type // xds.Unknown for resources of the agent
	Name     string
	Old, New *xds.Resource // nil: the resource is new, or gone
}

// Problems are the problems of objects that a change adds and removes.
type Problems struct{ New, Gone []model.Problem }

// Affected returns the number of proxies that get something else.
func (p *Plan) Affected() (n int) {
	for _, v := range p.Views {
		n += len(v.Proxies)
	}
	return n
}
