package machines

import (
	"fmt"
	"strings"
	"testing"
	"time"

	networkingv1 "istio.io/api/networking/v1alpha3"
)

var start = time.Unix(1_700_000_000, 0)

const grace = 10 * time.Second

func machine(name, address, account string, connected time.Duration) Machine {
	return Machine{Namespace: "shop", Name: name, Group: "vms", Account: account, Replica: "a", Connected: start.Add(connected),
		Spec: &networkingv1.WorkloadEntry{Address: address, ServiceAccount: account}}
}

// say formats the target states, by name.
func say(all map[Name]Wanted) string {
	var out []string
	for name, w := range all {
		state := "connected"
		switch {
		case w.Gone:
			state = "gone"
		case !w.Disconnected.IsZero():
			state = "disconnected"
		}
		replica := ""
		if w.Machine != nil {
			replica = "@" + w.Machine.Replica
		}
		out = append(out, name.Name+replica+" "+state)
	}
	return strings.Join(out, ", ")
}

// An entry stays while any replica reports its machine, and goes after the grace without a report, even if the replica
// died or this leader has only found the entry. Times of other clocks have no effect.
// Promise: security-workloads.md#who-has-a-machines-token
func TestGrace(t *testing.T) {
	r := NewRegistry(grace)
	a, entry := machine("one", "10.0.0.1", "vm", 0), []WorkloadEntry{{Name{"shop", "one"}, "vm"}}
	b := machine("one", "10.0.0.1", "vm", -time.Hour) // a replica whose clock is an hour behind
	b.Replica = "b"
	left := b
	left.Disconnected = start.Add(-time.Hour)
	for i, c := range []struct {
		at      time.Duration
		reports []Machine
		there   []WorkloadEntry
		want    string
		wait    time.Duration
	}{
		{0, []Machine{a}, nil, "one@a connected", 0},
		{time.Second, []Machine{a, b}, entry, "one@a connected", 0},             // it moves
		{2 * time.Second, []Machine{b}, entry, "one@b connected", 0},            // the old stream ends, without effect
		{3 * time.Second, nil, entry, "one@b disconnected", grace},              // its replica is killed
		{12 * time.Second, []Machine{left}, entry, "one@b disconnected", 1e9},   // reported as disconnected: the grace does not begin again
		{12500 * time.Millisecond, []Machine{b}, entry, "one@b connected", 0},   // back in time
		{20 * time.Second, []Machine{left}, entry, "one@b disconnected", grace}, // an hour ago by its replica's clock, now by this one's
		{30 * time.Second, nil, entry, "one@b gone", 0},
		{31 * time.Second, nil, entry, "one@b gone", 0}, // until it is not there
		{32 * time.Second, nil, nil, "", 0},
	} {
		all, problems, wait := r.Step(start.Add(c.at), c.reports, c.there)
		if got := say(all); got != c.want || wait != c.wait || len(problems) > 0 {
			t.Errorf("%d: %q for %v, want %q for %v; problems %v", i, got, wait, c.want, c.wait, problems)
		}
	}
	r = NewRegistry(grace) // another leader, which finds an entry that no replica reports
	if all, _, wait := r.Step(start, nil, entry); say(all) != "one disconnected" || wait != grace {
		t.Errorf("found: %q for %v", say(all), wait)
	}
	if all, _, _ := r.Step(start.Add(grace), nil, entry); say(all) != "one gone" {
		t.Errorf("found, and the grace is over: %q", say(all))
	}
}

// Of two machines that claim one address the one with a known entry keeps it, whichever is newer; the other is a
// problem, and gets the entry when the first is gone. The same address in another network is a different one; an
// unnamed network may be any. An entry is adopted only by its own service account.
// Promise: security-workloads.md#who-has-a-machines-token
func TestClaims(t *testing.T) {
	r := NewRegistry(grace)
	first := machine("b-10.0.0.1", "10.0.0.1", "vm", 0)
	second := machine("a-10.0.0.1", "10.0.0.1", "other", time.Hour)
	elsewhere := machine("a-10.0.0.1-west", "10.0.0.1", "other", 0)
	first.Spec.Network, elsewhere.Spec.Network = "east", "west"
	if all, problems, _ := r.Step(start, []Machine{first}, nil); say(all) != "b-10.0.0.1@a connected" || len(problems) > 0 {
		t.Fatalf("%q %v", say(all), problems)
	}
	all, problems, _ := r.Step(start, []Machine{second, first, elsewhere}, nil)
	if len(all) != 2 || all[second.ID()].Machine != nil || len(problems) != 1 || problems[0].Name != second.Name || !strings.Contains(problems[0].Message, "shop/b-10.0.0.1") {
		t.Errorf("%q %v", say(all), problems)
	}
	if all, problems, _ = r.Step(start, []Machine{first, elsewhere}, nil); len(all) != 2 || all[elsewhere.ID()].Machine == nil || len(problems) != 0 {
		t.Errorf("two networks: %q %v", say(all), problems)
	}
	r = NewRegistry(grace)
	r.Step(start, []Machine{first}, nil)
	if all, problems, _ = r.Step(start.Add(time.Second), []Machine{second}, nil); len(problems) != 1 { // within the grace
		t.Errorf("%q %v", say(all), problems)
	}
	r.Step(start.Add(time.Second+grace), []Machine{second}, nil)
	if all, problems, _ = r.Step(start.Add(time.Second+grace), []Machine{second}, nil); len(problems) != 0 || all[second.ID()].Machine == nil {
		t.Errorf("its holder is gone: %q %v", say(all), problems)
	}
	thief := machine("a-10.0.0.1", "10.0.0.1", "thief", 2*time.Hour)
	if all, problems, _ = r.Step(start.Add(30*time.Second), []Machine{thief}, nil); len(problems) != 1 || all[second.ID()].Disconnected.IsZero() {
		t.Errorf("another account takes the entry: %q %v", say(all), problems)
	}
}

// While a machine with a known entry is connected, it keeps the entry against another credential, however new that
// connection is; with the same credential the entry moves. A new leader prefers the machine that was connected first.
// Promise: security-workloads.md#who-has-a-machines-token
func TestCredentialKeepsItsEntry(t *testing.T) {
	of := func(credential, replica string, connected time.Duration) Machine {
		m := machine("one", "10.0.0.1", "vm", connected)
		m.Credential, m.Replica = credential, replica
		return m
	}
	mine, thief := of("mine", "a", 0), of("thief", "b", time.Hour)
	left := mine
	left.Disconnected = start
	r := NewRegistry(grace)
	for i, c := range []struct {
		at       time.Duration
		reports  []Machine
		want     string
		problems int
	}{
		{0, []Machine{mine}, "one@a connected", 0},
		{1 * time.Second, []Machine{mine, thief}, "one@a connected", 1},
		{2 * time.Second, []Machine{mine, thief, of("mine", "c", time.Minute)}, "one@c connected", 1}, // it moves
		// to a replica of an older version, which does not compare credentials
		{3 * time.Second, []Machine{thief, of("", "d", 2*time.Hour)}, "one@d connected", 0},
		{4 * time.Second, []Machine{mine, thief}, "one@a connected", 1},
		{5 * time.Second, []Machine{left, thief}, "one@b connected", 0}, // which may be the same machine with a new token
		{6 * time.Second, []Machine{mine, thief}, "one@b connected", 1},
		{7 * time.Second, []Machine{mine}, "one@a connected", 0},
		{8 * time.Second, nil, "one@a disconnected", 0},
		{9 * time.Second, []Machine{thief}, "one@b connected", 0},
	} {
		all, problems, _ := r.Step(start.Add(c.at), c.reports, nil)
		if got := say(all); got != c.want || len(problems) != c.problems {
			t.Errorf("%d: %q, want %q; problems %v", i, got, c.want, problems)
		}
		if len(problems) > 0 && !strings.Contains(problems[0].Message, "with another credential") {
			t.Errorf("%d: %v", i, problems)
		}
	}
	for _, reports := range [][]Machine{{mine, thief}, {thief, mine}} {
		all, problems, _ := NewRegistry(grace).Step(start, reports, []WorkloadEntry{{mine.ID(), "vm"}})
		if say(all) != "one@a connected" || len(problems) != 1 || problems[0].Replica != "b" {
			t.Errorf("another leader: %q, problems %v", say(all), problems)
		}
	}
}

// A service account has so many entries, and no more; those that are known stay.
// Promise: security-workloads.md#who-has-a-machines-token
func TestMostOfAccount(t *testing.T) {
	r := NewRegistry(grace)
	var reports []Machine
	for i := range MostOfAccount + 3 {
		reports = append(reports, machine(fmt.Sprintf("z-%04d", i), fmt.Sprintf("10.0.%d.%d", i/250, i%250+1), "vm", 0))
	}
	all, problems, _ := r.Step(start, reports, nil)
	if len(all) != 1000 || len(problems) != 3 {
		t.Fatalf("%d entries, %d problems", len(all), len(problems))
	}
	reports = append(reports, machine("a-0", "10.1.0.1", "vm", time.Hour), machine("a-1", "10.1.0.2", "other", time.Hour))
	all, problems, _ = r.Step(start, reports, nil)
	if len(all) != MostOfAccount+1 || len(problems) != 4 || all[Name{"shop", "a-1"}].Machine == nil || all[Name{"shop", "z-0000"}].Machine == nil {
		t.Errorf("%d entries, %d problems", len(all), len(problems))
	}
}

// One credential has at most a quarter of its account's entries, for any order of reports; reports of older replicas
// belong to no credential.
// Promise: security-workloads.md#who-has-a-machines-token
func TestMostOfCredential(t *testing.T) {
	r := NewRegistry(grace)
	var reports []Machine
	for _, credential := range []string{"a", "b", ""} {
		for i := range MostOfCredential + 3 {
			m := machine(fmt.Sprintf("m%s-%04d", credential, i), fmt.Sprintf("10.%d.%d.%d", len(reports)/1000, i/250, i%250+1), "vm", 0)
			m.Spec.Network, m.Credential = "n"+credential, credential
			reports = append(reports, m)
		}
	}
	all, problems, _ := r.Step(start, reports, nil)
	if len(all) != 3*250+3 || len(problems) != 6 || !strings.Contains(problems[0].Message, "one credential") {
		t.Fatalf("%d entries, %d problems: %.300v", len(all), len(problems), problems)
	}
	reports = append(reports, machine("a-0", "10.9.0.1", "vm", time.Hour))
	reports[len(reports)-1].Credential = "c"
	if all, problems, _ = r.Step(start, reports, nil); len(problems) != 6 || all[Name{"shop", "a-0"}].Machine == nil {
		t.Errorf("another credential: %d entries, %d problems", len(all), len(problems))
	}
}

func TestEntryName(t *testing.T) {
	for _, c := range []struct{ group, address, network, want string }{
		{"vms", "10.0.0.1", "", "vms-10.0.0.1"}, {"vms", "10.0.0.1", "n1", "vms-10.0.0.1-n1"}, {"vms", "fd00::1", "", "vms-fd00--1"},
		{strings.Repeat("a", 253), "10.0.0.1", "", strings.Repeat("a", 244) + "-10.0.0.1"},
	} {
		if got := EntryName(c.group, c.address, c.network); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// A report is decoded as it was encoded; one that is too long, or incomplete, is refused.
func TestReport(t *testing.T) {
	m := machine("one", "10.0.0.1", "vm", 0)
	m.Spec.Ports, m.Health = map[string]uint32{"http": 8080}, &Health{Message: "down", At: start}
	raw, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	got, err := Decode(raw)
	if err != nil || got.Spec.Ports["http"] != 8080 || got.Health.Message != "down" || !got.Connected.Equal(m.Connected) || !got.Disconnected.IsZero() {
		t.Errorf("%+v %v", got, err)
	}
	m.Labels = map[string]string{"a": strings.Repeat("x", MaxReport)}
	if _, err := m.Encode(); err == nil {
		t.Error("a report of any length is written")
	}
	for _, raw := range []string{`{`, `{}`, `{"namespace":"a","name":"b","group":"g"}`, `"` + strings.Repeat("x", MaxReport) + `"`} {
		if m, err := Decode([]byte(raw)); err == nil {
			t.Errorf("%.40s is read: %+v", raw, m)
		}
	}
}

// A machine whose address now belongs to a Pod has no entry from its replica's report on, and a problem names it; it
// has an entry again when the address is free.
// Promise: security-workloads.md#who-has-a-machines-token
func TestTakenAddress(t *testing.T) {
	r := NewRegistry(grace)
	a, other, entry := machine("one", "10.0.0.1", "vm", 0), machine("two", "10.0.0.2", "vm", 0), []WorkloadEntry{{Name{"shop", "one"}, "vm"}}
	lost := a
	lost.Taken = "Pod shop/web-0"
	for i, c := range []struct {
		reports []Machine
		there   []WorkloadEntry
		want    string
		named   bool
	}{
		{[]Machine{a}, nil, "one@a connected", false},
		{[]Machine{lost}, entry, "one@a gone", true},
		{[]Machine{lost}, nil, "", true},
		{[]Machine{a}, nil, "one@a connected", false},
		{[]Machine{lost, other}, nil, "two@a connected", true},
	} {
		all, problems, _ := r.Step(start.Add(time.Duration(i)*time.Second), c.reports, c.there)
		if got := say(all); got != c.want {
			t.Errorf("%d: %q, want %q", i, got, c.want)
		}
		if named := len(problems) == 1 && problems[0].Name == "one" && strings.Contains(problems[0].Message, "its address 10.0.0.1 now belongs to Pod shop/web-0"); named != c.named || len(problems) > 1 {
			t.Errorf("%d: problems %v", i, problems)
		}
	}
}
