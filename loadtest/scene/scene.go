// Package scene runs the scripted scenarios of a load run. It writes a world, starts servers (or uses running ones),
// lets a fleet of simulated proxies join, edits the world, and measures the effects from outside.
//
// Owns: the processes, folders and fleets of the running scenario. Reads: loadtest/mesh, proxy, gauge, report; debug
// pages; /proc. Never: imports the measured program; ends a process that it did not start.
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
	Proxies     int    // number of simulated proxies at scale 1
	Replicas    int    // minimum; 0: one
	Envoy       bool   // it needs a real Envoy (Options.Envoy), and has no simulated proxies
	Limit       time.Duration
	Targets     map[string]Target // by the name of the row

	run        func(*stage) error
	change     func(*mesh.Settings)
	flags      []string      // further flags of the started servers
	env        []string      // further environment of the started servers
	oneAccount bool          // all proxies are Pods of the first workload's account, each with its own certificate
	pace       time.Duration // between two changes of endpoints during attacks; 0: quietPause
	routers    bool          // the proxies are Pods of the mesh's gateway
	kube       bool          // the mesh is in a real API server, not in a folder
	webhooks   bool          // the one server also answers reviews
	authority  bool          // proxies get their certificates from the servers' CA
	attack     time.Duration // duration of attacks at scale 1
}

// Target is the target of a figure, and the figures of other servers.
type Target struct {
	Value  float64
	Most   bool // Value is a minimum, not a maximum
	Others string
}

// limit returns the time limit of the scenario.
func (s Scenario) limit() time.Duration { return cmp.Or(s.Limit, 5*time.Minute) }

// All returns the scenarios in the order in which a suite runs them.
func All() []Scenario {
	return slices.Concat(meshA, meshB, hardening, gatewayParts, kubernetes)
}

// Suites are named sets of scenarios. The standard one takes about five minutes on two quiet cores; full contains all.
var Suites = map[string][]string{
	"world-a": {"join", "virtualservice", "virtualservices-50", "endpoint", "reconnect"},
	"world-b": {"memory", "storm", "endpoint-10000", "route-10000",
		"rate", "slow", "neighbour", "kill", "scale", "roots", "fleet-20000", "report-20000", "commands-20000", "restart-20000"},
	"standard": {"join", "virtualservice", "virtualservices-50", "endpoint", "reconnect", "memory", "storm", "churn", "roots"},
	"gateways": namesOf(gatewayParts), // two of them need a real Envoy
	"kube":     namesOf(kubernetes),
	// scenarios of a cluster are excluded: they need the programs of make kube-tools
	"full": namesOf(slices.Concat(meshA, meshB, hardening)),
}

// Find returns scenarios by the names of scenarios and suites. The error names an unknown name and the known ones.
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

// Names returns the names of all scenarios.
func Names() []string { return namesOf(All()) }

func namesOf(all []Scenario) []string {
	var names []string
	for _, s := range all {
		names = append(names, s.Name)
	}
	return names
}
