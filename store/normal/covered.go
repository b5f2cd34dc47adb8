package normal

import "strings"

// hostIndex tells which hosts of a list are the same as a name, or wildcards that cover it, without a look at each of them.
type hostIndex struct {
	first   map[string]int // where each host is first, by hostOf
	endings map[int]bool   // lengths of what follows the star of its wildcards
}

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

// wildcards lists where the wildcards are that cover a name, the name itself not among them.
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

// covers says whether one of the hosts is name or a wildcard that covers it.
func (x hostIndex) covers(name string) bool {
	_, is := x.first[hostOf(name)]
	return is || len(x.wildcards(name)) > 0
}
