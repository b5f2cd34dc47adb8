package normal

import "strings"

// hostIndex finds the hosts of a list that are equal to a name, or are wildcards that cover the name. It does not
// compare each host.
type hostIndex struct {
	first   map[string]int // index of the first occurrence of each host, by hostOf (lower case)
	endings map[int]bool   // lengths of the wildcards in the list, without their star
}

// indexHosts returns the index of a list of hosts.
func indexHosts(hosts []string) hostIndex {
	x := hostIndex{map[string]int{}, map[int]bool{}}
	for i, h := range hosts {
		h = hostOf(h)
		if _, twice := x.first[h]; !twice {
			x.first[h] = i
		}
		if strings.HasPrefix(h, "*") {
			x.endings[len(h)-1] = true
		}
	}
	return x
}

// wildcards returns the indices of the wildcards that cover a name, in no order. The name itself does not count.
func (x hostIndex) wildcards(name string) (all []int) {
	name = hostOf(name)
	rest := strings.TrimPrefix(name, "*")
	for n := range x.endings {
		if n > len(rest) {
			continue
		}
		wildcard := "*" + rest[len(rest)-n:]
		if i, is := x.first[wildcard]; is && wildcard != name {
			all = append(all, i)
		}
	}
	return all
}

// covers reports whether one of the hosts is equal to name, or is a wildcard that covers name.
func (x hostIndex) covers(name string) bool {
	_, is := x.first[hostOf(name)]
	return is || len(x.wildcards(name)) > 0
}
