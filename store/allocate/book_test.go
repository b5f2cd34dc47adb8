package allocate

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"navarch.io/navarch/store/normal"
)

var (
	start  = time.Unix(1_700_000_000, 0)
	ranges = []netip.Prefix{netip.MustParsePrefix(IPv4Range), netip.MustParsePrefix(IPv6Range)}
)

func ips(all ...string) (out []netip.Addr) {
	for _, a := range all {
		out = append(out, netip.MustParseAddr(a))
	}
	return out
}

// entryOf is a ServiceEntry that was created so many seconds after start. hosts: a name, and = and addresses with
// commas where its status has some.
func entryOf(name string, created int, hosts ...string) ServiceEntry {
	e := ServiceEntry{Name: Name{"shop", name}, Created: start.Unix() + int64(created),
		EntryAddresses: normal.EntryAddresses{Given: map[string][]netip.Addr{}}}
	for _, h := range hosts {
		host, status, given := strings.Cut(h, "=")
		if e.Hosts = append(e.Hosts, host); given {
			e.Given[host] = ips(strings.Split(status, ",")...)
		}
	}
	slices.Sort(e.Hosts)
	return e
}

func (b *book) say(names ...string) string {
	var out []string
	for _, name := range names {
		all := b.Addresses(Name{"shop", name})
		for _, host := range slices.Sorted(maps.Keys(all)) {
			out = append(out, fmt.Sprint(name, " ", host, " ", all[host]))
		}
	}
	return strings.Join(out, "; ")
}

func messages(b *book) (text string) {
	for _, p := range b.Problems(9) {
		text += p.Name.String() + ": " + p.Message + "; "
	}
	return text
}

// One book from the first ServiceEntry on: every host has its own address of each range, the same in every book. It
// keeps the address while others are added and removed, and while it is absent for less than the grace.
func TestGive(t *testing.T) {
	b := newBook(time.Minute, ranges...)
	b.Put(entryOf("a", 0, "a.example.com", "b.example.com"))
	b.Put(entryOf("c", 1, "a.example.com"))
	altered, wait := b.Step(start, self)
	if fmt.Sprint(altered) != "[shop/a shop/c]" || wait != 0 {
		t.Errorf("altered %v, wait %v", altered, wait)
	}
	first := b.say("a", "c")
	if n := strings.Count(first, "240.240."); n != 3 || strings.Count(first, "2001:2::") != 3 || len(b.owners) != 6 {
		t.Fatalf("%s", first)
	}
	other := newBook(time.Minute, ranges...) // another leader, which receives them in another order
	other.Put(entryOf("c", 1, "a.example.com"))
	other.Step(start, self)
	other.Put(entryOf("a", 0, "a.example.com", "b.example.com"))
	other.Step(start, self)
	if got := other.say("a", "c"); got != first {
		t.Errorf("another leader: %s\nthis one %s", got, first)
	}
	b.Put(entryOf("a", 0, "b.example.com"))
	b.Remove(Name{"shop", "c"})
	if altered, wait := b.Step(start, self); fmt.Sprint(altered) != "[shop/a shop/c]" || wait != time.Minute {
		t.Errorf("two hosts go: altered %v, wait %v", altered, wait)
	}
	if b.say("c") != "" || len(b.Kept(Name{"shop", "c"})) != 1 || len(b.Kept(Name{"shop", "a"})) != 2 {
		t.Errorf("they have %s, kept %v %v", b.say("c"), b.Kept(Name{"shop", "a"}), b.Kept(Name{"shop", "c"}))
	}
	b.Put(entryOf("a", 0, "a.example.com", "b.example.com"))
	b.Put(entryOf("c", 50, "a.example.com"))
	if b.Step(start.Add(59*time.Second), self); b.say("a", "c") != first {
		t.Errorf("back within the grace: %s", b.say("a", "c"))
	}
	b.Remove(Name{"shop", "c"})
	b.Step(start.Add(time.Hour), self)
	if altered, wait := b.Step(start.Add(time.Hour+time.Minute), self); fmt.Sprint(altered) != "[shop/c]" || wait != 0 ||
		len(b.owners) != 4 || len(b.entries) != 1 || len(b.leaving) != 0 {
		t.Errorf("after the grace: altered %v, wait %v, %d addresses of %d ServiceEntries", altered, wait, len(b.owners), len(b.entries))
	}
}

// The order of rights: an address that is stored, one that a ServiceEntry states, one in a status, of two the older
// object's, a new one.
// Promise: security-tenants.md#take-traffic-or-weaken-policies
func TestRights(t *testing.T) {
	const v4, v6 = "240.240.7.7", "2001:2::7"
	stating := ServiceEntry{Name: Name{"shop", "s"}, EntryAddresses: normal.EntryAddresses{Stated: ips(v4)}}
	fresh, _ := newBook(time.Minute, ranges...).choose(slot{Name{"shop", "a"}, "h"}, ranges)
	fresh4, fresh6 := fresh[0].String(), fresh[1].String()
	ofB, _ := newBook(time.Minute, ranges...).choose(slot{Name{"shop", "b"}, "h"}, ranges)
	for name, c := range map[string]struct {
		stored  map[string]Hosts
		entries []ServiceEntry
		by      giver
		want    string
	}{
		"a status": {nil, []ServiceEntry{entryOf("a", 0, "h="+v4+","+v6)}, others,
			"a h [240.240.7.7 2001:2::7]"},
		"a status of one family": {nil, []ServiceEntry{entryOf("a", 0, "h="+v6)}, self,
			"a h [" + fresh4 + " 2001:2::7]"},
		"a status outside the ranges": {nil, []ServiceEntry{entryOf("a", 0, "h=192.0.2.1")}, self,
			"a h [" + fresh4 + " " + fresh6 + "]"},
		"a status, and what is stored": {map[string]Hosts{"a": {"h": ips("240.240.1.1")}},
			[]ServiceEntry{entryOf("a", 0, "h="+v4)}, self, "a h [240.240.1.1 " + fresh6 + "]"},
		"a status by istiod, and what is stored": {map[string]Hosts{"a": {"h": ips("240.240.1.1")}},
			[]ServiceEntry{entryOf("a", 0, "h="+v4)}, others, "a h [240.240.7.7]"},
		"a status, and what is stored, at a term's start": {map[string]Hosts{"a": {"h": ips("240.240.1.1")}},
			[]ServiceEntry{entryOf("a", 0, "h="+v4)}, unknown, "a h [240.240.1.1]"},
		"a status of eight": {nil, []ServiceEntry{entryOf("a", 0,
			"h=240.240.7.1,240.240.7.2,240.240.7.3,240.240.7.4,2001:2::7,2001:2::8")}, self, "a h [240.240.7.1 2001:2::7]"},
		"stored by one, in the status of an older one": {map[string]Hosts{"b": {"h": ips(v4, v6)}}, []ServiceEntry{entryOf("b",
			1, "h"), entryOf("a", 0, "h="+v4)}, self, "b h [240.240.7.7 2001:2::7]; a h [" + fresh4 + " " + fresh6 + "]"},
		"the same while istiod gives them": {map[string]Hosts{"b": {"h": ips(v4, v6)}}, []ServiceEntry{entryOf("b", 1,
			"h="+v4+","+v6), entryOf("a", 0, "h="+v4)}, others,
			"b h [240.240.7.7 2001:2::7]"},
		"the same at a term's start": {map[string]Hosts{"b": {"h": ips(v4, v6)}}, []ServiceEntry{entryOf("b",
			1, "h"), entryOf("a", 0, "h="+v4)}, unknown, "b h [240.240.7.7 2001:2::7]"},
		"a status of one family, and what is stored": {map[string]Hosts{"a": {"h": ips("240.240.1.1", "2001:2::99")}},
			[]ServiceEntry{entryOf("a", 0, "h="+v4)}, others, "a h [240.240.7.7 2001:2::99]"},
		"what is stored": {map[string]Hosts{"a": {"h": ips("240.240.1.1")}},
			[]ServiceEntry{entryOf("a", 0, "h")}, others, "a h [240.240.1.1]"},
		"nothing": {nil, []ServiceEntry{entryOf("a", 0, "h")}, others, ""},
		"two of one status": {nil, []ServiceEntry{entryOf("b", 0, "h="+v4), entryOf("a", 1, "h="+v4)},
			others, "b h [240.240.7.7]"},
		"two hosts of one status": {nil, []ServiceEntry{entryOf("a", 0, "g="+v4, "h="+v4)}, others,
			"a g [240.240.7.7]"},
		"stored by one, in the status of a younger one": {map[string]Hosts{"b": {"h": ips(v4)}}, []ServiceEntry{entryOf("b", 0,
			"h"), entryOf("a", 1, "h="+v4)}, others, "a h [240.240.7.7]"},
		"stated by one, in the status of another": {nil, []ServiceEntry{entryOf("a", 0, "h="+v4), stating}, others, ""},
		"stated by one, stored of another": {map[string]Hosts{"a": {"h": ips(v4)}}, []ServiceEntry{entryOf("a", 0,
			"h"), stating}, others, "a h [240.240.7.7]"},
		"stated by one, stored of another whose status has it": {map[string]Hosts{"a": {"h": ips(v4, v6)}},
			[]ServiceEntry{entryOf("a", 0, "h="+v4+","+v6), stating}, others,
			"a h [240.240.7.7 2001:2::7]"},
		"one family lost to an older one": {nil, []ServiceEntry{entryOf("b", 0, "h="+v4), entryOf("a", 1, "h="+v4+","+v6)}, self,
			"b h [240.240.7.7 " + ofB[1].String() + "]; a h [" + fresh4 + " 2001:2::7]"},
	} {
		for _, backwards := range []bool{false, true} {
			b := newBook(time.Minute, ranges...)
			for name, hosts := range c.stored {
				b.Load(Name{"shop", name}, hosts)
			}
			entries := slices.Clone(c.entries)
			if backwards {
				slices.Reverse(entries)
			}
			for _, e := range entries {
				b.Put(e)
			}
			b.Step(start, c.by)
			if got := b.say("b", "a"); got != c.want {
				t.Errorf("%s, backwards %v: %q, want %q", name, backwards, got, c.want)
			}
			if b.Step(start, self); strings.Count(b.say("b", "a"), "[") < strings.Count(c.want, "[") {
				t.Errorf("%s: with new ones %s", name, b.say("b", "a"))
			}
			if b.Problems(9) != nil {
				t.Errorf("%s: %v", name, b.Problems(9))
			}
		}
	}
}

// A range without free addresses yields a problem that names it. Hosts with addresses keep them, and a released address
// is assigned to another host. The bounds of one ServiceEntry and of one namespace behave alike.
// Promise: security-tenants.md#take-traffic-or-weaken-policies
func TestExhausted(t *testing.T) {
	b := newBook(time.Minute, netip.MustParsePrefix("240.240.0.0/28"), netip.MustParsePrefix("2001:2::/120"))
	for i := range 20 {
		b.Put(entryOf(fmt.Sprintf("e%02d", i), i, "h"))
	}
	b.Step(start, self)
	problems := b.Problems(3)
	if len(b.owners) != 28 || len(problems) != 4 || problems[0].Name != (Name{"shop", "e14"}) ||
		!strings.Contains(problems[0].Message, "240.240.0.0/28 are given away") || !strings.Contains(problems[3].Message, "3 more") {
		t.Fatalf("%d addresses, %v", len(b.owners), problems)
	}
	before := b.say("e00", "e13")
	b.Remove(Name{"shop", "e05"})
	b.Step(start, self)
	if b.Step(start.Add(time.Minute-1), self); b.say("e14") != "" {
		t.Errorf("within the grace another has its address: %s", b.say("e14"))
	}
	if b.Step(start.Add(time.Minute), self); b.say("e14") == "" || b.say("e15") != "" || b.say("e00", "e13") != before ||
		len(b.Problems(9)) != 5 {
		t.Errorf("after the grace: %q %q, problems %v", b.say("e14"), b.say("e15"), b.Problems(9))
	}
	b = newBook(time.Minute, ranges...)
	var many []string
	for i := range mostOfEntry + 1 {
		many = append(many, fmt.Sprintf("h%04d", i))
	}
	b.Put(entryOf("many", 0, many...))
	if b.Step(start, self); len(b.Addresses(Name{"shop", "many"})) != mostOfEntry || !strings.Contains(messages(b), "h0256") {
		t.Errorf("%d hosts, %v", len(b.Addresses(Name{"shop", "many"})), b.Problems(9))
	}
	b.of["shop"] = MostOfNamespace
	b.Put(entryOf("adopted", 1, "h=240.240.7.7"))
	b.Put(entryOf("more", 1, "h"))
	more := entryOf("more", 1, "h")
	more.Namespace = "other"
	b.Put(more)
	if b.Step(start, self); b.say("more", "adopted") != "" || len(b.Addresses(more.Name)) != 1 || !strings.Contains(messages(b),
		"namespace shop") {
		t.Errorf("%q, %v, %v", b.say("more", "adopted"), b.Addresses(more.Name), b.Problems(9))
	}
}

// A removed ServiceEntry without assigned addresses leaves nothing in the book. Its hosts need no addresses, or another
// party assigns them, or the namespace's bound is reached.
func TestRemovedWithoutAddresses(t *testing.T) {
	b := newBook(time.Minute, ranges...)
	for i := range 10 {
		b.Put(entryOf("none", i))
		b.Put(entryOf("others", i, "a.example.com"))
		if altered, _ := b.Step(start, others); len(altered) > 0 || len(b.entries) != 2 {
			t.Fatalf("altered %v, %d entries", altered, len(b.entries))
		}
		b.Remove(Name{"shop", "none"})
		b.Remove(Name{"shop", "others"})
		if altered, wait := b.Step(start, others); len(altered) > 0 || wait != 0 || len(b.entries)+len(b.short)+len(b.changed) > 0 {
			t.Errorf("altered %v, wait %v, entries %v, short %v", altered, wait, b.entries, b.short)
		}
	}
	b.of["shop"] = MostOfNamespace
	b.Put(entryOf("beyond", 0, "a.example.com"))
	b.Step(start, self)
	b.Remove(Name{"shop", "beyond"})
	if b.Step(start, self); len(b.entries)+len(b.short) > 0 {
		t.Errorf("entries %v, short %v", b.entries, b.short)
	}
}

// A namespace can withhold a bounded number of addresses of the ranges by stating them, and releases them with its
// ServiceEntries.
// Promise: security-tenants.md#take-traffic-or-weaken-policies
func TestStatedByOne(t *testing.T) {
	b := newBook(time.Minute, ranges...)
	for i := range 260 {
		e := ServiceEntry{Name: Name{"shop", fmt.Sprint(i)}}
		for j := range 256 {
			e.Stated = append(e.Stated, netip.AddrFrom4([4]byte{240, 240, byte(i), byte(j)}))
		}
		b.Put(e)
		b.Put(e)
	}
	if b.Step(start, self); b.used[0] != MostOfNamespace-1 || // without the first address of the range
		b.statedIn["shop"] != MostOfNamespace {
		t.Errorf("%d addresses of the range are used, %d counted", b.used[0], b.statedIn["shop"])
	}
	for i := range 260 {
		b.Remove(Name{"shop", fmt.Sprint(i)})
	}
	if b.Step(start, self); b.used[0] != 0 || len(b.stated) != 0 || len(b.statedIn) != 0 {
		t.Errorf("without them %d are used, %d stated", b.used[0], len(b.stated))
	}
}

// For any events in any order: no two hosts have the same address, no host lacks one while there are free ones, stating
// an address takes it from no host, and the book is consistent.
func TestRandomBook(t *testing.T) {
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		small := []netip.Prefix{netip.MustParsePrefix("240.240.0.0/27"), netip.MustParsePrefix("2001:2::/48")}
		b, now := newBook(time.Minute, small...), start
		for range 100 {
			name := string(rune('a' + rnd.IntN(8)))
			if rnd.IntN(4) == 0 {
				b.Remove(Name{"shop", name})
			} else {
				e := entryOf(name, rnd.IntN(20))
				for _, host := range []string{"g", "h", "i"} {
					switch rnd.IntN(4) {
					case 0:
						e.Hosts = append(e.Hosts, host)
					case 1:
						e.Hosts = append(e.Hosts, host)
						e.Given[host] = ips(fmt.Sprintf("240.240.0.%d", 1+rnd.IntN(30)))
					}
				}
				if len(e.Hosts) == 0 {
					e.Stated = ips(fmt.Sprintf("240.240.0.%d", rnd.IntN(32)))
				}
				b.Put(e)
			}
			now = now.Add(time.Duration(rnd.IntN(30)) * time.Second)
			by := []giver{self, self, self, others, unknown}[rnd.IntN(5)]
			b.Step(now, by)
			check(t, b, by == self)
			if t.Failed() {
				t.Fatalf("seed %d", seed)
			}
		}
	}
}

// assignable reports whether a is neither the first nor the last address of a range.
func assignable(p netip.Prefix, a netip.Addr) bool {
	return a != p.Masked().Addr() && p.Contains(a.Next())
}

// An address that is both assigned and stated is one used address, and a stated first or last address of a range is
// none: a host still gets the last free address.
func TestUsedOnce(t *testing.T) {
	b := newBook(time.Minute, netip.MustParsePrefix("240.240.0.0/29")) // 6 assignable addresses
	b.Put(entryOf("a", 0, "1=240.240.0.1", "2=240.240.0.2", "3=240.240.0.3"))
	b.Step(start, self)
	states := entryOf("states", 1)
	states.Stated = ips("240.240.0.0", "240.240.0.1", "240.240.0.2", "240.240.0.3", "240.240.0.7")
	b.Put(states)
	b.Put(entryOf("b", 2, "1", "2", "3"))
	if b.Step(start, self); len(b.owners) != 6 || b.used[0] != 6 || len(b.Problems(9)) != 0 {
		t.Errorf("%d addresses assigned, %d used: %v", len(b.owners), b.used[0], b.Problems(9))
	}
	b.Remove(Name{"shop", "a"})
	b.Step(start, self)
	if b.Remove(Name{"shop", "states"}); b.used[0] != 3 {
		t.Errorf("%d used after the removal, want 3", b.used[0])
	}
}

func check(t *testing.T, b *book, allocate bool) {
	t.Helper()
	seen, hosts, used := map[netip.Addr]bool{}, 0, make([]int, len(b.ranges))
	for name, e := range b.entries {
		for host, all := range e.has {
			hosts++
			for _, a := range all {
				if seen[a] || b.owners[a] != (slot{name, host}) {
					t.Errorf("%s of %s %s: twice %v, of %v", a, name, host, seen[a], b.owners[a])
				}
				seen[a] = true
			}
		}
		for _, host := range e.Hosts {
			if lacks := len(b.lacking(e.has[host])) > 0; lacks && !b.short[name] || lacks && allocate && e.problem == "" {
				t.Errorf("%s %s lacks an address, and nobody knows", name, host)
			}
		}
	}
	for i, p := range b.ranges {
		for a := range b.owners {
			if p.Contains(a) && assignable(p, a) {
				used[i]++
			}
		}
		for a := range b.stated {
			if _, owned := b.owners[a]; !owned && p.Contains(a) && assignable(p, a) {
				used[i]++
			}
		}
	}
	if len(seen) != len(b.owners) || b.of["shop"] != hosts || !slices.Equal(used, b.used) {
		t.Errorf("%d addresses given, %d known; %d hosts, %d counted; used %v, counted %v", len(seen), len(b.owners), hosts,
			b.of["shop"], used, b.used)
	}
}
