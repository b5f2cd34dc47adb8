package delta

import (
	"slices"
	"strings"

	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/xds"
)

// maxScan is the number of bytes of Envoy's message that are searched for names.
const maxScan = 64 << 10

// refuse processes a NACK of a response. The client keeps its previous versions, but Envoy may have applied some
// resources of the response. If Envoy's message names the refused resource, the version of this resource is quarantined
// (not sent again). The other resources of the response are sent again. If the refused resource is not known, all are
// sent again, in two halves. A response without resources counts as accepted.
func (s *State) refuse(r Request, f flight, out []Report) []Report {
	ty := &s.types[r.Type]
	before := ty.acked
	ty.settles(f)
	text := strings.ToValidUTF8(r.Error[:min(len(r.Error), maxScan)], "")
	refused := culprits(r.Type, text, f.set)
	if len(refused) == 0 && len(f.set) == 1 {
		refused = []string{f.set[0].Name}
	}
	report := Report{Kind: Nacked, Type: r.Type, Nonce: nonceText(f.nonce), Revision: f.revision, Text: excerpt(r.Type, r.Error)}
	if len(f.set) == 0 {
		ty.accept(f) // only removals: there is nothing to send again
		return append(out, report)
	}
	var rest []string
	reported := len(out)
	for _, res := range f.set {
		if !ty.wants(res.Name) {
			continue
		}
		o := ty.unanswered(res.Name, f, before)
		if slices.Contains(refused, res.Name) {
			if o.force = false; res.StandsIn() {
				o.noStandIn = true
			} else {
				o.refused = res.Version
			}
			culprit := report
			culprit.Name, culprit.Version = res.Name, res.Version
			if o.have != nil {
				culprit.Good = o.have.Version
			}
			out = append(out, culprit)
		} else {
			o.mayHave(res)
			if o.flying == 0 { // otherwise a newer response carries it already
				rest = append(rest, res.Name)
			}
		}
		ty.put(res.Name, o)
		if r.Type == xds.Cluster && o.refused == res.Version && o.have == nil && !o.claimed {
			s.fallBack(res.Name)
		}
	}
	if len(out) == reported { // no culprit is known, or none is subscribed to any more
		out = append(out, report)
	}
	ty.retry = append(ty.groups(f, rest, before, len(refused) == 0), ty.retry...)
	return out
}

// maxMaybe is the maximum length of override.maybe. Older versions are dropped first.
const maxMaybe = 8

// mayHave records a version that a client may have applied from a response that it refused.
func (o *override) mayHave(r *xds.Resource) {
	if !slices.ContainsFunc(o.maybe, func(m *xds.Resource) bool { return same(m, r) }) {
		o.maybe = append(slices.Clone(o.maybe), r)
		o.maybe = o.maybe[max(0, len(o.maybe)-maxMaybe):]
	}
}

// unanswered returns the state of a name after the client has refused the response f. If a newer response in flight
// contains the name, the result refers to that response.
func (ty *typed) unanswered(name string, f flight, before manifest.Stack) override {
	o := ty.overrideOf(name, before)
	if o.flying == f.nonce {
		o.flying, o.now = 0, nil
	}
	if o.flying == 0 {
		o.flying, o.now = ty.later(f.nonce, name)
	}
	o.held = true
	return o
}

// groups returns the names that are sent again, in groups for separate responses. The argument rest has the names of
// the resources that were not found to be refused. They form one group, or two groups if halve is true. The removals of
// f belong to the first group.
func (ty *typed) groups(f flight, rest []string, before manifest.Stack, halve bool) (groups [][]string) {
	half := len(rest)
	if halve {
		half = (len(rest) + 1) / 2
	}
	first := slices.Clone(rest[:half])
	for _, name := range f.removed {
		o := ty.unanswered(name, f, before)
		ty.put(name, o)
		if o.flying == 0 {
			first = append(first, name)
		}
	}
	slices.Sort(first)
	if len(first) > 0 {
		groups = append(groups, first)
	}
	if half < len(rest) {
		groups = append(groups, rest[half:])
	}
	return groups
}

// culprits returns the names of the sent resources that Envoy's message names as refused. The list sent is sorted by
// name. Envoy's messages have these forms:
//   - for clusters and listeners: "Error adding/updating cluster(s) a: reason\nb: reason";
//   - for violated constraints: the printed resource, then the reason. The first `name: "x"` or `cluster_name: "x"` is
//     the name of the refused resource;
//   - for some errors of routes: "... in route x".
func culprits(t xds.Type, text string, sent []*xds.Resource) []string {
	is := func(name string) bool {
		_, ok := slices.BinarySearchFunc(sent, name, byName)
		return ok
	}
	if t == xds.Cluster || t == xds.Listener {
		if _, list, ok := strings.Cut(text, "Error adding/updating "+t.Noun()+"(s) "); ok {
			if names := lineNames(list, is); len(names) > 0 {
				return names
			}
		}
	}
	if strings.Contains(text, "onstraint") || strings.HasPrefix(text, "goo.gle/debug") {
		if name := printedName(text, is); name != "" {
			return []string{name}
		}
	}
	if t == xds.Route {
		return routeNames(text, is)
	}
	return nil
}

// lineNames returns the names that begin a line and precede a colon. The function isName reports whether a text is the
// name of a sent resource.
func lineNames(text string, isName func(string) bool) (names []string) {
	for line := range strings.SplitSeq(text, "\n") {
		for end := 0; ; {
			i := strings.Index(line[end:], ": ")
			if i < 0 {
				break
			}
			if end += i; isName(line[:end]) {
				names = append(names, strings.Clone(line[:end]))
				break
			}
			end += 2
		}
	}
	return names
}

// printedName returns the first name in a printed message, or "". The function isName reports whether a text is the
// name of a sent resource.
func printedName(text string, isName func(string) bool) string {
	for {
		_, after, ok := strings.Cut(text, `name: "`)
		if !ok {
			return ""
		}
		if name, _, ok := strings.Cut(after, `"`); ok && isName(name) {
			return strings.Clone(name)
		}
		text = after
	}
}

// routeNames returns the names x in texts "in route x", where x ends at the end of the line or of a word.
func routeNames(text string, isName func(string) bool) (names []string) {
	for {
		_, after, ok := strings.Cut(text, "in route ")
		if !ok {
			return names
		}
		line, _, _ := strings.Cut(after, "\n")
		word, _, _ := strings.Cut(line, " ")
		for _, candidate := range []string{line, word, strings.TrimRight(word, ".,;:")} {
			if isName(candidate) {
				names = append(names, strings.Clone(candidate))
				break
			}
		}
		text = after
	}
}

// excerpt shortens Envoy's message to maxText bytes. It keeps the beginning and the end, because the reason may follow
// a printed resource. For a secret it removes everything that may be content of the secret.
func excerpt(t xds.Type, text string) string {
	if t == xds.Secret {
		if i := strings.LastIndex(text, ": Proto constraint"); i >= 0 {
			text = text[i+2:]
		} else {
			text, _, _ = strings.Cut(text, "\n")
			text, _, _ = strings.Cut(text, `"`)
		}
	}
	if len(text) > maxText {
		const head = maxText / 3
		text = text[:head] + " ... " + text[len(text)-(maxText-head-5):]
	}
	return strings.ToValidUTF8(strings.Clone(text), "")
}
