package gateway

import (
	"fmt"
	"slices"
	"testing"
)

// A host concerns the route configurations alone whose servers state a host that overlaps it, however many there are.
func TestHostsConcernTheirServersAlone(t *testing.T) {
	all := map[string]*config{}
	add := func(name string, hosts ...string) {
		c := &config{stated: stated{}}
		for _, h := range hosts {
			c.stated[h] = []statedHost{{}}
		}
		c.Name, all[name] = name, c
	}
	for i := range 2500 {
		add(fmt.Sprint(i), fmt.Sprintf("*.l%d.test", i), fmt.Sprintf("l%d.test", i))
	}
	add("plain", "*")
	s := newStating(all)
	for host, want := range map[string][]string{
		"a.l7.test":   {"7", "plain"},
		"l7.test":     {"7", "plain"},
		"*.l7.test":   {"7", "plain"},
		"*.a.l7.test": {"7", "plain"},
		"other.test":  {"plain"},
	} {
		var got []string
		for _, c := range s.configs(host) {
			if got = append(got, c.Name); len(c.domains(host)) == 0 {
				t.Errorf("%s: %s has no domain for it", host, c.Name)
			}
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", host, got, want)
		}
	}
	if n := len(s.configs("*.test")); n != 2501 {
		t.Errorf("a wildcard over all hosts concerns %d route configurations", n)
	}
}
