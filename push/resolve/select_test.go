package resolve

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"sigs.k8s.io/yaml"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/origin"
)

// workload returns a Pod with this endpoint in YAML, or a WorkloadEntry if the name is that of one.
func workload(t testing.TB, name, endpoint string) model.Record {
	t.Helper()
	namespace, short, _ := strings.Cut(name, "/")
	return record(t, model.Key{Kind: model.KindWorkload, Namespace: namespace, Name: short}, "endpoint: {"+endpoint+"}")
}

func TestSelectedWorkloads(t *testing.T) {
	workloads := []model.Record{
		workload(t, "a/pod", "address: 10.1.0.2, labels: {app: x, v: w1}"),
		workload(t, "a/sick", "address: 10.1.0.3, labels: {app: x}, health: HEALTH_NOT_READY"),
		workload(t, "a/going", "address: 10.1.0.4, labels: {app: x}, health: HEALTH_DRAINING"),
		workload(t, "a/other", "address: 10.1.0.5, labels: {app: z}"),
		workload(t, "b/pod", "address: 10.1.0.6, labels: {app: x}"),
		workload(t, "a/workloadentry:vm", "address: 10.1.0.1, labels: {app: x}, ports: {admin: 91}"),
		workload(t, "a/workloadentry:named", "address: vm.test, labels: {app: x}"),
	}
	const ports = "ports: [{name: http, number: 80, targetNumber: 8080}, {name: tcp, number: 90}, {name: adm, number: 91, targetName: admin}]"
	const (
		pod   = "{address: 10.1.0.2, labels: {app: x, v: w1}}"
		vm    = "{address: 10.1.0.1, labels: {app: x}, ports: {admin: 91, adm: 91}}"
		named = "{address: vm.test, labels: {app: x}}"
	)
	leftOut := "WorkloadEntry a/named is left out"
	for name, c := range map[string]struct {
		kind     model.Kind
		spec     string
		want     string // addresses of endpoints; empty if there must be no record
		problems int
	}{
		"a ServiceEntry":       {model.KindServiceEntry, "selector: {app: x}", vm + ", " + pod, 1},
		"more labels":          {model.KindServiceEntry, "selector: {app: x, v: w1}", pod, 0},
		"names are resolved":   {model.KindServiceEntry, "selector: {app: x}, resolution: RESOLUTION_DNS", vm + ", " + pod + ", " + named, 0},
		"a Kubernetes Service": {model.KindService, "selector: {app: x}", vm, 1},
		"nothing":              {model.KindServiceEntry, "selector: {app: none}", "", 0},
		"no selector":          {model.KindServiceEntry, "external: true", "", 0},
		"where it was sent":    {model.KindServiceEntry, "selector: {app: x}, resolution: RESOLUTION_NONE", "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			key := model.Key{Kind: c.kind, Namespace: "a", Name: "s"}
			s, problems := resolved(append([]model.Record{record(t, key, "{hosts: [h, i], "+ports+", "+c.spec+"}")}, workloads...)...)
			if len(problems) != c.problems || c.problems > 0 && !strings.Contains(problems[0], leftOut) {
				t.Errorf("problems %q", problems)
			}
			got, ok := s.Get(EndpointsKey(key))
			if ok != (c.want != "") {
				t.Fatalf("endpoints %v", got)
			}
			if !ok {
				return
			}
			raw, err := yaml.YAMLToJSON([]byte("{hosts: [h, i], ports: [{name: http, number: 8080, service: 80}, {name: tcp, number: 90, service: 90}, {name: adm, service: 91}], endpoints: [" + c.want + "]}"))
			if err != nil {
				t.Fatal(err)
			}
			want := &model.EndpointsSpec{}
			if err := protojson.Unmarshal(raw, want); err != nil {
				t.Fatal(err)
			}
			if !proto.Equal(got.Body(), want) {
				t.Errorf("got  %v\nwant %v", got.Body(), want)
			}
			if !slices.Contains(slices.Collect(s.ByHost(model.KindEndpoints, "i")), got) {
				t.Error("not found by its host")
			}
		})
	}
}

// A ServiceEntry of the config cluster selects the Pods and WorkloadEntries of all clusters; of those in other clusters
// only the ones with IP addresses. A Service selects WorkloadEntries of its own cluster only.
func TestSelectedOfClusters(t *testing.T) {
	of := func(o origin.Origin, name, endpoint string) model.Record {
		return record(t, model.Key{Kind: model.KindWorkload, Namespace: "a", Name: name, Origin: o}, "{endpoint: {"+endpoint+", labels: {app: x}}}")
	}
	const vm = model.WorkloadEntryPrefix + "vm"
	entry := model.Key{Kind: model.KindServiceEntry, Namespace: "a", Name: "s"}
	named := model.Key{Kind: model.KindServiceEntry, Namespace: "a", Name: "named"}
	service := model.Key{Kind: model.KindService, Namespace: "a", Name: "s"}
	theirs := model.Key{Kind: model.KindService, Namespace: "a", Name: "s", Origin: west}
	const spec = "{hosts: [h], selector: {app: x}, ports: [{name: http, number: 80}]"
	records := []model.Record{record(t, entry, spec+"}"), record(t, named, spec+", resolution: RESOLUTION_DNS}"), record(t, service, spec+"}"), record(t, theirs, spec+"}"),
		of(origin.Origin{}, vm, "address: 10.1.0.1"), of(origin.Origin{}, "p", "address: 10.1.0.2"), of(west, "p", "address: 10.1.0.3"), of(west, vm, "address: 10.1.0.4"),
		of(west, vm+"-name", "address: vm.example.com"), of(origin.Origin{}, vm+"-name", "address: here.example.com"), of(west, vm+"-nowhere", "network: far")}
	r := New(nil)
	c := r.Step(r.source.Apply(1, records, nil))
	all := "|10.1.0.1|10.1.0.2|10.1.0.3|10.1.0.4"
	wants := func(key model.Key, want string) {
		t.Helper()
		got := ""
		if e, is := c.New.Get(EndpointsKey(key)); is {
			for _, e := range e.(*model.Endpoints).Spec.GetEndpoints() {
				got += "|" + e.GetAddress()
			}
		}
		if got != want {
			t.Errorf("%v selects %s, want %s", key, got, want)
		}
	}
	wants(entry, "|"+all)
	wants(named, "|"+all+"|here.example.com")
	wants(service, "|10.1.0.1")
	wants(theirs, "||10.1.0.4")
	var problems []string
	for _, p := range r.Problems() {
		problems = append(problems, p.Key.Name+": "+p.Message)
	}
	want := "named: WorkloadEntry a/vm-name in cluster west is left out: its address \"vm.example.com\" is not an IP address, and a WorkloadEntry outside of the config cluster needs one"
	if !slices.Contains(problems, want) {
		t.Errorf("problems %q", problems)
	}
	c = r.Step(r.source.Apply(2, []model.Record{of(west, vm, "address: 10.1.0.5")}, nil))
	wants(entry, strings.Replace("|"+all, "0.4", "0.5", 1))
	wants(service, "|10.1.0.1")
	wants(theirs, "||10.1.0.5")
	if keys := keysOf(c); len(keys) != 4 { // the WorkloadEntry, both ServiceEntries and the Service of its cluster
		t.Errorf("edits of %v", keys)
	}
}

// The Endpoints that an unchanged workload became stay the same pointers in each record that selects it.
func TestEndpointsAreShared(t *testing.T) {
	r := New(nil)
	records := []model.Record{
		record(t, model.Key{Kind: model.KindServiceEntry, Namespace: "a", Name: "s"}, "{hosts: [h], selector: {app: x}, ports: [{name: http, number: 80}]}"),
		record(t, model.Key{Kind: model.KindServiceEntry, Namespace: "a", Name: "t"}, "{hosts: [i], selector: {app: x}, ports: [{name: tcp, number: 90}]}"),
	}
	for i := range 3 {
		records = append(records, workload(t, fmt.Sprintf("a/w%d", i), fmt.Sprintf("address: 10.1.0.%d, labels: {app: x}", i)))
	}
	c := r.Step(r.source.Apply(1, records, nil))
	before := endpointsOf(t, c.New, "s")
	if other := endpointsOf(t, c.New, "t"); !slices.Equal(before, other) {
		t.Error("two ServiceEntries have other endpoints of the same workloads")
	}
	c = r.Step(r.source.Apply(2, []model.Record{workload(t, "a/w1", "address: 10.1.0.9, labels: {app: x}")}, nil))
	if after := endpointsOf(t, c.New, "s"); after[0] != before[0] || after[1] != before[2] || after[2].Address != "10.1.0.9" {
		t.Errorf("%v, then %v", before, after)
	}
	if keys := keysOf(c); len(keys) != 3 {
		t.Errorf("edits of %v", keys)
	}
}

// Records that select the same workloads share the selection: an edit of one of 1,000 workloads, which 300
// ServiceEntries select, costs some KB for each ServiceEntry and nothing for each pair.
// Promise: security-tenants.md#stop-or-slow-the-control-plane
func TestSelectionsAreShared(t *testing.T) {
	var records []model.Record
	for i := range 1000 {
		records = append(records, workload(t, fmt.Sprintf("a/p%d", i), fmt.Sprintf("address: 10.1.%d.%d, labels: {app: x}", i/250, i%250)))
	}
	const entries = 300
	for i := range entries {
		records = append(records, record(t, model.Key{Kind: model.KindServiceEntry, Namespace: "a", Name: fmt.Sprint("e", i)},
			fmt.Sprintf("{hosts: [h%d], selector: {app: x}, ports: [{name: http, number: 80}]}", i)))
	}
	r := New(nil)
	r.Step(r.source.Apply(1, records, nil))
	change := r.source.Apply(2, []model.Record{workload(t, "a/p1", "address: 10.2.0.1, labels: {app: x}")}, nil)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	out := r.Step(change)
	runtime.ReadMemStats(&after)
	if len(out.Edits) != 1+entries {
		t.Errorf("%d edits", len(out.Edits))
	}
	if took := after.TotalAlloc - before.TotalAlloc; took > 6000*entries {
		t.Errorf("%d bytes for %d ServiceEntries", took, entries)
	}
}
