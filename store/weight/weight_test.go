package weight

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/store/model"
)

func record(t testing.TB, kind model.Kind, name string, body proto.Message) model.Record {
	t.Helper()
	r, err := model.New(model.Key{Kind: kind, Namespace: "shop", Name: name}, 0, body)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func serviceOf(t testing.TB, name string, hosts, ports int, exportTo ...string) model.Record {
	s := &model.ServiceSpec{ExportTo: exportTo}
	for i := range hosts {
		s.Hosts = append(s.Hosts, fmt.Sprintf("h%d.%s.example.com", i, name))
	}
	for i := range ports {
		s.Ports = append(s.Ports, &model.ServicePort{Number: uint32(8000 + i), Name: fmt.Sprint("p", i)})
	}
	return record(t, model.KindServiceEntry, name, s)
}

func machineOf(t testing.TB, name string) model.Record {
	at := &model.Endpoint{Labels: map[string]string{"app": "vm", "on": name}}
	return record(t, model.KindWorkload, model.WorkloadEntryPrefix+name, &model.WorkloadSpec{
		Source: model.WorkloadSource_WORKLOAD_SOURCE_WORKLOAD_ENTRY, Endpoint: at})
}

// selectorOf is a ServiceEntry that selects the machines.
func selectorOf(t testing.TB, name string, hosts, ports int) model.Record {
	s := serviceOf(t, name, hosts, ports, "*").(*model.Service).Spec
	s.Selector = map[string]string{"app": "vm", "tier": "db"}
	return record(t, model.KindServiceEntry, name, s)
}

// The endpoints that ServiceEntries select weigh hosts by ports by machines, whatever comes first. They count once, and
// Pods do not count.
func TestOfSelected(t *testing.T) {
	var entries, machines, pods []model.Record
	for i := range 10 {
		entries = append(entries, selectorOf(t, fmt.Sprint("e", i), 8, 2))
	}
	for i := range 1000 {
		machines = append(machines, machineOf(t, fmt.Sprint("m", i)))
		at := &model.Endpoint{Labels: map[string]string{"app": "vm"}}
		pods = append(pods, record(t, model.KindWorkload, fmt.Sprint("p", i), &model.WorkloadSpec{
			Source: model.WorkloadSource_WORKLOAD_SOURCE_POD, Endpoint: at}))
	}
	const clusters, endpoints = 10 * 8 * 2 * cluster, 10 * 8 * 2 * 1000 / perEndpoint
	for what, test := range map[string]struct {
		records []model.Record
		want    int
	}{
		"machines first": {slices.Concat(machines, entries), clusters + endpoints},
		"entries first":  {slices.Concat(entries, machines), clusters + endpoints},
		"in between":     {slices.Concat(machines[:500], entries, machines[500:]), clusters + endpoints},
		"Pods":           {slices.Concat(pods, entries), clusters},
		"no machines":    {entries, clusters},
	} {
		x, sum, changes := NewIndex(), 0, 0
		x.Changed = func(r Read) {
			if r.label.key == "app" {
				changes++
			}
		}
		for _, r := range test.records {
			sum += Of(r, x).Exported
			x.Replace(nil, []model.Record{r})
		}
		if sum < test.want || sum > test.want*5/4+100 {
			t.Errorf("%s: %d KiB, want about %d", what, sum, test.want)
		}
		if changes > 60 {
			t.Errorf("%s: %d times what waits is to be weighed again", what, changes)
		}
	}
}

// asService is a Kubernetes Service that selects the machines of a ServiceEntry.
func asService(t testing.TB, entry model.Record) model.Record {
	return record(t, model.KindService, entry.Meta().Key.Name, entry.(*model.Service).Spec)
}

// The WorkloadEntries that Kubernetes Services select weigh as those of ServiceEntries do, whatever comes first. They
// count once, also after the Service has gone and come back.
// Promise: security-tenants.md#stop-or-slow-the-control-plane
func TestOfSelectedByServices(t *testing.T) {
	var services, machines []model.Record
	for i := range 40 {
		services = append(services, asService(t, selectorOf(t, fmt.Sprint("s", i), 1, 4)))
	}
	for i := range 1000 {
		machines = append(machines, machineOf(t, fmt.Sprint("m", i)))
	}
	const want = 40*4*cluster + 40*4*1000/perEndpoint
	for what, records := range map[string][]model.Record{
		"machines first": slices.Concat(machines, services),
		"services first": slices.Concat(services, machines),
		"in between":     slices.Concat(machines[:500], services, machines[500:]),
	} {
		x, sum := NewIndex(), 0
		for _, r := range records {
			sum += Of(r, x).Exported
			x.Replace(nil, []model.Record{r})
		}
		if sum < want*99/100 || sum > want*5/4+100 { // each Service's parts of a KiB do not count
			t.Errorf("%s: %d KiB, want about %d", what, sum, want)
		}
		heavy := Of(services[0], x).Exported
		x.Replace(services[:1], nil)
		if got := Of(services[0], x).Exported; got != heavy {
			t.Errorf("%s: a Service that comes back weighs %d KiB, and weighed %d", what, got, heavy)
		}
		for _, r := range records {
			x.Replace([]model.Record{r}, nil)
		}
		if n := len(x.selectors) + len(x.choices) + len(x.hosts) + len(x.endpoints) + len(x.points) + len(x.machines); n > 0 {
			t.Errorf("%s: %d entries are left of nothing", what, n)
		}
	}
}

// Each subset of a host has its endpoints, those that a ServiceEntry states and those that it selects, whatever comes
// first. They count once.
func TestOfSubsetsOfEndpoints(t *testing.T) {
	stated := &model.EndpointsSpec{Hosts: []string{"h0.e.example.com"}, Ports: []*model.EndpointPort{{}}}
	for range 1000 {
		stated.Endpoints = append(stated.Endpoints, &model.Endpoint{})
	}
	entry, endpoints := serviceOf(t, "e", 1, 1, "*"), record(t, model.KindEndpoints, model.ServiceEntryPrefix+"e", stated)
	more := record(t, model.KindEndpoints, model.ServiceEntryPrefix+"e:1", stated)
	selector := selectorOf(t, "e", 1, 1)
	service := asService(t, selector)
	var machines []model.Record
	for i := range 1000 {
		machines = append(machines, machineOf(t, fmt.Sprint("m", i)))
	}
	rule := record(t, model.KindDestinationRule, "d", &networkingv1.DestinationRule{Host: "h0.e.example.com", Subsets: make20()})
	wide := record(t, model.KindDestinationRule, "d", &networkingv1.DestinationRule{Host: "*.example.com", Subsets: make20()})
	const each = (1 + 20) * 1000 / perEndpoint
	for what, test := range map[string]struct {
		records []model.Record
		want    int
	}{
		"stated, then the rule":   {[]model.Record{entry, endpoints, rule}, each},
		"a wildcard":              {[]model.Record{entry, endpoints, wide}, each},
		"the rule first":          {[]model.Record{rule, entry, endpoints}, each},
		"a wildcard first":        {[]model.Record{wide, entry, endpoints}, each},
		"in two parts":            {[]model.Record{entry, endpoints, rule, more}, 2 * each},
		"selected, then the rule": {append(slices.Clone(machines), selector, rule), each},
		"the rule between":        {append(slices.Clone(machines), rule, selector), each},
		"the rule last":           {append(append([]model.Record{selector}, machines...), rule), each},
		"a wildcard last":         {append(append([]model.Record{selector}, machines...), wide), each},
		"the machines after":      {append([]model.Record{selector, rule}, machines...), each},
		"after a wildcard":        {append([]model.Record{selector, wide}, machines...), each},
		"the machines last":       {append([]model.Record{rule, selector}, machines...), each},
		"selected by a Service":   {append(slices.Clone(machines), service, rule), each},
		"a Service's after":       {append([]model.Record{service, rule}, machines...), each},
		"a wildcard's after":      {append([]model.Record{service, wide}, machines...), each},
	} {
		x, sum := NewIndex(), 0
		for _, r := range test.records {
			sum += Of(r, x).Exported
			x.Replace(nil, []model.Record{r})
		}
		if sum < test.want || sum > test.want*5/4+500 {
			t.Errorf("%s: %d KiB, want about %d", what, sum, test.want)
		}
	}
}

// The weight of endpoints in a ServiceEntry depends on its namespace's other endpoints of the host, and reads them.
func TestEndpointsOfOthersAreRead(t *testing.T) {
	stated := &model.EndpointsSpec{Hosts: []string{"h0.e.example.com"}, Ports: []*model.EndpointPort{{}}}
	for range 1000 {
		stated.Endpoints = append(stated.Endpoints, &model.Endpoint{})
	}
	endpoints := record(t, model.KindEndpoints, model.ServiceEntryPrefix+"e", stated)
	other := record(t, model.KindEndpoints, model.ServiceEntryPrefix+"other", stated)
	rule := record(t, model.KindDestinationRule, "d", &networkingv1.DestinationRule{Host: "h0.e.example.com", Subsets: make20()})
	x, reads, again := NewIndex(), map[Read]bool{}, false
	x.Replace(nil, []model.Record{endpoints, rule})
	before := x.Weigh(Measure(endpoints), func(r Read) { reads[r] = true })
	x.Changed = func(r Read) { again = again || reads[r] }
	x.Replace(nil, []model.Record{other})
	if after := Of(endpoints, x); !again || after.Exported <= before.Exported {
		t.Errorf("the endpoints weigh %v, then %v; weighed again: %v", before, after, again)
	}
}

func routesFor(n int, hosts ...string) *networkingv1.VirtualService {
	vs := &networkingv1.VirtualService{Hosts: hosts}
	for range n {
		vs.Http = append(vs.Http, &networkingv1.HTTPRoute{Match: make([]*networkingv1.HTTPMatchRequest, 2)})
		for i := range vs.Http[0].Match {
			vs.Http[len(vs.Http)-1].Match[i] = &networkingv1.HTTPMatchRequest{}
		}
	}
	return vs
}

// delegating adds routes that name delegates.
func delegating(vs *networkingv1.VirtualService, names ...string) *networkingv1.VirtualService {
	for _, name := range names {
		vs.Http = append(vs.Http, &networkingv1.HTTPRoute{Delegate: &networkingv1.Delegate{Name: name}})
	}
	return vs
}

func filter(context networkingv1.EnvoyFilter_PatchContext, to networkingv1.EnvoyFilter_ApplyTo, service string, size int) *networkingv1.EnvoyFilter {
	value, _ := structpb.NewStruct(map[string]any{"name": string(make([]byte, size))})
	match := &networkingv1.EnvoyFilter_EnvoyConfigObjectMatch{Context: context}
	if service != "" {
		match.ObjectTypes = &networkingv1.EnvoyFilter_EnvoyConfigObjectMatch_Cluster{Cluster: &networkingv1.EnvoyFilter_ClusterMatch{Service: service}}
	}
	return &networkingv1.EnvoyFilter{ConfigPatches: []*networkingv1.EnvoyFilter_EnvoyConfigObjectPatch{{ApplyTo: to, Match: match,
		Patch: &networkingv1.EnvoyFilter_Patch{Operation: networkingv1.EnvoyFilter_Patch_MERGE, Value: value}}}}
}

// The weight of a record is the number of resources that it causes, at the proxies that receive them.
// Promise: security-tenants.md#stop-or-slow-the-control-plane
func TestOf(t *testing.T) {
	mesh := NewIndex()
	mesh.Replace(nil, []model.Record{serviceOf(t, "a", 10, 100, "*")}) // 1,000 clusters
	outbound, inbound := networkingv1.EnvoyFilter_SIDECAR_OUTBOUND, networkingv1.EnvoyFilter_SIDECAR_INBOUND
	endpoints := &model.EndpointsSpec{Hosts: make([]string, 10), Ports: make([]*model.EndpointPort, 10), Endpoints: make([]*model.Endpoint, 80)}
	for i := range endpoints.Ports {
		endpoints.Ports[i] = &model.EndpointPort{}
	}
	for i := range endpoints.Endpoints {
		endpoints.Endpoints[i] = &model.Endpoint{}
	}
	for what, test := range map[string]struct {
		record    model.Record
		near, own int // KiB: near within a tenth; own is the part for its own proxies only
	}{
		"hosts by ports":                  {serviceOf(t, "b", 256, 5, "*"), 256 * 5 * cluster, 0},
		"of its own namespace":            {serviceOf(t, "b", 256, 5, "shop"), 0, 256 * 5 * cluster},
		"of nobody":                       {serviceOf(t, "b", 256, 5), 0, 256 * 5 * cluster},
		"of one other":                    {serviceOf(t, "b", 256, 5, "shop", "pay"), 256 * 5 * cluster, 0},
		"subsets":                         {record(t, model.KindDestinationRule, "d", &networkingv1.DestinationRule{Host: "h1.a.example.com", Subsets: make20()}), 100 * 20 * cluster, 0},
		"subsets of a wildcard":           {record(t, model.KindDestinationRule, "d", &networkingv1.DestinationRule{Host: "*.a.example.com", Subsets: make20()}), 1000 * 20 * cluster, 0},
		"of a narrow one":                 {record(t, model.KindDestinationRule, "d", &networkingv1.DestinationRule{Host: "*-x.a.example.com", Subsets: make20()}), 1000 * 20 * cluster, 0},
		"of another domain":               {record(t, model.KindDestinationRule, "d", &networkingv1.DestinationRule{Host: "*.example.org", Subsets: make20()}), 20 * cluster, 0},
		"subsets of nothing":              {record(t, model.KindDestinationRule, "d", &networkingv1.DestinationRule{Host: "none", Subsets: make20(), ExportTo: []string{"."}}), 0, 20 * cluster},
		"routes by matches":               {record(t, model.KindVirtualService, "v", routesFor(50, "h1.a.example.com", "none")), 101 * 100 * route, 0},
		"a patch of all clusters":         {record(t, model.KindEnvoyFilter, "f", filter(outbound, networkingv1.EnvoyFilter_CLUSTER, "", 20_000)), 0, 1000 * 19},
		"of one service":                  {record(t, model.KindEnvoyFilter, "f", filter(outbound, networkingv1.EnvoyFilter_CLUSTER, "s", 20_000)), 0, 20},
		"of the inbound side":             {record(t, model.KindEnvoyFilter, "f", filter(inbound, networkingv1.EnvoyFilter_HTTP_FILTER, "", 20_000)), 0, 20},
		"a Sidecar":                       {record(t, model.KindSidecar, "s", &networkingv1.Sidecar{}), 0, scope},
		"endpoints that are stated":       {record(t, model.KindEndpoints, model.ServiceEntryPrefix+"b", endpoints), 10 * 10 * 80 / perEndpoint, 0},
		"endpoints of Pods":               {record(t, model.KindEndpoints, "b", endpoints), 0, 0},
		"a ServiceAccount is told nobody": {record(t, model.KindServiceAccount, "a", &model.ServiceAccountSpec{}), 0, 0},
	} {
		got := Of(test.record, mesh)
		about := func(got, want int) bool { return got >= want && got <= want+want/10+10 }
		if !about(got.Exported, test.near) || !about(got.Own, test.own) {
			t.Errorf("%s: %+v, want about {%d %d}", what, got, test.near, test.own)
		}
	}
}

// Shared resources, and hosts of other namespaces, do not count for each cluster of a large mesh: 15,000 services, 500
// of them of the namespace.
func TestOfInLargeMesh(t *testing.T) {
	mesh := NewIndex()
	for i := range 15_000 {
		namespace, port := "other", &model.ServicePort{Number: uint32(8000 + i%10), Protocol: model.Protocol_PROTOCOL_HTTP}
		if i < 500 {
			namespace = "shop"
		}
		if i%1000 == 0 {
			port.Protocol = model.Protocol_PROTOCOL_TCP
		}
		s := &model.ServiceSpec{Hosts: []string{fmt.Sprintf("s%d.%s.svc.cluster.local", i, namespace)}, Addresses: []string{"10.0.0.1"},
			Ports: []*model.ServicePort{port}, ExportTo: []string{"*"}}
		r, err := model.New(model.Key{Kind: model.KindService, Namespace: namespace, Name: fmt.Sprint("s", i)}, 0, s)
		if err != nil {
			t.Fatal(err)
		}
		mesh.Replace(nil, []model.Record{r})
	}
	any, outbound := networkingv1.EnvoyFilter_ANY, networkingv1.EnvoyFilter_SIDECAR_OUTBOUND
	ruleFor := func(host string, exportTo ...string) model.Record {
		return record(t, model.KindDestinationRule, "d", &networkingv1.DestinationRule{Host: host, Subsets: make20()[:2], ExportTo: exportTo})
	}
	patch := func(context networkingv1.EnvoyFilter_PatchContext, to networkingv1.EnvoyFilter_ApplyTo) model.Record {
		return record(t, model.KindEnvoyFilter, "f", filter(context, to, "", 4000))
	}
	const each = 1 + 2*subset
	for what, test := range map[string]struct {
		record    model.Record
		near, own int // KiB
	}{
		"a filter of every HTTP port":        {patch(any, networkingv1.EnvoyFilter_HTTP_FILTER), 0, 10 * 4},
		"of every listener":                  {patch(any, networkingv1.EnvoyFilter_NETWORK_FILTER), 0, 25 * 4},
		"of every route configuration":       {patch(outbound, networkingv1.EnvoyFilter_ROUTE_CONFIGURATION), 0, 10 * 4},
		"of every cluster":                   {patch(any, networkingv1.EnvoyFilter_CLUSTER), 0, 15_000 * 4},
		"of every virtual host":              {patch(any, networkingv1.EnvoyFilter_VIRTUAL_HOST), 0, 15_000 * 4},
		"a rule for all hosts":               {ruleFor("*.local"), 500 * each, 14_500 * each},
		"of the namespace":                   {ruleFor("*.shop.svc.cluster.local"), 500 * each, 0},
		"of another namespace":               {ruleFor("*.other.svc.cluster.local"), 0, 14_500 * each},
		"for another namespace's host":       {ruleFor("s501.other.svc.cluster.local"), 0, each},
		"for all hosts, for its own proxies": {ruleFor("*.local", "."), 0, 15_000 * each},
	} {
		got := Of(test.record, mesh)
		about := func(got, want int) bool { return got >= want*9/10 && got <= want+want/5+10 }
		if !about(got.Exported, test.near) || !about(got.Own, test.own) {
			t.Errorf("%s: %+v, want about {%d %d}", what, got, test.near, test.own)
		}
	}
}

func make20() (all []*networkingv1.Subset) {
	for i := range 20 {
		all = append(all, &networkingv1.Subset{Name: fmt.Sprint("v", i)})
	}
	return all
}

// The index is empty again after everything was removed, and agrees with a new one.
func TestIndexFollows(t *testing.T) {
	for seed := range uint64(10) {
		r := rand.New(rand.NewPCG(seed, 1))
		x, have := NewIndex(), map[string]model.Record{}
		for range 200 {
			name := fmt.Sprint("r", r.IntN(12))
			var now model.Record
			switch r.IntN(8) {
			case 6:
				now = machineOf(t, name)
			case 7:
				now = selectorOf(t, name, r.IntN(3), r.IntN(4))
			case 0:
				now = serviceOf(t, name, r.IntN(3), r.IntN(4), "*")
			case 1:
				now = record(t, model.KindDestinationRule, name, &networkingv1.DestinationRule{Host: []string{"*", "*.example.com", "h0." + name + ".example.com"}[r.IntN(3)], Subsets: make20()})
			case 2:
				now = record(t, model.KindVirtualService, name, routesFor(r.IntN(3), "h0.r1.example.com", "*.r2.example.com"))
			case 3:
				now = record(t, model.KindVirtualService, name, delegating(routesFor(r.IntN(3), "h0.r1.example.com"), "r1", "r2", "r1"))
			case 4:
				now = record(t, model.KindVirtualService, name, routesFor(r.IntN(3)))
			}
			var old, next []model.Record
			if have[name] != nil {
				old = append(old, have[name])
			}
			if delete(have, name); now != nil {
				have[name], next = now, append(next, now)
			}
			x.Replace(old, next)
		}
		fresh := NewIndex()
		for _, one := range have {
			fresh.Replace(nil, []model.Record{one})
		}
		if !reflect.DeepEqual(x.clusters, fresh.clusters) || x.copies() != fresh.copies() || !reflect.DeepEqual(x.delegates, fresh.delegates) ||
			!reflect.DeepEqual(x.machines, fresh.machines) {
			t.Errorf("seed %d: %+v, want %+v", seed, x, fresh)
		}
		for name, one := range have {
			x.Replace([]model.Record{one}, nil)
			delete(have, name)
		}
		if n := len(x.clusters) + len(x.http) + x.opaque + x.sniffed + len(x.rules) + len(x.applied) + len(x.delegates) + len(x.roots) +
			len(x.machines) + len(x.selectors) + len(x.endpoints) + len(x.points); n != 0 {
			t.Errorf("seed %d: %d entries are left of nothing: %+v", seed, n, x)
		}
	}
}

// A rule that orders endpoints by labels of clients weighs as if 32 subsets contained the endpoints.
func TestWeightOfLabelsOfClients(t *testing.T) {
	by := func(subsets int, priority ...string) int {
		balance := &networkingv1.LoadBalancerSettings{LocalityLbSetting: &networkingv1.LocalityLoadBalancerSetting{FailoverPriority: priority}}
		d := &networkingv1.DestinationRule{Host: "a.example", TrafficPolicy: &networkingv1.TrafficPolicy{LoadBalancer: balance}}
		for i := range subsets {
			d.Subsets = append(d.Subsets, &networkingv1.Subset{Name: fmt.Sprint(i)})
		}
		return Measure(record(t, model.KindDestinationRule, "r", d)).subsets
	}
	if a, b, c := by(0, "app"), by(0, "app=x"), by(3, "app=x", "app"); a != 32 || b != 0 || c != 99 {
		t.Errorf("%d, %d and %d", a, b, c)
	}
}
