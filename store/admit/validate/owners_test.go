package validate

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
)

// crowd is a snapshot of Services and Pods, each with an address, and ServiceEntries with a host each.
func crowd(t testing.TB, services, pods, entries int) *mirror.Snapshot {
	var all []model.Record
	add := func(kind model.Kind, name string, body proto.Message) {
		r, err := model.New(model.Key{Kind: kind, Namespace: fmt.Sprint("ns", len(all)%7), Name: name}, 0, body)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	for i := range services {
		add(model.KindService, fmt.Sprint("s", i), &model.ServiceSpec{Hosts: []string{fmt.Sprint("s", i)},
			Addresses: []string{fmt.Sprintf("10.96.%d.%d", i/256, i%256), fmt.Sprintf("fd00::%x", i)}})
	}
	for i := range pods {
		source := model.WorkloadSource_WORKLOAD_SOURCE_POD
		if i%10 == 9 {
			source = model.WorkloadSource_WORKLOAD_SOURCE_WORKLOAD_ENTRY
		}
		add(model.KindWorkload, fmt.Sprint("p", i), &model.WorkloadSpec{Source: source,
			Endpoint: &model.Endpoint{Address: fmt.Sprintf("10.%d.%d.%d", 128+i/65536, i/256%256, i%256)}})
	}
	for i := range entries {
		add(model.KindServiceEntry, fmt.Sprint("e", i), &model.ServiceSpec{Hosts: []string{fmt.Sprintf("h%d.d%d.example.com", i, i%5),
			fmt.Sprintf("*.w%d.example.org", i)}})
	}
	return mirror.Empty().Apply(1, all, nil).New
}

// However many hosts and addresses objects state, the records of others are read once for all reviews at a snapshot,
// and not for each look-up.
// Promise: security-tenants.md#stop-or-slow-the-control-plane
func TestOwnersAreReadOnce(t *testing.T) {
	known := crowd(t, 500, 20_000, 1000)
	w := &Webhook{lists: newCatalogue()}
	o := w.ownersAt(known)
	if w.ownersAt(known) != o {
		t.Error("a further review reads the records again")
	}
	if w.ownersAt(known.Apply(2, nil, nil).New) == o {
		t.Error("a review at a newer snapshot has the owners of the older one")
	}
	began := time.Now()
	for i := range 60_000 {
		a := netip.AddrFrom4([4]byte{203, byte(i >> 16), byte(i >> 8), byte(i)})
		services, pod := o.At(a)
		if o.Within(netip.PrefixFrom(a, 30)).IsValid() || len(services) > 0 || pod || o.OwnPod(object.ID{Namespace: "ns1"}, a) ||
			len(o.Below(fmt.Sprintf("*.x%d.example.net", i))) > 0 {
			t.Fatal(a)
		}
		if took := time.Since(began); took > 20*time.Second {
			t.Fatalf("%d look-ups of each kind took %v", i+1, took)
		}
	}
}

// Reviews at ever newer snapshots read the records again after a pause that is in proportion to the work, and not for
// each snapshot. Services are found at the newest snapshot in any case.
// Promise: security-tenants.md#stop-or-slow-the-control-plane
func TestNewerSnapshotsShareLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lists, known := newCatalogue(), crowd(t, 5, 20, 3)
		read := lists.users.read
		lists.users.read = func(known *mirror.Snapshot) []user {
			time.Sleep(100 * time.Millisecond) // the work, by the clock of the test
			return read(known)
		}
		network := netip.MustParsePrefix("10.96.0.0/16")
		const each = 10 * time.Millisecond // between two snapshots
		for i := range 1000 {
			known = known.Apply(int64(i+2), nil, nil).New
			if o := lists.at(known); !o.Within(network).IsValid() || len(o.Services("s1")) != 1 {
				t.Fatal("an owner is not found")
			}
			time.Sleep(each)
		}
		if most := int(1000*each/(maxShare*100*time.Millisecond)) + 1; lists.users.reads > most {
			t.Errorf("records were read %d times in 10 s, want at most %d", lists.users.reads, most)
		}
		time.Sleep(time.Minute)
		emptied := known.Apply(9999, nil, []model.Key{{Kind: model.KindService, Namespace: "ns1", Name: "s1"}}).New
		if lists.at(emptied).Within(netip.MustParsePrefix("10.96.0.1/32")).IsValid() {
			t.Error("an address is found that was removed a minute ago")
		}
	})
}

// Owners are found as by a look at each record.
// Promise: security-tenants.md#stop-or-slow-the-control-plane
func TestOwnersMatchScan(t *testing.T) {
	known := crowd(t, 300, 700, 60)
	o := ownersOf(known)
	holds := func(network netip.Prefix, text string) bool {
		a, err := netip.ParseAddr(text)
		return err == nil && network.Contains(a)
	}
	for i := range 4000 {
		a := netip.AddrFrom4([4]byte{10, []byte{96, 128, 129}[i%3], byte(i / 1500), byte(i * 7)})
		if i%5 == 0 {
			a = netip.MustParseAddr(fmt.Sprintf("fd00::%x", i))
		}
		network, single := netip.PrefixFrom(a, a.BitLen()-i%12), netip.PrefixFrom(a, a.BitLen())
		of := object.ID{Namespace: fmt.Sprint("ns", i%7)}
		var services []*model.Service
		within, pod, own := false, false, false
		for r := range known.All(model.KindService) {
			s := r.(*model.Service)
			for _, text := range s.Spec.GetAddresses() {
				within = within || holds(network, text)
				if holds(single, text) {
					services = append(services, s)
				}
			}
		}
		for r := range known.All(model.KindWorkload) {
			if w := r.(*model.Workload); !w.Spec.FromEntry() {
				text := w.Spec.GetEndpoint().GetAddress()
				within, pod = within || holds(network, text), pod || holds(single, text)
				own = own || holds(single, text) && w.Key.Namespace == of.Namespace
			}
		}
		gotServices, gotPod := o.At(a)
		if got := o.Within(network); got.IsValid() != within || within && !network.Contains(got) ||
			!slices.Equal(gotServices, services) || gotPod != pod || o.OwnPod(of, a) != own {
			t.Fatalf("%v: within %v, services %v, Pod %v, own %v; want %v, %v, %v, %v", network, got, gotServices, gotPod,
				o.OwnPod(of, a), within, services, pod, own)
		}
	}
	for _, wildcard := range []string{"*", "*.com", "*.d3.example.com", "*-b.example.com", "*.example.org", "*.w7.example.org",
		"*.example.net", "*ample.com"} {
		var want []string
		for r := range known.All(model.KindServiceEntry) {
			if slices.ContainsFunc(r.(*model.Service).Spec.GetHosts(), func(host string) bool { return model.Covers(wildcard, host) }) {
				want = append(want, r.Meta().Key.Name)
			}
		}
		var got []string
		for _, s := range o.Below(wildcard) {
			got = append(got, s.Key.Name)
		}
		if slices.Sort(got); !slices.Equal(got, slices.Sorted(slices.Values(want))) {
			t.Errorf("%s: %v, want %v", wildcard, got, want)
		}
	}
}
