// Package scene plays the scripted scenarios of a load run: it writes a world, starts servers (or takes those that are
// there), lets a fleet of simulated proxies join, edits the world, and measures from outside what came of it.
//
// Owns: the processes, folders and fleets of the scenario that runs.  Reads: loadtest/mesh, proxy, gauge, report; debug
// pages; /proc.  Never: an import of what it measures; ends a process that it did not start.
package scene

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"navarch.io/navarch/loadtest/mesh"
)

// Scenario is one script with its targets.
type Scenario struct {
	Name, Title string
	World       string // preset
	Proxies     int    // at scale 1
	Replicas    int    // at least; 0: one
	Limit       time.Duration
	Targets     map[string]Target // by the name of the row

	run        func(*stage) error
	change     func(*mesh.Settings)
	flags      []string      // of the servers that are started, besides those of all
	env        []string      // and of their environment
	oneAccount bool          // all proxies are Pods of the first workload's account, each with a certificate of its own
	pace       time.Duration // between two changes of endpoints while attackers go on; 0: quietPause
	kube       bool          // the mesh is in a real API server, not in a folder
	webhooks   bool          // the server, one, answers reviews too
	authority  bool          // proxies get their certificates from the servers' CA
	attack     time.Duration // for how long attackers go on, at scale 1
}

// Target is what a figure should be, and what others reach.
type Target struct {
	Value  float64
	Most   bool // at least, not at most
	Others string
}

// limit bounds the scenario in time.
func (s Scenario) limit() time.Duration { return cmp.Or(s.Limit, 5*time.Minute) }

// All are the scenarios, in the order in which a suite plays them.
func All() []Scenario {
	return slices.Concat(meshA, meshB, hardening, kubernetes)
}

// Suites are the named sets. The standard one takes about five minutes on two quiet cores; full is everything.
var Suites = map[string][]string{
	"world-a":  {"join", "virtualservice", "virtualservices-50", "endpoint", "reconnect"},
	"world-b":  {"memory", "storm", "endpoint-10000", "route-10000", "rate", "slow", "neighbour", "kill", "scale", "roots", "fleet-20000", "restart-20000"},
	"standard": {"join", "virtualservice", "virtualservices-50", "endpoint", "reconnect", "memory", "storm", "churn", "roots"},
	"kube":     namesOf(kubernetes),
	"full":     namesOf(slices.Concat(meshA, meshB, hardening)), // those of a cluster need the programs of make kube-tools
}

// Find gives scenarios by the names of scenarios and suites. An error: there is none of a name; it says which there are.
func Find(names ...string) ([]Scenario, error) {
	var found []Scenario
	for _, name := range names {
		if suite, ok := Suites[name]; ok {
			more, err := Find(suite...)
			if err != nil {
				return nil, err
			}
			found = append(found, more...)
			continue
		}
		i := slices.IndexFunc(All(), func(s Scenario) bool { return s.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("no scenario %q: there are %s", name, strings.Join(Names(), ", "))
		}
		found = append(found, All()[i])
	}
	return found, nil
}

// Names are those of all scenarios.
func Names() []string { return namesOf(All()) }

func namesOf(all []Scenario) []string {
	var names []string
	for _, s := range all {
		names = append(names, s.Name)
	}
	return names
}
