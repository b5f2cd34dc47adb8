package api

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"navarch.io/navarch/cmd/internal/fleetapi"
	"navarch.io/navarch/cmd/navarchd/debug"
	"navarch.io/navarch/cmd/navarchd/debug/authz"
	"navarch.io/navarch/cmd/navarchd/removals"
	"navarch.io/navarch/push/inspect"
	"navarch.io/navarch/push/ledger"
)

const (
	configName     = "config"
	replicasName   = "replicas"
	proxyParameter = "proxy"
)

// endpoints lists the endpoints of the API, in the order of the page /api/v1/.
var endpoints = []endpoint{
	{name: "proxies", help: "Connected proxies: sums by state, version, zone, namespace and replica, and a window of the list.",
		parameters: fleetapi.ProxyParameters, tenants: true, fleet: true, part: proxiesPart, merge: merging(mergeProxies)},
	{name: "syncz", help: "Connected proxies with the nonces of each type, what they refused and what is withheld, as /debug/syncz has them.",
		parameters: []string{"name", "namespace", "limit", "continue", aloneParameter},
		tenants:    true, fleet: true, part: synczPart, merge: merging(mergeSyncz)},
	{name: "sums", help: "Sums of each replica's proxies as its record in etcd has them, with their age; no replica is asked.",
		alone: true, costly: true, part: sumsPart, merge: merging(mergeSums)},
	{name: replicasName, help: "The replicas that serve proxies, and the revision that each has planned.",
		fleet: true, part: replicaPart, merge: merging(mergeReplicas)},
	{name: "problems", help: "Problems of objects and files, also of several objects together, and of the control plane, each once.",
		parameters: append([]string{aloneParameter}, fleetapi.ProblemParameters...),
		tenants:    true, costly: true, leads: true, part: problemsPart, merge: merging(mergeProblems)},
	{name: "patches", help: "Patches of EnvoyFilters, each once, with the largest number of resources that it changes at a replica.",
		parameters: []string{"limit", "continue", aloneParameter},
		tenants:    true, costly: true, fleet: true, part: patchesPart, merge: merging(mergePatches)},
	{name: "changes", help: "The newest changes: which proxies each affected, and how many have acknowledged it.",
		parameters: fleetapi.ChangeParameters, tenants: true, fleet: true, part: changesPart, merge: merging(mergeChanges)},
	{name: "deliveries", help: "Delivery of a revision of the store (required), or of an object's newest change up to that revision; " +
		"wait=20s waits until it is delivered.",
		parameters: fleetapi.DeliveryParameters,
		tenants:    true, fleet: true, waits: waitOf, part: deliveryPart, merge: merging(mergeDeliveries)},
	{name: "stored", help: "Whether this process, if it leads, has stored a generation of an object; wait=20s waits until it has.",
		parameters: fleetapi.StoredParameters, alone: true, tenants: true, waits: waitOf, part: storedPart, merge: merging(mergeStored)},
	{name: "leader", help: "The process that leads, as this process sees it, and the time up to which it has read the cluster.",
		alone: true, paged: true, part: leaderPart, merge: merging(mergeFirst)},
	{name: "removals", help: "Removals of objects that the leader holds, and its name: every process with a store knows them.",
		alone: true, paged: true, tenants: true, part: removalsPart, merge: merging(mergeFirst)},
	{name: "report", help: "An archive for navarchctl --snapshot and for support: contents=bug-report (ten seconds), or contents=snapshot.",
		parameters: []string{contentsParameter, recordsParameter, aloneParameter},
		probes:     true, waits: reportTime, part: reportPart, merge: mergeReport},
	{name: configName, help: "Resources of one proxy, as Envoy's config_dump: config/NAME.NAMESPACE.",
		parameters: []string{"types"}, tenants: true, paged: true, part: configPart, merge: merging(mergeFirst)},
	{name: "plan", help: "Previews a change: POST the objects as YAML documents or JSON; delete=true: they are deleted; removed=N: the last " +
		"N of them are; alone=true: no " +
		"other replica is asked; bootstraps=true: with Envoy's configuration of eight groups; scope=namespace NAME, or proxy " +
		"NAME.NAMESPACE: of these proxies alone; proxies=true: with the names of all affected proxies.",
		parameters: []string{"delete", "removed", aloneParameter, bootstrapsParameter, scopeParameter, proxiesParameter},
		tenants:    true, fleet: true, within: debug.PlanBudget, body: debug.MaxPlanBody, posted: planPart, merge: merging(mergePlans)},
	{name: "explain", help: "The objects from which one resource of a proxy was made.",
		parameters: []string{proxyParameter, "resource"}, tenants: true, paged: true, part: explainPart, merge: merging(mergeFirst)},
	{name: "describe", help: "A Pod, workload, service, gateway, host or route as it is planned, with the object behind each fact.",
		parameters: describeParameters, tenants: true, costly: true, fleet: true, part: describePart, merge: merging(mergeDescribe)},
}

// endpointOf returns the endpoint with a name; nil if the name is unknown.
func endpointOf(name string) *endpoint {
	for i := range endpoints {
		if endpoints[i].name == name {
			return &endpoints[i]
		}
	}
	return nil
}

// Replica is one item of /api/v1/replicas.
type Replica struct {
	Name     string `json:"name"`              // name of the process
	Address  string `json:"address,omitempty"` // host:port that agents dial, from its record; empty: unknown
	Zone     string `json:"zone,omitempty"`
	Version  string `json:"version"`           // version of its build
	State    string `json:"state"`             // warming, ready or leaving, from its record; without a record ready
	Revision int64  `json:"revision"`          // revision of the store that it serves; 0: it serves no proxies, or has not read the store
	Planned  int64  `json:"planned,omitempty"` // revision up to which its proxies are notified; 0: no plan, or no answer
	Proxies  int    `json:"proxies"`           // number of connected streams; without an answer, the number in its record
	Answered bool   `json:"answered"`          // false: the fields come from its record in etcd
}

func replicaPart(a *API, _ context.Context, _ authz.Caller, _ url.Values) (any, error) {
	r := Replica{Name: a.Self, Zone: a.Zone, Version: a.Version, State: "ready", Answered: true}
	if p := a.Proxies; p != nil {
		r.Proxies = p.Connected()
		r.Revision, r.Planned = p.Planned()
	}
	return r, nil
}

// mergeReplicas lists the replicas that answered, and the replicas that only have a record in etcd, sorted by name.
func mergeReplicas(a *API, _ url.Values, parts []fleetapi.From[Replica], _ int) (answer fleetapi.Answer[Replica], err error) {
	for _, f := range parts {
		answer.Items = append(answer.Items, f.Part)
	}
	for _, m := range a.members() {
		at := slices.IndexFunc(answer.Items, func(r Replica) bool { return r.Name == m.Name })
		if at < 0 {
			at = len(answer.Items)
			answer.Items = append(answer.Items, Replica{Name: m.Name, Version: m.Version, Revision: m.Revision, Proxies: m.Load.Streams()})
		}
		r := &answer.Items[at]
		r.Address, r.Zone, r.State = m.Address, m.Zone, m.State.String()
	}
	slices.SortFunc(answer.Items, func(a, b Replica) int { return cmp.Compare(a.Name, b.Name) })
	return answer, nil
}

func problemsPart(a *API, _ context.Context, who authz.Caller, _ url.Values) (any, error) {
	if err := a.lacks("problems"); err != nil {
		return nil, err
	}
	return a.Pages.Problems(who.Sees), nil
}

// mergeProblems lists each selected problem once, with the number of replicas that report the problem.
func mergeProblems(_ *API, q url.Values, parts []fleetapi.From[[]fleetapi.Problem], _ int,
) (a fleetapi.Answer[fleetapi.Problem], err error) {
	s, err := fleetapi.ParseProblemSelection(q)
	if err != nil {
		return a, err
	}
	return s.MergeProblems(parts), nil
}

func patchesPart(a *API, _ context.Context, who authz.Caller, _ url.Values) (any, error) {
	if a.Proxies == nil { // an empty list would count as the answer of a replica
		return nil, statusError{http.StatusNotFound, fleetapi.ServesNone + ": ask one with role xds"}
	}
	if err := a.lacks("patches"); err != nil {
		return nil, err
	}
	return a.Pages.Patches(who.Sees), nil
}

func mergePatches(_ *API, q url.Values, parts []fleetapi.From[[]inspect.Patch], _ int) (a fleetapi.Answer[inspect.Patch], err error) {
	w, err := fleetapi.ParseWindow(q)
	if err != nil {
		return a, err
	}
	return fleetapi.MergePatches(w, parts), nil
}

// lacks returns an error if a saved report does not have a list of this process.
func (a *API) lacks(page string) error {
	if a.Lacks == nil {
		return nil
	}
	if err := a.Lacks(page); err != nil {
		return statusError{http.StatusServiceUnavailable, err.Error()}
	}
	return nil
}

func changesPart(a *API, _ context.Context, who authz.Caller, _ url.Values) (any, error) {
	if a.Changes == nil {
		return []ledger.Report{}, nil
	}
	return a.Changes(sees(who), who.Sees == nil), nil
}

func mergeChanges(_ *API, q url.Values, parts []fleetapi.From[[]ledger.Report], _ int) (a fleetapi.Answer[fleetapi.Change], err error) {
	w, err := fleetapi.ParseWindow(q)
	if err != nil {
		return a, err
	}
	lane := q.Get("lane")
	if lane != "" && lane != ledger.Config.String() && lane != ledger.Endpoints.String() {
		return a, fmt.Errorf("lane=%.20q: want %s or %s", lane, ledger.Config, ledger.Endpoints)
	}
	return fleetapi.MergeChanges(w, lane, fleetapi.Objects(q), parts), nil
}

func leaderPart(a *API, ctx context.Context, who authz.Caller, _ url.Values) (any, error) {
	return a.page(ctx, who, "/debug/leader", nil)
}

func removalsPart(a *API, ctx context.Context, who authz.Caller, _ url.Values) (any, error) {
	return a.page(ctx, who, removals.Path, nil)
}

// ofProxy returns a page of /debug about one proxy as a part. Errors: the proxy is missing, or those of page.
func (a *API) ofProxy(ctx context.Context, who authz.Caller, path string, q url.Values) (any, error) {
	if q.Get("proxyID") == "" {
		return nil, fmt.Errorf("%s: want NAME.NAMESPACE or the node's id", proxyParameter)
	}
	return a.page(ctx, who, path, q)
}

// page returns a page of /debug as a part. A failure has the page's HTTP status.
func (a *API) page(ctx context.Context, who authz.Caller, path string, q url.Values) (any, error) {
	code, body := a.Pages.Render(ctx, who, path, q)
	if code != http.StatusOK {
		return nil, statusError{code, strings.TrimSpace(string(body))}
	}
	return json.RawMessage(body), nil
}

func configPart(a *API, ctx context.Context, who authz.Caller, q url.Values) (any, error) {
	page := url.Values{"proxyID": {q.Get(proxyParameter)}}
	if types := q.Get("types"); types != "" {
		page.Set("types", types)
	}
	return a.ofProxy(ctx, who, "/debug/config_dump", page)
}

func explainPart(a *API, ctx context.Context, who authz.Caller, q url.Values) (any, error) {
	return a.ofProxy(ctx, who, "/debug/explain", url.Values{"proxyID": {q.Get(proxyParameter)}, "resource": {q.Get("resource")}})
}

// mergeFirst returns the first part. Only replicas to which the proxy is connected send a part.
func mergeFirst(_ *API, _ url.Values, parts []fleetapi.From[json.RawMessage], _ int) (answer fleetapi.Answer[json.RawMessage], err error) {
	for _, f := range parts[:min(len(parts), 1)] {
		answer.Items = append(answer.Items, f.Part)
	}
	return answer, nil
}
