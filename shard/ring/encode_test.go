package ring_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"navarch.io/navarch/shard/ring"
)

func FuzzDecode(f *testing.F) {
	w := newRandomFleet(9)
	f.Add(ring.Assign(nil, w.members(3), w.zipf()).Encode())
	f.Add((*ring.Ring)(nil).Encode())
	f.Add([]byte{8, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := ring.Decode(b)
		if err != nil {
			return
		}
		again, err := ring.Decode(r.Encode())
		if err != nil || string(again.Encode()) != string(r.Encode()) {
			t.Fatalf("does not survive: %v", err)
		}
		for s := range ring.Shards {
			r.Holder(s)
		}
		if len(r.Members()) > 0 {
			next := ring.Assign(r, r.Members(), ring.Load{Rest: 100})
			if _, ok := ring.Owner(next, "a", "b"); !ok {
				t.Fatal("no owner")
			}
		}
	})
}

func TestDecodeRefuses(t *testing.T) {
	whole := ring.Assign(nil, newRandomFleet(2).members(3), ring.Load{}).Encode()
	for name, b := range map[string][]byte{
		"nothing":    nil,
		"cut":        whole[:len(whole)-1],
		"later":      append([]byte{8, 3}, whole[2:]...),
		"no members": append([]byte{8, 1}, whole[strings.Index(string(whole), "\x22\x80\x02"):]...),
		"out of order": append(slices.Clone(whole), func() []byte {
			second := whole[4:]
			return second[:2+int(second[1])]
		}()...),
		"large": make([]byte, ring.MaxBytes+1),
	} {
		if _, err := ring.Decode(b); err == nil {
			t.Errorf("%s: was decoded", name)
		}
	}
	if len(whole) > 450 {
		t.Errorf("a ring of three takes %d bytes", len(whole))
	}
}

// Every ring that Assign makes can be read again, however many members and split namespaces with long names there are.
func TestRingsAreReadable(t *testing.T) {
	long := func(i int) string { return fmt.Sprintf("%0*d", ring.MaxName, i) }
	load := ring.Load{Namespaces: map[string]ring.NamespaceLoad{fmt.Sprintf("%0*d", ring.MaxName+1, 0): {Streams: 1000}}}
	for i := range 3000 {
		load.Namespaces[long(i)] = ring.NamespaceLoad{Streams: 1000}
	}
	var members []ring.Member
	for i := range ring.MaxMembers {
		members = append(members, ring.Member{Name: long(i), Address: long(i), Weight: ring.FullWeight})
	}
	for _, n := range []int{400, ring.MaxMembers} {
		made := ring.Assign(nil, members[:n], load)
		r, err := ring.Decode(made.Encode())
		if err != nil {
			t.Fatalf("%d members: %d bytes, %v", n, len(made.Encode()), err)
		}
		if len(r.Members()) < 400 || !r.Split(long(0)) {
			t.Errorf("%d of %d members, split %t", len(r.Members()), n, r.Split(long(0)))
		}
	}
}
