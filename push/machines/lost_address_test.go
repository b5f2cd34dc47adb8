package machines

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"navarch.io/navarch/store/machines"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// A Pod or a Service of Kubernetes that receives the address of a registered machine, as any of its addresses,
// displaces the machine, and the report states it until the address is free again. Objects of other authors, and those
// of another network, displace no machine.
// Promise: security-workloads.md#who-has-a-machines-token
func TestAddressThatIsTakenLater(t *testing.T) {
	const pod, entry = model.WorkloadSource_WORKLOAD_SOURCE_POD, model.WorkloadSource_WORKLOAD_SOURCE_WORKLOAD_ENTRY
	s := mesh(t)
	r := registry(s)
	r.Config.Snapshot = func() *mirror.Snapshot { return s }
	n := node("10.0.0.1")
	n.Network = "west"
	if _, err := r.Register(n, "", nil); err != nil {
		t.Fatal(err)
	}
	name := machines.Name{Namespace: "shop", Name: "vms-10.0.0.1-west"}
	now := time.Now()
	for _, c := range []struct {
		kind  model.Kind
		spec  proto.Message
		taken string
	}{
		{model.KindWorkload, workload(pod, "10.0.0.1", "vm"), "Pod other/x"},
		{model.KindWorkload, &model.WorkloadSpec{Source: pod, Endpoint: &model.Endpoint{Address: "10.0.0.2", Network: "west"}, MoreAddresses: []string{"10.0.0.1"}}, "Pod other/x"},
		{model.KindWorkload, &model.WorkloadSpec{Source: pod, Endpoint: &model.Endpoint{Address: "10.0.0.1", Network: "east"}}, ""},
		{model.KindWorkload, workload(entry, "10.0.0.1", "other"), ""},
		{model.KindEndpoints, &model.EndpointsSpec{Endpoints: []*model.Endpoint{{Address: "10.0.0.1", ServiceAccount: "other"}}}, ""},
		{model.KindService, &model.ServiceSpec{Hosts: []string{"x"}, Addresses: []string{"10.0.0.1"}}, "Service other/x, as a virtual address"},
		{model.KindServiceEntry, &model.ServiceSpec{Hosts: []string{"x"}, Addresses: []string{"10.0.0.1"}}, ""},
	} {
		put := record(t, c.kind, "other", "x", c.spec)
		for _, step := range []struct {
			put   []model.Record
			drop  []model.Key
			taken string
		}{{[]model.Record{put}, nil, c.taken}, {nil, []model.Key{put.Meta().Key}, ""}} {
			change := s.Apply(s.Revision()+1, step.put, step.drop)
			s = change.New
			r.follow(change)
			now = now.Add(holdersFor)
			if wait := r.refreshTaken(now); wait < time.Minute {
				t.Errorf("%v: judged again in %v", c.kind, wait)
			}
			report := r.known.get(name).report
			changes, _ := r.pending(now)
			if report.Taken != step.taken || len(changes) != 1 || strings.Contains(string(changes[0].raw), `"taken"`) != (step.taken != "") {
				t.Errorf("%v %v: taken by %q, want %q; %d reports", c.kind, c.spec, report.Taken, step.taken, len(changes))
			}
		}
	}
}

// An address that was assigned between two searches of the configuration is found by the next one: a machine that was
// registered meanwhile loses it.
// Promise: security-workloads.md#who-has-a-machines-token
func TestAddressThatWasTakenMeanwhile(t *testing.T) {
	s := mesh(t)
	r := registry(s)
	r.Config.Snapshot = func() *mirror.Snapshot { return s }
	if _, err := r.Register(node("10.0.0.1"), "", nil); err != nil {
		t.Fatal(err)
	}
	change := s.Apply(2, []model.Record{record(t, model.KindWorkload, "shop", "new", workload(model.WorkloadSource_WORKLOAD_SOURCE_POD, "10.0.0.2", "vm"))}, nil)
	s = change.New
	r.follow(change)
	r.addresses.at = time.Now() // however slow this machine is
	if _, err := r.Register(node("10.0.0.2"), "", nil); err != nil {
		t.Fatalf("the test comes too late: %v", err)
	}
	if wait := r.refreshTaken(r.addresses.at); wait != holdersFor {
		t.Errorf("searched through again in %v", wait)
	}
	if r.refreshTaken(r.addresses.at.Add(holdersFor)); r.known.get(machines.Name{Namespace: "shop", Name: "vms-10.0.0.2"}).report.Taken != "Pod shop/new" {
		t.Errorf("it keeps its address: %+v", r.known.get(machines.Name{Namespace: "shop", Name: "vms-10.0.0.2"}).report)
	}
	if searched := r.addresses.searched; r.refreshTaken(r.addresses.at.Add(time.Hour)) < time.Minute || r.addresses.searched != searched {
		t.Error("it is searched through again for nothing")
	}
}
