// Package preview computes the configuration that each proxy would get if a change of records were applied, without
// affecting the live plan. A view is the configuration that proxies with equal inputs share. The plan contains all
// views.
//
// # Computation
//
// A preview begins with a copy of the plan (plan.Base). The copy shares all planned resources with the live planner.
// The change is applied to the copy with the code of the live planner. The views of the copy are compared with the live
// views layer by layer. Equal pointers cost nothing. Afterwards the copy is dropped.
//
// The live planner's goroutine only copies the parts that change in place. All other work runs in the caller's
// goroutine. The live planner can therefore serve changes, new proxies and endpoints during a preview. If the live
// planner planned the preview itself, each piece of work would delay endpoints by 5 ms. A new planner without a copy
// would have to build every view again, which takes seconds.
//
// # Meaning of the difference
//
// push/meaning derives facts and risks from the views that differ (judge.go). Views with the same outbound
// configuration and the same differences are examined once. In a route configuration, only the virtual hosts that
// differ are decoded.
//
// Private keys are decrypted on demand, after planning. A preview therefore contains a new version of a Secret only if
// its private key was decrypted before. A Secret whose key a proxy waits for is neither sent nor removed, so it is no
// difference. A Secret that a change names and that does not exist is one of the new problems (secrets.go).
//
// # Plans that are applied later
//
// A plan has the hashes of its objects, and of the records from which the resources that differ are made (touched.go).
// Two plans of the same change are compared by these hashes (Report.Stale), without the effects of the change.
//
// Owns: nothing. Reads: a copy of the plan, and snapshots of records. Never: changes the live plan; decrypts a private
// key; checks a caller's permissions (Sees does that).
package preview

import (
	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/meaning"
	"navarch.io/navarch/push/plan"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
)

// Plan is the difference that a change of objects makes for the visible proxies of a plan. A proxy is visible if the
// caller may see its namespace.
type Plan struct {
	Revision int64           // revision of the snapshot that the change is applied to
	Objects  []Object        // the objects of the change; Of leaves the list empty, and its caller sets it
	Views    []View          // affected views; those with the most proxies come first
	Proxies  int             // number of all visible proxies, affected or not
	AllViews int             // number of views of all visible proxies before the change, affected or not
	Problems Problems        // differences of the problems that resolving and planning find
	Summary  meaning.Summary // facts and risks
	Touched  []Touched       // sorted; nil if nothing was planned
	// MoreTouched is true if touched records are left out because of the bounds.
	MoreTouched bool
}

// Act is the effect of a change on an object.
type Act string

// The effects on an object.
const (
	Created   Act = "created"
	Changed   Act = "changed"
	Deleted   Act = "deleted"
	Unchanged Act = "unchanged" // the records of the object are equal before and after the change
	Refused   Act = "refused"   // the webhook would refuse the object; Object.Problems contains the reasons
)

// Object is one object of the change.
type Object struct {
	ID       object.ID
	Act      Act
	Hash     string           // HashOf its records before the change; empty: the object does not exist
	Problems []object.Problem // problems that the conversion of the object to records finds
}

// View is a set of proxies of one namespace and kind that have equal configuration before the change, and equal
// configuration after the change.
type View struct {
	Label     string   // namespace and kind, with one proxy's name as example
	Namespace string   // namespace of the proxies
	Kind      string   // kind of the proxies: sidecar, router (gateway) or grpc
	Proxies   []string // IDs of the nodes, sorted
	Changed   []Pair   // resources that differ, by type and name
	Agent     []Pair   // resources for the agent that differ: "name table" and "bootstrap"
	Bytes     int64    // size in bytes of the new versions in Changed and Agent, which are sent to each proxy
	// Before and After are the configurations of each of these proxies. They are shared and read-only.
	Before, After *manifest.Set

	after   *plan.Handle // one of the proxies, after the change
	example string       // the first of the proxies, by name
	// identities has one of the proxies, after the change, for each service account that may have other Secrets.
	identities map[identity]*plan.Handle
}

// identity decides which Secrets a proxy of a View may have.
type identity struct{ verified, secrets view.Identity }

// Pair is a resource before and after the change.
type Pair struct {
	Type     xds.Type // xds.Unknown for resources of the agent
	Name     string
	Old, New *xds.Resource // Old is nil for a created resource, and New is nil for a removed resource
}

// Problems contains the problems that a change adds (New) and removes (Gone), both sorted.
type Problems struct{ New, Gone []model.Problem }

// Affected returns the number of proxies whose configuration differs.
func (p *Plan) Affected() (n int) {
	for _, v := range p.Views {
		n += len(v.Proxies)
	}
	return n
}
