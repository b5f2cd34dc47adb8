package machines

import (
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/view"
	"navarch.io/navarch/store/machines"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/origin"
)

func record(t *testing.T, kind model.Kind, namespace, name string, body proto.Message) model.Record {
	t.Helper()
	return recordOf(t, model.Key{Kind: kind, Namespace: namespace, Name: name}, body)
}

func recordOf(t *testing.T, key model.Key, body proto.Message) model.Record {
	t.Helper()
	r, err := model.New(key, 1, body)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func workload(source model.WorkloadSource, address, account string) *model.WorkloadSpec {
	return &model.WorkloadSpec{Source: source, Endpoint: &model.Endpoint{Address: address, ServiceAccount: account}}
}

// mesh is a configuration with one group, and with other objects that have addresses.
func mesh(t *testing.T) *mirror.Snapshot {
	const pod, entry = model.WorkloadSource_WORKLOAD_SOURCE_POD, model.WorkloadSource_WORKLOAD_SOURCE_WORKLOAD_ENTRY
	return mirror.Empty().Apply(1, []model.Record{
		record(t, model.KindWorkloadGroup, "shop", "vms", &networkingv1.WorkloadGroup{
			Metadata: &networkingv1.WorkloadGroup_ObjectMeta{Labels: map[string]string{"app": "web"}, Annotations: map[string]string{"a": "b"}},
			Template: &networkingv1.WorkloadEntry{ServiceAccount: "vm", Ports: map[string]uint32{"http": 8080}, Labels: map[string]string{"app": "template", "tier": "x"}, Weight: 3}}),
		record(t, model.KindWorkload, "shop", "web-0", workload(pod, "10.0.0.100", "vm")),
		record(t, model.KindWorkload, "shop", model.WorkloadEntryPrefix+"theirs", workload(entry, "10.0.0.101", "vm")),
		record(t, model.KindWorkload, "shop", model.WorkloadEntryPrefix+"others", workload(entry, "10.0.0.102", "other")),
		record(t, model.KindEndpoints, "other", "serviceentry:x", &model.EndpointsSpec{Endpoints: []*model.Endpoint{{Address: "10.0.0.103", ServiceAccount: "vm"}}}),
		record(t, model.KindWorkload, "shop", "east-0", &model.WorkloadSpec{Source: pod, Endpoint: &model.Endpoint{Address: "10.0.0.105", ServiceAccount: "vm", Network: "east"}, MoreAddresses: []string{"fd00::105"}}),
		recordOf(t, model.Key{Kind: model.KindWorkload, Namespace: "shop", Name: model.WorkloadEntryPrefix + "west", Origin: origin.New("west", origin.Kube)},
			workload(entry, "10.2.0.1", "vm")),
		record(t, model.KindWorkload, "shop", model.WorkloadEntryPrefix+"long", workload(entry, "FD00:0::106", "other")),
		record(t, model.KindService, "shop", "web", &model.ServiceSpec{Hosts: []string{"web.shop.svc.cluster.local"}, Addresses: []string{"10.96.0.1", "fd00:96::1"}}),
		record(t, model.KindServiceEntry, "shop", "db", &model.ServiceSpec{Hosts: []string{"db.example"}, Addresses: []string{"10.95.0.1/32", "10.0.0.0/8"},
			Automatic: []*model.HostAddresses{{Host: "db.example", Addresses: []string{"240.240.0.1"}}}}),
		record(t, model.KindEndpoints, "shop", "serviceentry:y", &model.EndpointsSpec{Endpoints: []*model.Endpoint{{Address: "10.0.0.104", ServiceAccount: "vm"}}}),
	}, nil).New
}

func registry(s *mirror.Snapshot) *Registry {
	return New(Config{Replica: "a", Snapshot: func() *mirror.Snapshot { return s }, Log: slog.New(slog.DiscardHandler)})
}

func node(address string) view.Node {
	return view.Node{ID: "sidecar~" + address + "~vm.shop~shop.svc.cluster.local", Namespace: "shop", Addresses: []string{address},
		Verified: view.Identity{Namespace: "shop", Account: "vm"}, Metadata: map[string]string{groupKey: "vms"}}
}

// A machine's entry comes from its group, whatever labels its node states. Only address, locality and network are the
// machine's own.
// Promise: security-workloads.md#who-has-a-machines-token
func TestEntry(t *testing.T) {
	r := registry(mesh(t))
	n := node("10.0.0.1")
	n.Labels, n.Locality, n.Network = map[string]string{"app": "payments"}, "region/zone", "west"
	raw := &corev3.Node{}
	if err := protojson.Unmarshal([]byte(`{"metadata": {"PROXY_CONFIG": {"readinessProbe": {"tcpSocket": {"port": 80}}}}}`), raw); err != nil {
		t.Fatal(err)
	}
	encoded, err := proto.Marshal(raw)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Register(n, "", encoded); err != nil {
		t.Fatal(err)
	}
	m := r.known.get(machines.Name{Namespace: "shop", Name: "vms-10.0.0.1-west"})
	if m == nil {
		t.Fatalf("known are %v", r.known.all)
	}
	want := &networkingv1.WorkloadEntry{Address: "10.0.0.1", ServiceAccount: "vm", Ports: map[string]uint32{"http": 8080}, Weight: 3, Network: "west", Locality: "region/zone",
		Labels: map[string]string{"app": "web", "tier": "x", "topology.istio.io/network": "west"}}
	if !proto.Equal(m.report.Spec, want) || !m.report.Checked || m.report.Annotations["a"] != "b" || m.report.Labels["app"] != "web" || m.report.Replica != "a" {
		t.Errorf("%+v", m.report)
	}
}

// A machine without proof of the group's namespace and service account is refused, and so is one that claims another's
// address. Each refusal names the reason.
// Promise: security-workloads.md#what-it-says-of-itself, security-workloads.md#who-has-a-machines-token
func TestRefused(t *testing.T) {
	for name, c := range map[string]struct {
		change func(n *view.Node)
		code   codes.Code
		says   string
	}{
		"no group named":             {func(n *view.Node) { n.Metadata = nil }, codes.OK, ""},
		"fine":                       {func(*view.Node) {}, codes.OK, ""},
		"its own endpoint":           {func(n *view.Node) { n.Addresses[0] = "10.0.0.104" }, codes.OK, ""},
		"its entry":                  {func(n *view.Node) { n.Metadata = map[string]string{entryKey: "theirs"} }, codes.OK, ""},
		"no proof":                   {func(n *view.Node) { n.Verified = view.Identity{} }, codes.PermissionDenied, "a proven identity"},
		"no proof for an entry":      {func(n *view.Node) { n.Verified, n.Metadata = view.Identity{}, map[string]string{entryKey: "theirs"} }, codes.PermissionDenied, "a proven identity"},
		"a node of another one":      {func(n *view.Node) { n.Namespace = "other" }, codes.PermissionDenied, `"other"`},
		"another account":            {func(n *view.Node) { n.Verified.Account = "web" }, codes.PermissionDenied, `"vm"`},
		"a group that is not there":  {func(n *view.Node) { n.Metadata[groupKey] = "vm" }, codes.FailedPrecondition, "shop/vm does not exist"},
		"a group elsewhere":          {func(n *view.Node) { n.Namespace, n.Verified.Namespace = "other", "other" }, codes.FailedPrecondition, "other/vms does not exist"},
		"a Pod's address":            {func(n *view.Node) { n.Addresses[0] = "10.0.0.100" }, codes.FailedPrecondition, "Pod shop/web-0"},
		"a Pod's, no network named":  {func(n *view.Node) { n.Addresses[0] = "10.0.0.105" }, codes.FailedPrecondition, "Pod shop/east-0"},
		"a Pod's of no network":      {func(n *view.Node) { n.Addresses[0], n.Network = "10.0.0.100", "west" }, codes.FailedPrecondition, "Pod shop/web-0"},
		"a Pod's of its network":     {func(n *view.Node) { n.Addresses[0], n.Network = "10.0.0.105", "east" }, codes.FailedPrecondition, "Pod shop/east-0"},
		"a Pod's of another network": {func(n *view.Node) { n.Addresses[0], n.Network = "10.0.0.105", "west" }, codes.OK, ""},
		"a Pod's second":             {func(n *view.Node) { n.Addresses[0] = "fd00::105" }, codes.FailedPrecondition, "Pod shop/east-0"},
		"another entry's, at length": {func(n *view.Node) { n.Addresses[0] = "fd00::106" }, codes.FailedPrecondition, "long"},
		"a Service's":                {func(n *view.Node) { n.Addresses[0] = "10.96.0.1" }, codes.FailedPrecondition, "Service shop/web, as a virtual address"},
		"a Service's second":         {func(n *view.Node) { n.Addresses[0] = "fd00:96::1" }, codes.FailedPrecondition, "Service shop/web"},
		"a ServiceEntry's":           {func(n *view.Node) { n.Addresses[0] = "10.95.0.1" }, codes.FailedPrecondition, "ServiceEntry shop/db, as a virtual address"},
		"an automatic one":           {func(n *view.Node) { n.Addresses[0] = "240.240.0.1" }, codes.FailedPrecondition, "ServiceEntry shop/db"},
		"another entry's":            {func(n *view.Node) { n.Addresses[0] = "10.0.0.101" }, codes.FailedPrecondition, "theirs"},
		"another identity's":         {func(n *view.Node) { n.Addresses[0] = "10.0.0.102" }, codes.FailedPrecondition, "others"},
		"another namespace's":        {func(n *view.Node) { n.Addresses[0] = "10.0.0.103" }, codes.FailedPrecondition, "other/serviceentry:x"},
		"each client's own":          {func(n *view.Node) { n.Addresses[0] = "127.0.0.1" }, codes.FailedPrecondition, "127.0.0.1"},
		"each client's own, as IPv6": {func(n *view.Node) { n.Addresses[0] = "::ffff:127.0.0.1" }, codes.FailedPrecondition, "127.0.0.1"},
		"none":                       {func(n *view.Node) { n.Addresses = nil }, codes.FailedPrecondition, "no address"},
		"another's entry":            {func(n *view.Node) { n.Metadata = map[string]string{entryKey: "others"} }, codes.PermissionDenied, `"other"`},
		"another cluster's entry":    {func(n *view.Node) { n.Metadata = map[string]string{entryKey: "west"} }, codes.FailedPrecondition, "shop/west does not exist"},
		"an entry that is not there": {func(n *view.Node) { n.Metadata = map[string]string{entryKey: "the"} }, codes.FailedPrecondition, "shop/the does not exist"},
	} {
		n := node("10.0.0.1")
		c.change(&n)
		_, err := registry(mesh(t)).Register(n, "", nil)
		if status.Code(err) != c.code || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	var off *Registry
	if c, err := off.Register(node("10.0.0.1"), "", nil); c != nil || err != nil {
		t.Errorf("it is off: %v %v", c, err)
	}
}

// Two machines of two groups cannot have one address, unless they name two networks.
// Promise: security-workloads.md#who-has-a-machines-token
func TestAddressOfAnotherMachine(t *testing.T) {
	r := registry(mesh(t))
	if _, err := r.Register(node("10.0.0.1"), "", nil); err != nil {
		t.Fatal(err)
	}
	second := mesh(t).Apply(2, []model.Record{record(t, model.KindWorkloadGroup, "shop", "more", &networkingv1.WorkloadGroup{Template: &networkingv1.WorkloadEntry{ServiceAccount: "vm"}})}, nil).New
	r.Snapshot = func() *mirror.Snapshot { return second }
	n := node("10.0.0.1")
	n.Metadata[groupKey] = "more"
	if _, err := r.Register(n, "", nil); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "vms-10.0.0.1") {
		t.Errorf("two machines claim one address: %v", err)
	}
	third := node("10.0.0.1")
	third.Metadata[groupKey], third.Network = "more", "west"
	if _, err := r.Register(third, "", nil); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "vms-10.0.0.1") {
		t.Errorf("two machines claim one address, and one names no network: %v", err)
	}
}

// A service account has a bounded number of machines at one replica, and does not affect other accounts.
// Promise: security-workloads.md#who-has-a-machines-token
func TestMostOfAccount(t *testing.T) {
	r := registry(mesh(t))
	for i := range machines.MostOfAccount {
		name := machines.Name{Namespace: "shop", Name: string(rune('a'+i%26)) + strings.Repeat("x", i/26)}
		r.known.put(machines.Machine{Namespace: "shop", Name: name.Name, Account: "vm"})
	}
	if _, err := r.Register(node("10.0.0.1"), "", nil); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("one more: %v", err)
	}
	for _, m := range r.known.each() {
		other := m.report
		other.Account = "other"
		r.known.put(other)
	}
	if _, err := r.Register(node("10.0.0.1"), "", nil); err != nil {
		t.Errorf("of another account: %v", err)
	}
}

// Two streams of one machine: the old one ends and the entry stays; the health is that of the newest stream. After the
// last one the machine is reported as disconnected for the grace, then not at all.
// Promise: security-workloads.md#who-has-a-machines-token
func TestStreams(t *testing.T) {
	r := registry(mesh(t))
	open := func() *Connection {
		t.Helper()
		c, err := r.Register(node("10.0.0.1"), "one", nil)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	reported := func(at time.Time) *machines.Machine {
		t.Helper()
		changes, _ := r.pending(at)
		if len(changes) == 0 {
			return nil
		}
		changes[0].machine.written = changes[0].raw
		if changes[0].raw == nil {
			return nil
		}
		m, err := machines.Decode(changes[0].raw)
		if err != nil {
			t.Fatal(err)
		}
		return &m
	}
	first := open()
	if c, err := r.Register(node("10.0.0.1"), "another", nil); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "with another credential") {
		t.Errorf("another credential takes the entry over: %v, %v", c, err)
	}
	second := open()
	second.Health(false, "down")
	first.Health(false, "an old stream")
	now := time.Now()
	if m := reported(now); m == nil || m.Health == nil || m.Health.Message != "down" || !m.Connected.Equal(second.at) {
		t.Errorf("two streams: %+v", m)
	}
	first.Leave()
	if m := reported(now); m != nil {
		t.Errorf("the old stream ends, and something is reported: %+v", m)
	}
	for i := range 100 {
		second.Health(i%2 == 0, "again")
		if m := reported(now.Add(time.Second)); m != nil {
			t.Fatalf("health is reported again within %v: %+v", HealthEvery, m)
		}
	}
	second.Health(true, "")
	if _, wait := r.pending(now.Add(time.Second)); wait != 4*time.Second {
		t.Errorf("it is reported in %v", wait)
	}
	if m := reported(now.Add(HealthEvery)); m == nil || !m.Health.Healthy {
		t.Errorf("health after its time: %+v", m)
	}
	second.Leave()
	left := r.known.get(second.name).report.Disconnected
	if m := reported(now.Add(ConnectionEvery)); m == nil || m.Disconnected.IsZero() {
		t.Errorf("it left: %+v", m)
	}
	if m := reported(left.Add(r.Grace - 1)); m != nil {
		t.Errorf("within the grace: %+v", m)
	}
	if changes, _ := r.pending(left.Add(r.Grace)); len(changes) != 1 || changes[0].raw != nil {
		t.Errorf("after the grace: %+v", changes)
	}
	r.known.get(second.name).written = nil
	if r.pending(left.Add(r.Grace)); len(r.known.all)+len(r.known.holders)+len(r.known.accounts)+len(r.known.credentials) != 0 {
		t.Errorf("it is known: %v %v %v", r.known.all, r.known.holders, r.known.accounts)
	}
	second.Leave() // once too often
}

// A group disappears while a machine is connected: its report is deleted. The group is back: the machine is registered
// by the new group.
func TestGroupGoes(t *testing.T) {
	s := mesh(t)
	r := registry(s)
	if _, err := r.Register(node("10.0.0.1"), "", nil); err != nil {
		t.Fatal(err)
	}
	raw := func() []byte {
		changes, _ := r.pending(time.Now())
		if len(changes) == 0 {
			return []byte("as it was")
		}
		changes[0].machine.written = changes[0].raw
		return changes[0].raw
	}
	if raw() == nil {
		t.Fatal("nothing is reported")
	}
	key := model.Key{Kind: model.KindWorkloadGroup, Namespace: "shop", Name: "vms"}
	change := s.Apply(2, nil, []model.Key{key})
	if r.follow(change); raw() != nil {
		t.Error("its group is gone, and it is reported")
	}
	change = change.New.Apply(3, []model.Record{record(t, key.Kind, "shop", "vms", &networkingv1.WorkloadGroup{Template: &networkingv1.WorkloadEntry{ServiceAccount: "vm", Weight: 9}})}, nil)
	r.follow(change)
	if m, err := machines.Decode(raw()); err != nil || m.Spec.Weight != 9 {
		t.Errorf("its group is back: %+v %v", m, err)
	}
	change = change.New.Apply(4, []model.Record{record(t, key.Kind, "shop", "vms", &networkingv1.WorkloadGroup{Template: &networkingv1.WorkloadEntry{ServiceAccount: "web"}})}, nil)
	if r.follow(change); raw() != nil {
		t.Error("its group is of another account, and it is reported")
	}
}

// However long a message is, a short part of it is kept, and the rest is freed.
func TestLongMessageIsNotKept(t *testing.T) {
	r := registry(mesh(t))
	c, err := r.Register(node("10.0.0.1"), "", nil)
	if err != nil {
		t.Fatal(err)
	}
	before := heap()
	c.Health(false, strings.Repeat("x", 32<<20))
	if grown := heap() - before; grown > 1<<20 {
		t.Errorf("%d bytes are kept of a message", grown)
	}
	runtime.KeepAlive(c)
}

// heap returns the number of live bytes.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func TestCut(t *testing.T) {
	if got := truncate(strings.Repeat("é", 1000) + "\xff"); len(got) > machines.MaxMessage || strings.Trim(got, "é") != "" || got == "" {
		t.Errorf("%d bytes: %q", len(got), got)
	}
}
