package plan

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// entryAt is a ServiceEntry for evil.test, port 80, with endpoints at a port.
func entryAt(t testing.TB, resolution string, port int, addresses ...string) []model.Record {
	endpoints := ""
	for _, a := range addresses {
		endpoints += fmt.Sprintf("- {address: '%s', namespace: evil, health: HEALTH_READY}\n", a)
	}
	return []model.Record{
		rec(t, model.KindServiceEntry, "evil/e", "{hosts: [evil.test], exportTo: ['*'], external: true, resolution: RESOLUTION_"+resolution+
			", ports: [{name: http, number: 80, protocol: PROTOCOL_HTTP}]}"),
		rec(t, model.KindEndpoints, "evil/"+model.ServiceEntryPrefix+"e",
			fmt.Sprintf("hosts: [evil.test]\nports: [{name: http, number: %d, service: 80}]\nendpoints:\n%s", port, endpoints)),
	}
}

// destinations returns the addresses and ports of a cluster, whether they are in the cluster or in its assignment.
func destinations(t testing.TB, h *Handle, name string) string {
	t.Helper()
	all := clusterOf(t, h.Set(), name).GetLoadAssignment().GetEndpoints()
	if h.Set().Types[xds.Endpoint].Get(name) != nil {
		all = assignment(t, h.Set(), name).GetEndpoints()
	}
	var out []string
	for _, l := range all {
		for _, e := range l.GetLbEndpoints() {
			at := e.GetEndpoint().GetAddress()
			if at.GetPipe() != nil {
				out = append(out, at.GetPipe().GetPath())
				continue
			}
			out = append(out, fmt.Sprintf("%s:%d", at.GetSocketAddress().GetAddress(), at.GetSocketAddress().GetPortValue()))
		}
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

func problemTexts(p *Planner) string {
	var all []string
	for _, one := range p.Problems() {
		all = append(all, one.Error())
	}
	return strings.Join(all, "\n")
}

// Endpoints that lead to a gateway's own Pod or Node are in no cluster of the gateway, whatever object states them, and
// the object has a problem. Sidecars have them, and with NAVARCH_GATEWAY_LOCAL_DESTINATIONS gateways too.
// Promise: security-gateways.md#publish-the-gateway-itself
func TestLocalDestinations(t *testing.T) {
	const entry, cluster = "ServiceEntry evil/e: spec.endpoints: host evil.test: ", "outbound|80||evil.test"
	service := "{hosts: [evil.evil.svc.cluster.local], exportTo: ['*'], %s, ports: [{name: http, number: 80, protocol: PROTOCOL_HTTP}]}"
	of := func(port int, address string) string {
		return fmt.Sprintf("{hosts: [evil.evil.svc.cluster.local], ports: [{name: http, number: %d, service: 80}], endpoints: [{address: '%s', namespace: evil, health: HEALTH_READY}]}", port, address)
	}
	for name, c := range map[string]struct {
		records                 []model.Record
		cluster, gateway, other string // the destinations of gateways, and of others
		problem                 string
	}{
		"a ServiceEntry": {entryAt(t, "EDS", 15000, "127.0.0.1", "10.9.0.1"), cluster, "10.9.0.1:15000", "10.9.0.1:15000 127.0.0.1:15000",
			entry + "gateways do not get the endpoint 127.0.0.1, port 15000: a loopback address"},
		"any port of loopback":  {entryAt(t, "EDS", 8080, "::1", "::ffff:127.0.0.1"), cluster, "", "::1:8080 ::ffff:127.0.0.1:8080", "(and 1 more)"},
		"the metadata service":  {entryAt(t, "EDS", 80, "169.254.169.254"), cluster, "", "169.254.169.254:80", entry + "gateways do not get the endpoint 169.254.169.254"},
		"a socket of the agent": {entryAt(t, "EDS", 80, "unix:///var/run/secrets/workload-spiffe-uds/socket"), cluster, "", "/var/run/secrets/workload-spiffe-uds/socket", entry},
		"an address, by DNS":    {entryAt(t, "DNS", 15000, "127.0.0.1", "ok.test"), cluster, "ok.test:15000", "127.0.0.1:15000 ok.test:15000", entry},
		"a name, by DNS":        {entryAt(t, "DNS", 15000, "localhost"), cluster, "", "localhost:15000", entry},
		"a number, by DNS":      {entryAt(t, "DNS_ROUND_ROBIN", 15000, "127.1"), cluster, "", "127.1:15000", entry},
		"the Pod itself":        {entryAt(t, "EDS", 15020, "10.1.0.1", "10.1.0.3"), cluster, "10.1.0.3:15020", "10.1.0.1:15020 10.1.0.3:15020", entry + "gateways do not get the endpoint 10.1.0.1, port 15020: the address is of the gateway's own Pods"},
		"another Pod of it":     {entryAt(t, "EDS", 15090, "10.1.0.2"), cluster, "", "10.1.0.2:15090", entry},
		"its Service":           {entryAt(t, "EDS", 15021, "10.96.0.1"), cluster, "", "10.96.0.1:15021", entry},
		"the Pod, by DNS":       {entryAt(t, "DNS", 15020, "::ffff:10.1.0.1"), cluster, "", "::ffff:10.1.0.1:15020", entry},
		"the Pod, by its name": {entryAt(t, "DNS", 15000, "10-1-0-2.edge.pod.cluster.local", "10-1-0-9.edge.pod.cluster.local"), cluster,
			"10-1-0-9.edge.pod.cluster.local:15000", "10-1-0-2.edge.pod.cluster.local:15000 10-1-0-9.edge.pod.cluster.local:15000", entry},
		"the Pod, by NAT64":          {entryAt(t, "EDS", 15000, "64:ff9b:1::a01:1"), cluster, "", "64:ff9b:1::a01:1:15000", entry},
		"its Service, by name":       {entryAt(t, "DNS", 15000, "gw.edge.svc.cluster.local"), cluster, "", "gw.edge.svc.cluster.local:15000", entry},
		"its Service, by short name": {entryAt(t, "DNS", 15000, "gw.edge"), cluster, "", "gw.edge:15000", entry},
		"another Service, by name":   {entryAt(t, "DNS", 15000, "web.edge"), cluster, "web.edge:15000", "web.edge:15000", ""},
		"its Service at port 8080":   {entryAt(t, "DNS", 8080, "gw.edge"), cluster, "gw.edge:8080", "gw.edge:8080", ""},
		"a port of applications":     {entryAt(t, "EDS", 8080, "10.1.0.1"), cluster, "10.1.0.1:8080", "10.1.0.1:8080", ""},
		"an EndpointSlice": {[]model.Record{rec(t, model.KindService, "evil/evil", fmt.Sprintf(service, "external: true")), rec(t, model.KindEndpoints, "evil/evil-1", of(15000, "127.0.0.1"))},
			"outbound|80||evil.evil.svc.cluster.local", "", "127.0.0.1:15000", "Endpoints evil/evil-1: endpoints: host evil.evil.svc.cluster.local: "},
		"an ExternalName": {[]model.Record{rec(t, model.KindService, "evil/evil", fmt.Sprintf(service, "external: true, resolution: RESOLUTION_DNS, aliasFor: localhost")),
			rec(t, model.KindEndpoints, "evil/externalname:evil", of(15000, "localhost"))},
			"", "", "", "Service evil/evil: spec.externalName: gateways do not connect to host localhost: "},
		"a WorkloadEntry": {[]model.Record{rec(t, model.KindServiceEntry, "evil/e", "{hosts: [evil.test], exportTo: ['*'], selector: {app: evil}, resolution: RESOLUTION_EDS, "+
			"ports: [{name: http, number: 80, protocol: PROTOCOL_HTTP}]}"), rec(t, model.KindWorkload, "evil/"+model.WorkloadEntryPrefix+"w", "{source: WORKLOAD_SOURCE_WORKLOAD_ENTRY, endpoint: {address: 127.0.0.1, labels: {app: evil}}}"),
			rec(t, model.KindEndpoints, "evil/workloads:ServiceEntry:e", strings.ReplaceAll(of(15000, "127.0.0.1"), "evil.evil.svc.cluster.local", "evil.test"))},
			cluster, "", "127.0.0.1:15000", "Workload evil/workloadentry:w: spec.address: "},
		"the gateway's own namespace": {nil, "outbound|15021||gw.edge.svc.cluster.local", "10.1.0.1:15021 10.1.0.2:15021",
			"10.1.0.1:15021 10.1.0.2:15021", ""},
	} {
		own := []model.Record{svc(t, "edge/gw", "10.96.0.1", "status:15021:TCP"), eps(t, "edge/gw-1", "{name: status, number: 15021}", "10.1.0.1", "10.1.0.2 v1!")}
		p, _, gw := gatewayPlanner(append(own, c.records...)...)
		sidecar, allowed := p.Join(node("a", "other")), routerOf("edge", "allowed")
		allowed.Routers.Local = true
		for h, want := range map[*Handle]string{gw: c.gateway, sidecar: c.other, p.Join(allowed): c.other} {
			if c.cluster == "" { // an alias of a host that does not exist has no cluster
				if got := names(h.Set(), xds.Cluster); strings.Contains(got, "evil") {
					t.Errorf("%s: %s has clusters %s", name, h.Node.Name, got)
				}
			} else if got := destinations(t, h, c.cluster); got != want {
				t.Errorf("%s: %s has %q, want %q", name, h.Node.Name, got, want)
			}
		}
		if got := problemTexts(p); c.problem == "" && got != "" || !strings.Contains(got, c.problem) {
			t.Errorf("%s: problems\n%s\nwant %q", name, got, c.problem)
		}
	}
}

// A gateway resolves no names below localhost when clients request them: the cluster has no endpoints.
func TestNamesOfLocalhost(t *testing.T) {
	entry := func(host string) model.Record {
		return rec(t, model.KindServiceEntry, "evil/e", "{hosts: ['"+host+"'], exportTo: ['*'], external: true, resolution: RESOLUTION_DYNAMIC_DNS, "+
			"ports: [{name: http, number: 80, protocol: PROTOCOL_HTTP}]}")
	}
	for host, local := range map[string]bool{"*.localhost": true, "*.example.com": false} {
		p, _, gw := gatewayPlanner(entry(host))
		c := clusterOf(t, gw.Set(), "outbound|80||"+host)
		if (c.GetClusterType() == nil) != local || strings.Contains(problemTexts(p), "ServiceEntry evil/e: spec.hosts: gateways do not connect to host "+host+": ") != local {
			t.Errorf("%s: %v, problems %q", host, c, problemTexts(p))
		}
	}
}

// Pods of a gateway that come later, or go, decide about endpoints of other hosts at the agent's ports; the fast path
// leaves that to the plan of configuration. Without the cell of the table of effects, or the reason of the fast path,
// the oracle finds wrong assignments.
// Promise: security-gateways.md#publish-the-gateway-itself
func TestPodsOfGatewaysThatMove(t *testing.T) {
	struck, fast := affects, affects
	for _, table := range []*[model.NumKinds][]effect{&struck, &fast} {
		table[model.KindEndpoints] = slices.Clone(affects[model.KindEndpoints])
	}
	cell := slices.IndexFunc(affects[model.KindEndpoints], func(e effect) bool { return e.name == "gateways' own" })
	struck[model.KindEndpoints][cell].units = func(*change, input.Types, mirror.Edit) {}
	fast[model.KindEndpoints][cell].slow = []slowReason{}
	pods := func(addresses ...string) model.Record {
		return eps(t, "edge/gw-1", "{name: http, number: 8080}", addresses...)
	}
	for name, c := range map[string]struct {
		table *[model.NumKinds][]effect
		wrong bool
	}{"as it is": {&affects, false}, "struck": {&struck, true}, "without the reason": {&fast, true}} {
		for _, resolution := range []string{"EDS", "DNS"} {
			p := New(Settings{Snapshot: snapshot(append(entryAt(t, resolution, 15020, "10.1.0.1"),
				svc(t, "edge/gw", "10.96.0.1", "http:80:HTTP"), pods("10.1.0.7"))...)})
			p.table = c.table
			gw := p.Join(routerOf("edge", "gw"))
			for i, step := range []struct{ pod, want string }{{"10.1.0.1", ""}, {"10.1.0.7", "10.1.0.1:15020"}} {
				now := p.Snapshot().Apply(p.Snapshot().Revision()+1, []model.Record{pods(step.pod)}, nil)
				if _, rest := p.PlanEndpoints(now, false); len(rest) > 0 {
					p.Apply(mirror.Change{New: now.New, Edits: rest})
				}
				bad := p.Check(gw)
				if got := destinations(t, gw, "outbound|80||evil.test"); (len(bad) > 0) != c.wrong && i == 0 || (got != step.want) != c.wrong && i == 0 {
					t.Errorf("%s, %s: %v, destinations %q", name, resolution, bad, got)
				} else if !c.wrong && (got != step.want || len(bad) > 0) {
					t.Errorf("%s, %s, step %d: %v, destinations %q", name, resolution, i, bad, got)
				}
			}
		}
	}
}

// The fast path leaves local endpoints out too, with their problem. An edit of health, and one of a service that no
// gateway is of, does not wait for the plan of configuration.
func TestLocalDestinationsOnTheFastPath(t *testing.T) {
	p, _, gw := gatewayPlanner(append(entryAt(t, "EDS", 15020, "10.1.0.1"), svc(t, "edge/gw", "10.96.0.1", "http:80:HTTP"),
		eps(t, "edge/gw-1", "{name: http, number: 8080}", "10.1.0.1"), svc(t, "a/s0", "10.96.0.2", "http:80:HTTP"))...)
	for _, put := range []model.Record{
		eps(t, "edge/gw-1", "{name: http, number: 8080}", "10.1.0.1 v1!"),
		eps(t, "a/s0-1", "{name: http, number: 8080}", "10.1.0.9"),
		entryAt(t, "EDS", 15020, "10.1.0.1", "127.0.0.1", "10.1.0.5")[1],
	} {
		if _, rest := p.PlanEndpoints(p.Snapshot().Apply(p.Snapshot().Revision()+1, []model.Record{put}, nil), false); len(rest) > 0 {
			t.Errorf("%v waits for the plan of configuration", put.Meta().Key)
		}
	}
	if got := destinations(t, gw, "outbound|80||evil.test"); got != "10.1.0.5:15020" {
		t.Errorf("destinations %q", got)
	}
	if got := problemTexts(p); !strings.Contains(got, "(and 1 more)") {
		t.Errorf("problems %q", got)
	}
}
