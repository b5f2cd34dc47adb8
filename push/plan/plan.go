// Package plan decides what every view should have: which service, rule and route wins, which names exist, and which
// records each resource depends on. It hands Specs to the pool and keeps manifests of what comes back, again only where
// an input changed.
//
// Owns: scopes, families, workloads, residues and their manifests (Planner: one goroutine; Loop is that goroutine).
// Reads: snapshots, views.  Never: protobuf of Envoy; a clock or a socket outside Loop.
package plan

import (
	"slices"

	"navarch.io/navarch/push/build/listener"
	"navarch.io/navarch/push/build/vhost"
	"navarch.io/navarch/push/pool"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/problem"
)

// types is a set of resource types.
type types uint8

const (
	cds = types(1) << xds.Cluster
	eds = types(1) << xds.Endpoint
	lds = types(1) << xds.Listener
	rds = types(1) << xds.Route
	sds = types(1) << xds.Secret
	all = cds | eds | lds | rds
)

func (t types) has(other types) bool { return t&other != 0 }

// Problem is something that does not work as it was written, found while planning.
type Problem = model.Problem

// warning is a problem of an object that applies all the same.
func warning(key model.Key, code problem.Code, field, message string) Problem {
	return Problem{Key: key, Field: field, Code: code, Severity: problem.Warning, Message: message}
}

// Interned lists of Specs; weak, so nothing is held that no Spec holds.
var (
	strs         intern.Table[string]
	members      intern.Table[model.Member]
	patchLists   intern.Table[model.Patch]
	chains       intern.Table[listener.Chain]
	targets      intern.Table[listener.Target]
	inboundPorts intern.Table[listener.InboundPort]
	destinations intern.Table[vhost.Destination]
	fragments    intern.Table[*xds.Fragment]
	resources    intern.Table[*xds.Resource]
)

// input is what all layers read: one snapshot and what was derived from it. Replaced as a whole at each step.
type input struct {
	*mirror.Snapshot
	mesh  *model.Mesh
	index *index
	pool  *pool.Pool
	// runs holds the joined virtual hosts of route configurations (see chunk); apart, because they are no virtual hosts.
	runs   *pool.Pool
	pieces []*xds.Fragment // scratch of planRoutes
	// selected remembers what clusters select, for the scopes of one step.
	selected     map[selection]intern.List[model.Member]
	shared       *shared                               // while a step goes on
	accounts     map[[2]string]intern.List[string]     // by host and namespace, see accountsOf
	peers        map[string]intern.List[*model.Policy] // by namespace, see peersOf
	mtlsDisabled map[served]string                     // see offOf
	denied       denied                                // see deniedOf; unless deniedKnown, not read yet
	deniedKnown  bool
	fault        func(w *input, of view.Scope) // tests have it panic; nil: nothing is tested
}

// tested is called wherever a scope is planned, when all layers of a view are, and where a proxy asks for Secrets.
func (w *input) tested(of view.Scope) {
	if w.fault != nil {
		w.fault(w, of)
	}
}

func (w *input) root() string { return w.mesh.Spec.GetRootNamespace() }

// problems are kept by the unit that has them, so that planning a unit again replaces its problems.
type problems map[string][]Problem

func (p problems) set(unit string, found []Problem) {
	if len(found) == 0 {
		delete(p, unit)
		return
	}
	p[unit] = found
}

func sortedProblems(sets ...problems) []Problem {
	seen := map[Problem]bool{}
	var out []Problem
	for _, set := range sets {
		for _, list := range set {
			for _, one := range list {
				if !seen[one] {
					seen[one] = true
					out = append(out, one)
				}
			}
		}
	}
	slices.SortFunc(out, Problem.Compare)
	return out
}

// unit is one resource: what it depends on, and what came of it.
type unit struct {
	spec pool.ResourceSpec
	res  *xds.Resource
}
