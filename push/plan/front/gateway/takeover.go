package gateway

import (
	"cmp"
	"slices"

	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/build/vhost"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/virtualservice"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/problem"
)

// takenUnit returns the key in Front.problems for the problems of a virtual host.
func takenUnit(c *config, domain string) string { return "taken " + c.Name + " " + domain }

// takenOver reports takeovers and lost matches among the VirtualServices of a virtual host. In a takeover, a younger
// VirtualService gets requests that match an older VirtualService of another namespace. Both VirtualServices get a
// problem. A match is lost if a match of another VirtualService precedes it and gets all of its requests. The
// VirtualService with the lost match gets a problem.
//
// Takeovers are possible because a match for all requests comes after other matches, even if its VirtualService is
// older. All matches of the younger VirtualService come first if it is bound to an older Gateway, or if exportTo gives
// it precedence. Only the paths of matches are compared, not their other conditions. The time is linear in the number
// and length of the paths.
func (f *Front) takenOver(c *config, domain string, of intern.List[vhost.Rule]) []input.Problem {
	rules := of.All()
	if !slices.ContainsFunc(rules, func(r vhost.Rule) bool { return r.VirtualService != rules[0].VirtualService }) {
		return nil
	}
	t := takeovers{host: domain, named: map[[2]*model.VirtualService]bool{}, taken: map[*model.VirtualService]bool{},
		lost: map[*model.VirtualService]bool{}}
	var all []claim
	for _, r := range f.hosts.BoundOrder(of, c.port, view.Inputs{Labels: f.Key.Edge.Value().Labels}) {
		all = append(all, claimsOf(r)...)
	}
	t.compare(all, func(before, after *claim) {
		t.takes(before.vs, after.vs, after.path)
		if before.alone && (before.path == "" || before.anyCase || !after.anyCase) && !after.dead {
			after.dead = true
			t.loses(before.vs, after.vs, after.path)
		}
	})
	all = slices.DeleteFunc(all, func(c claim) bool { return c.dead })
	slices.Reverse(all)
	t.compare(all, func(before, after *claim) { t.takes(after.vs, before.vs, after.path) })
	return t.found
}

// claim is the path of one match of a VirtualService.
type claim struct {
	vs     *model.VirtualService
	path   string
	prefix bool // the match is for all paths with this prefix
	regex  bool // the path is a regular expression
	alone  bool // the match has no other conditions
	dead   bool // an earlier claim gets all requests of this claim

	anyCase bool // the match ignores the case of the path
}

// claimsOf returns the claims of a rule's matches that apply. A rule without matches claims all paths.
func claimsOf(r vhost.Rule) (out []claim) {
	if len(r.HTTP().GetMatch()) == 0 {
		return []claim{{vs: r.VirtualService, prefix: true, alone: true}}
	}
	excluded := r.Excluded.All()
	for i, m := range r.HTTP().GetMatch() {
		if len(excluded) > 0 && excluded[0] == i {
			excluded = excluded[1:]
			continue
		}
		out = append(out, claimOf(r.VirtualService, m))
	}
	return out
}

// claimOf returns the claim of a match. A match without a path claims all paths.
func claimOf(vs *model.VirtualService, m *networkingv1.HTTPMatchRequest) claim {
	c := claim{vs: vs, anyCase: m.GetIgnoreUriCase(), alone: virtualservice.CatchesAll(&networkingv1.HTTPMatchRequest{Headers: m.GetHeaders(),
		WithoutHeaders: m.GetWithoutHeaders(), QueryParams: m.GetQueryParams(), Method: m.GetMethod(),
		Authority: m.GetAuthority(), Scheme: m.GetScheme()})}
	switch u := m.GetUri().GetMatchType().(type) {
	case *networkingv1.StringMatch_Exact:
		c.path = u.Exact
	case *networkingv1.StringMatch_Prefix:
		c.path, c.prefix = u.Prefix, true
	case *networkingv1.StringMatch_Regex:
		if c.prefix = virtualservice.CatchesAll(m); !c.prefix {
			c.path, c.regex = u.Regex, true
		}
	default:
		c.prefix = true
	}
	return c
}

// takeovers collects the problems of takeovers at one virtual host.
type takeovers struct {
	host  string
	named map[[2]*model.VirtualService]bool // pairs of younger and older VirtualServices with a problem
	taken map[*model.VirtualService]bool    // older VirtualServices with a problem
	lost  map[*model.VirtualService]bool    // VirtualServices with a problem of a lost match
	found []input.Problem
}

// compare calls the function meets for pairs of claims. The first claim of a pair precedes the second in the list, and
// covers its path. Of several preceding claims with the same path, only the last is compared.
func (t *takeovers) compare(all []claim, meets func(before, after *claim)) {
	prefixes, others := map[uint64]*claim{}, map[claim]*claim{}
	for i := range all {
		c := &all[i]
		if alike := (claim{path: c.path, regex: c.regex}); !c.prefix {
			if before := others[alike]; before != nil {
				meets(before, c)
			}
			others[alike] = c
		}
		if c.regex {
			continue
		}
		// The hash of each prefix of the path is computed from the hash of the prefix that is one byte shorter
		// (FNV-1a).
		hash := uint64(14695981039346656037)
		for n := 0; ; n++ {
			if before := prefixes[hash]; before != nil && before.path == c.path[:n] {
				meets(before, c)
			}
			if n == len(c.path) {
				break
			}
			hash = (hash ^ uint64(c.path[n])) * 1099511628211
		}
		if c.prefix {
			prefixes[hash] = c
		}
	}
}

// loses reports that a match of the second VirtualService gets no requests, because a match of the first VirtualService
// precedes it. If a takeover from the second VirtualService was reported before, loses does nothing. Each
// VirtualService gets a problem for its first lost match only.
func (t *takeovers) loses(to, of *model.VirtualService, path string) {
	if to == of || t.taken[of] || t.lost[of] {
		return
	}
	t.lost[of] = true
	t.found = append(t.found, input.WarningAbout(of.Key, problem.Duplicate, "spec.http",
		"a match for %s%s at gateways gets no requests: %v precedes it and gets all of them", t.host, orSlash(path), model.OtherOf(to)))
}

// orSlash returns a path, or "/" for an empty path, which is a prefix of all paths.
func orSlash(path string) string { return cmp.Or(path, "/") }

// takes reports that the first VirtualService takes a path from the second, if the first is younger and of another
// namespace. The older VirtualService gets a problem for its first takeover only.
func (t *takeovers) takes(by, from *model.VirtualService, path string) {
	pair := [2]*model.VirtualService{by, from}
	if by.Key.Namespace == from.Key.Namespace || by.Older(&from.Head) < 0 || t.named[pair] {
		return
	}
	t.named[pair] = true
	path = orSlash(path)
	younger, older := model.OtherOf(by), model.OtherOf(from)
	younger.Hidden, older.Hidden = "an object", "an object" // the message says that it is of another namespace
	t.found = append(t.found, input.WarningAbout(by.Key, problem.Duplicate, "spec.http",
		"takes requests for %s%s at gateways from %v, which is older and of another namespace", t.host, path, older))
	if !t.taken[from] {
		t.taken[from] = true
		t.found = append(t.found, input.WarningAbout(from.Key, problem.Duplicate, "spec.http",
			"requests for %s%s at gateways go to %v, which is younger and of another namespace", t.host, path, younger))
	}
}
