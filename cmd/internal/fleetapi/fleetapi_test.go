package fleetapi

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"navarch.io/navarch/push/inspect"
	"navarch.io/navarch/push/ledger"
	"navarch.io/navarch/store/problem"
)

// at returns the part of a replica with proxies 0 to n-1 of a name.
func at(replica, name string, n int, change func(i int, p *Proxy)) (all []Proxy) {
	for i := range n {
		p := Proxy{Proxy: fmt.Sprintf("%s-%03d.shop", name, i), Node: fmt.Sprintf("node~%s-%d", name, i),
			Namespace: "shop", Replica: replica, State: InSync, Version: "1"}
		if change != nil {
			change(i, &p)
		}
		all = append(all, p)
	}
	return all
}

func selection(t *testing.T, query string) Selection {
	t.Helper()
	q, err := url.ParseQuery(query)
	if err != nil {
		t.Fatal(err)
	}
	s, err := ParseSelection(q)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The windows of a list of three replicas contain each proxy once, in the list's order, whatever the order is.
func TestWindowsOfSeveralReplicas(t *testing.T) {
	fleet := map[string][]Proxy{"a": at("a", "x", 40, nil), "c": nil, "b": at("b", "y", 7, func(i int, p *Proxy) {
		p.State, p.Since = Behind, time.Unix(int64(100-i), 0)
	})}
	for _, order := range Orders {
		var seen []Proxy
		next := ""
		for windows := 0; windows == 0 || next != ""; windows++ {
			s := selection(t, "limit=9&sort="+order+"&continue="+next)
			var parts []From[Proxies]
			for _, replica := range []string{"a", "b", "c"} {
				parts = append(parts, From[Proxies]{replica, s.PartOf(fleet[replica])})
			}
			a := s.MergeProxies(parts)
			if a.Sums.Total != (Counts{InSync: 40, Behind: 7}) || a.Sums.Replicas["b"].Behind != 7 || len(a.Items) > 9 || windows > 6 {
				t.Fatalf("%s: window %d: %+v, %d items", order, windows, a.Sums, len(a.Items))
			}
			seen, next = append(seen, a.Items...), a.Next
		}
		names := map[string]bool{}
		for _, p := range seen {
			names[p.Proxy] = true
		}
		if len(seen) != 47 || len(names) != 47 {
			t.Errorf("%s: %d items, %d proxies", order, len(seen), len(names))
		}
		if order == "since" && (seen[0].Proxy != "y-006.shop" || seen[7].State != InSync) || order == "state" && seen[0].State != Behind {
			t.Errorf("%s: first %+v", order, seen[0])
		}
	}
	if a := (&Selection{}).MergeProxies(nil); len(a.Items) != 0 || a.Sums.Total.Connected() != 0 {
		t.Errorf("without parts: %+v", a)
	}
	s := selection(t, "limit=0")
	if part := s.PartOf(fleet["a"]); len(part.Items) != 0 || part.Sums.Total.InSync != 40 {
		t.Errorf("sums only: %+v", part)
	}
}

// Proxies sort by the time since which they are behind, also within a second.
func TestSinceOrdersFractions(t *testing.T) {
	second := time.Unix(1000, 0)
	of := at("a", "x", 3, func(i int, p *Proxy) {
		p.State, p.Since = Behind, second.Add([]time.Duration{100 * time.Millisecond, 0, 50 * time.Millisecond}[i])
	})
	s := selection(t, "sort=since")
	var order []string
	for _, p := range s.PartOf(of).Items {
		order = append(order, p.Proxy)
	}
	if want := []string{"x-001.shop", "x-002.shop", "x-000.shop"}; !slices.Equal(order, want) {
		t.Errorf("order %v, want %v", order, want)
	}
}

// Each parameter selects, and a wrong one is named.
func TestSelection(t *testing.T) {
	p := Proxy{Proxy: "web-0.shop", Node: "n", Namespace: "shop", Replica: "a", State: Behind, Version: "1", Zone: "eu/eu-1/x",
		Cluster: "west"}
	own := map[string]string{"app": "web"}
	for query, want := range map[string]bool{"": true, "name=web-0.shop": true, "name=n": true, "name=web": false,
		"namespace=shop": true, "namespace=pay": false, "state=behind": true, "state=in+sync": false, "state=gone": false,
		"version=1": true,
		"version=2": false, "zone=eu": true, "zone=eu-1": true, "zone=eu/eu-1": true, "zone=eu/eu-1/x": true, "zone=e": false,
		"zone=eu-1/y": false, "replica=a": true, "replica=b": false, "cluster=west": true, "cluster=east": false,
		"labels=app%3Dweb": true, "labels=app!%3Dweb": false, "labels=tier": false} {
		if s := selection(t, query); s.Selects(&p, own) != want {
			t.Errorf("%s: %v", query, !want)
		}
	}
	for query, want := range map[string]string{"limit=x": "limit=", "limit=5001": "limit=",
		"continue=*": "continue", "continue=" + strings.Repeat("A", 5000): "continue",
		"state=lost": "state=", "sort=size": "sort=", "labels=%3D%3D": "labels", "labels=" + strings.Repeat("a,", 600): "labels"} {
		q, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ParseSelection(q); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%.40s: %v", query, err)
		}
	}
}

// A proxy is gone if its stream ended and it is connected to no replica; it counts once, wherever it was.
func TestGone(t *testing.T) {
	left := at("a", "x", 3, nil)
	s := selection(t, "")
	a := s.MergeProxies([]From[Proxies]{
		{"a", Proxies{Left: left}},
		{"b", Proxies{Left: left[:1], Back: []uint64{Hash(left[2].Node)}}},
	})
	if a.Sums.Total != (Counts{Gone: 2}) || a.Sums.Namespaces["shop"].Gone != 2 {
		t.Errorf("%+v", a.Sums)
	}
	if len(a.Items) != 0 {
		t.Errorf("items that nobody asked for: %+v", a.Items)
	}
	s.State = Gone
	a = s.MergeProxies([]From[Proxies]{{"a", Proxies{Left: left}}, {"b", Proxies{Left: left[:1], Back: []uint64{Hash(left[2].Node)}}}})
	if a.Sums.Total != (Counts{Gone: 2}) || len(a.Items) != 2 || a.Items[0].Node != left[0].Node || a.Items[1].Node != left[1].Node {
		t.Errorf("those that are gone: %+v", a.Items)
	}
}

// Clients choose their versions: the sums list a bounded number of values, and lose no proxy.
func TestSumsAreBounded(t *testing.T) {
	var s Sums
	for i, p := range at("a", "x", 1000, nil) {
		p.Version = fmt.Sprint(i)
		s.Add(&p)
	}
	var twice Sums
	twice.plus(&s)
	twice.plus(&s)
	n := 0
	for _, c := range twice.Versions {
		n += c.InSync
	}
	if len(twice.Versions) > maxValues+1 || n != 2000 || twice.Total.InSync != 2000 || twice.Versions[Others].InSync == 0 {
		t.Errorf("%d values with %d proxies: %+v", len(twice.Versions), n, twice.Total)
	}
}

// Changes of several replicas are one item if their revisions overlap, within a lane.
func TestMergeChanges(t *testing.T) {
	report := func(lane ledger.Lane, first, last int64, affected, acked int, objects ...string) ledger.Report {
		return ledger.Report{Lane: lane, First: first, Last: last, Since: time.Unix(last, 0), Objects: objects,
			Counts: ledger.Counts{Affected: affected, Views: 1, Took: ledger.Took{Counts: []int{acked}, Longest: time.Millisecond}}}
	}
	parts := []From[[]ledger.Report]{
		{"a", []ledger.Report{report(ledger.Config, 10, 12, 5, 5, "VirtualService shop/web"),
			report(ledger.Config, 20, 20, 1, 1, "Sidecar shop/x"), report(ledger.Endpoints, 11, 11, 2, 2)}},
		{"b", []ledger.Report{report(ledger.Config, 10, 10, 3, 2, "VirtualService shop/web"),
			report(ledger.Config, 12, 12, 3, 3, "Gateway shop/g")}},
	}
	a := MergeChanges(Window{Limit: 10}, "", nil, parts)
	if len(a.Items) != 3 || a.Items[0].Last != 20 || a.Items[0].Replicas != 1 || a.Items[2].Lane != "endpoints" {
		t.Fatalf("%+v", a.Items)
	}
	if c := a.Items[1]; c.First != 10 || c.Last != 12 || c.Replicas != 2 || c.Affected != 11 || c.Acknowledged != 10 || c.Pending != 1 ||
		!slices.Equal(c.Objects, []string{"Gateway shop/g", "VirtualService shop/web"}) || c.All != 0 || c.Half == 0 {
		t.Errorf("%+v", c)
	}
	if a := MergeChanges(Window{Limit: 10}, "config", map[string]bool{"Sidecar shop/x": true}, parts); len(a.Items) != 1 || a.Items[0].All != 0.001 {
		t.Errorf("one object: %+v", a.Items)
	}
	first := MergeChanges(Window{Limit: 1}, "", nil, parts)
	w, err := ParseWindow(url.Values{"limit": {"5"}, "continue": {first.Next}})
	if rest := MergeChanges(w, "", nil, parts); err != nil || len(first.Items) != 1 || len(rest.Items) != 2 || rest.Next != "" {
		t.Errorf("windows: %v, %+v, %+v", err, first.Items, rest.Items)
	}
}

// A delivery is done when all replicas are, and none is missing; it names a bounded number of proxies.
func TestMergeDeliveries(t *testing.T) {
	many := make([]Pending, 3*MaxNamed)
	of := func(c ledger.Counts) []ledger.Report { return []ledger.Report{{Counts: c}} }
	done := From[Delivered]{"a", Delivered{Planned: true, Done: true,
		Changes: of(ledger.Counts{Affected: 2, Refused: 1, Took: ledger.Took{Counts: []int{1}}})}}
	behind := From[Delivered]{"b", Delivered{Planned: true, Pending: many, PendingCount: 500, Changes: of(ledger.Counts{Affected: 500})}}
	for _, one := range []struct {
		parts   []From[Delivered]
		missing int
		done    bool
	}{{[]From[Delivered]{done}, 0, true}, {[]From[Delivered]{done}, 1, false},
		{[]From[Delivered]{done, behind}, 0, false}, {nil, 0, true}} {
		a := MergeDeliveries(7, one.parts, one.missing)
		if d := a.Items[0]; d.Done != one.done || len(d.Pending) > MaxNamed || d.Revision != 7 {
			t.Errorf("%d parts, %d missing: %+v", len(one.parts), one.missing, d)
		}
	}
	d := MergeDeliveries(7, []From[Delivered]{done, behind}, 0).Items[0]
	if c := d.Change; c.Affected != 502 || c.Acknowledged != 1 || c.Refused != 1 || d.PendingCount != 500 {
		t.Errorf("%+v, %+v", d, d.Change)
	}
}

// Any query is read or refused, and windows of it stay within their bounds.
func FuzzSelection(f *testing.F) {
	f.Add("limit=3&continue=eA&labels=app%3Dweb&sort=zone&state=behind")
	f.Fuzz(func(t *testing.T, query string) {
		q, err := url.ParseQuery(query)
		if err != nil {
			return
		}
		s, err := ParseSelection(q)
		if err != nil {
			return
		}
		a := s.MergeProxies([]From[Proxies]{{"a", s.PartOf(at("a", "x", 5, nil))}})
		if len(a.Items) > s.Limit || a.Sums.Total.InSync != 5 {
			t.Errorf("%+v", a)
		}
		for _, p := range a.Items {
			s.Selects(&p, map[string]string{"app": "web"})
		}
	})
}

// The windows of the states of proxies have each proxy of each replica once, in order, whatever the replicas' parts
// are.
func TestWindowsOfSyncs(t *testing.T) {
	fleet := map[string][]inspect.Sync{"c": nil}
	for i := range 23 {
		replica := "a"
		if i < 6 && i%2 == 0 { // later windows are of one replica
			replica = "b"
		}
		fleet[replica] = append(fleet[replica], inspect.Sync{Proxy: fmt.Sprintf("web-%02d.shop", i), Replica: replica, Node: "n"})
	}
	var seen []string
	w := Window{Limit: 4}
	for windows := 0; windows == 0 || w.After != ""; windows++ {
		var parts []From[Syncs]
		for _, replica := range []string{"c", "b", "a"} {
			part, err := PartOfSyncs(w, fleet[replica])
			if err != nil {
				t.Fatal(err)
			}
			parts = append(parts, From[Syncs]{replica, part})
		}
		a, err := MergeSyncs(w, parts)
		if err != nil || len(a.Items) > 4 || windows > 6 {
			t.Fatalf("window %d: %d items, %v", windows, len(a.Items), err)
		}
		for _, raw := range a.Items {
			seen = append(seen, string(raw[strings.Index(string(raw), "web-"):][:11]))
		}
		if w, err = ParseWindow(url.Values{"limit": {"4"}, "continue": {a.Next}}); err != nil {
			t.Fatal(err)
		}
	}
	if len(seen) != 23 || !slices.IsSorted(seen) || len(slices.Compact(slices.Clone(seen))) != 23 {
		t.Errorf("%d proxies: %v", len(seen), seen)
	}
}

// Problems are merged the same way in whichever order the processes answered, and each is listed once.
func TestMergedProblems(t *testing.T) {
	of := func(object, location string, severity problem.Severity, proxies int) Problem {
		return Problem{Problem: inspect.Problem{Object: object, Location: location, Severity: severity, Proxies: proxies}}
	}
	a := From[[]Problem]{"a", []Problem{of("Gateway shop/x", "a", problem.Warning, 2), of("Gateway pay/y", "a", problem.Error, 0)}}
	b := From[[]Problem]{"b", []Problem{of("Gateway shop/x", "b", problem.Warning, 3), of("Namespace shop", "b", problem.Error, 0)}}
	for query, want := range map[string]string{
		"":                               "Gateway pay/y a 0 1,Namespace shop b 0 1,Gateway shop/x a 5 2",
		"namespace=shop":                 "Namespace shop b 0 1,Gateway shop/x a 5 2",
		"namespace=shop&severity=error":  "Namespace shop b 0 1",
		"object=Gateway shop/x":          "Gateway shop/x a 5 2",
		"limit=1":                        "Gateway pay/y a 0 1",
		"severity=warning&namespace=pay": "",
	} {
		q, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		for _, parts := range [][]From[[]Problem]{{a, b}, {b, a}} {
			s, err := ParseProblemSelection(q)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, p := range s.MergeProblems(parts).Items {
				got = append(got, fmt.Sprint(p.Object, " ", p.Location, " ", p.Proxies, " ", p.Replicas))
			}
			if strings.Join(got, ",") != want {
				t.Errorf("%q: %v, want %s", query, got, want)
			}
		}
	}
}
