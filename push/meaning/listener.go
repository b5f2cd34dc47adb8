package meaning

import (
	"fmt"
	"iter"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"

	"navarch.io/navarch/push/xds"
)

// listenerFacts compares the two listeners of a pair. It takes the models of the listeners from the memo.
func listenerFacts(p Pair, m *memo) []Fact {
	old, new := as[*listenerv3.Listener](p.Old), as[*listenerv3.Listener](p.New)
	name := nameOf(old, new)
	f := Fact{Area: Listeners, Subject: "listener " + short(name)}
	switch {
	case old == nil:
		f.Text = "new: " + m.listenerText(new)
		return []Fact{f}
	case new == nil:
		f.Text = "gone: " + m.listenerText(old)
		return []Fact{f}
	case proto.Equal(old, new):
		return nil
	}
	c := m.listener(p)
	all := chainFacts(c.old, c.new, name, c.inbound)
	if f.Text = c.head; f.Text != "" {
		all = append(all, f)
	}
	return all
}

// isInbound reports whether a listener is for connections to the workload.
func isInbound(l *listenerv3.Listener) bool {
	return l.GetTrafficDirection() == corev3.TrafficDirection_INBOUND
}

// listenerText describes a listener that is new or gone: its address and the destinations of its chains.
func (p *parts) listenerText(l *listenerv3.Listener) string {
	return addressText(l.GetAddress()) + " to " + orNone(list(destinations(slices.Values(p.chainsOf(l)))))
}

// destinations describes the destinations of chains, in order and without repetitions.
func destinations(chains iter.Seq[chain]) (all []string) {
	seen := map[string]bool{}
	for c := range chains {
		if text := c.to(); !seen[text] {
			seen[text], all = true, append(all, text)
		}
	}
	return all
}

// head returns a listener without its filter chains.
func head(l *listenerv3.Listener) *listenerv3.Listener {
	out := &listenerv3.Listener{}
	l.ProtoReflect().Range(copyInto(out.ProtoReflect(), "filter_chains", "default_filter_chain"))
	return out
}

// headChange returns the differences of two listeners outside of their filter chains. It also reports whether Envoy
// would replace the listener, and drain all its connections. Envoy updates a listener in place if only its filter
// chains or the order of lists differ (TestEnvoyReplacesListeners).
func headChange(old, new *listenerv3.Listener) (c change, replaced bool) {
	a, b := head(old), head(new)
	if proto.Equal(a, b) {
		return nil, false
	}
	c.others(a, b)
	d := digester{sets: true}
	return c, d.message(a.ProtoReflect(), maxDepth) != d.message(b.ProtoReflect(), maxDepth)
}

// group is the part of a listener that has a common subject in facts. It is one port of an inbound listener, or a whole
// listener that is not inbound.
type group struct {
	port    uint32 // of the destination, as filters see it; 0: any, or unknown
	subject string
	chains  map[string]chain // by match; the keys are unique
}

// destinationPort returns the port of the connections of a listener, as its filters see it. If a listener filter may
// replace the address of the listener by another one, the result is 0.
func destinationPort(l *listenerv3.Listener) uint32 {
	for _, f := range l.GetListenerFilters() {
		if strings.HasSuffix(f.GetName(), ".proxy_protocol") || strings.HasSuffix(f.GetName(), ".original_dst") {
			return 0
		}
	}
	return l.GetAddress().GetSocketAddress().GetPortValue()
}

// groupsOf returns the groups of a listener's filter chains, by the subjects of their facts. The parameter bound is the
// destinationPort of the listener.
func groupsOf(chains []chain, name string, inbound bool, bound uint32) map[string]group {
	all := map[string]group{}
	for _, c := range chains {
		g := group{subject: "listener " + short(name), port: bound}
		if inbound {
			g.port = c.port
			g.subject = fmt.Sprintf("inbound port %d", c.port)
			if c.port == 0 {
				g.subject = "inbound, other ports"
			}
			if name != xds.VirtualInbound {
				g.subject += " of " + short(name)
			}
		}
		if known, is := all[g.subject]; is {
			g = known
		} else {
			g.chains = map[string]chain{}
		}
		key := c.match
		if !inbound && c.port != 0 {
			key = fmt.Sprintf("port %d %s", c.port, key)
		}
		g.chains[unusedKey(key, c.deflt, g.chains)] = c
		all[g.subject] = g
	}
	return all
}

// chainFacts compares the groups of a listener before and after a change.
func chainFacts(before, after map[string]group, name string, inbound bool) (all []Fact) {
	area := map[bool]Area{false: Listeners, true: Inbound}[inbound]
	for _, subject := range bothKeys(before, after) {
		a, was := before[subject]
		b, is := after[subject]
		f := Fact{Area: area, Subject: subject}
		switch {
		case !was:
			f.Text = "new: " + b.text()
		case !is:
			f.Text = "gone: " + a.text()
		case inbound && a.mode() != b.mode():
			f.Text = "mTLS " + a.mode() + " -> " + b.mode()
		}
		if f.Text != "" {
			all = append(all, f)
		}
		if was && is {
			all = append(all, groupFacts(a, b, f.Text != "", name, inbound)...)
		}
	}
	return all
}

// text describes the mTLS and the destinations of a group that is new or gone.
func (g group) text() string {
	chains := func(yield func(chain) bool) {
		for _, key := range bothKeys(g.chains, nil) {
			if !yield(g.chains[key]) {
				return
			}
		}
	}
	return "mTLS " + g.mode() + ", to " + list(destinations(chains))
}

// These are the mTLS modes of an inbound port.
const (
	strict     = "STRICT"
	permissive = "PERMISSIVE"
	disabled   = "DISABLE"
)

// mode derives the mTLS mode of an inbound port from its chains: STRICT, PERMISSIVE or DISABLE. If chains have TLS
// settings of their own, it returns their TLS modes and certificates instead.
func (g group) mode() string {
	var mesh, plain bool
	var own []string
	for _, c := range g.chains {
		switch c.tls.mode {
		case meshMutual:
			mesh = true
		case plainText:
			plain = true
		default:
			own = append(own, c.tls.mode+" "+c.tls.certificates)
		}
	}
	slices.Sort(own)
	switch {
	case len(own) > 0:
		return strings.Join(slices.Compact(own), ", ")
	case mesh && plain:
		return permissive
	case mesh:
		return strict
	}
	return disabled
}

// groupFacts compares the chains of two groups by their matches. If moded is set, the caller has already reported a
// change of the mTLS mode. This change also adds and removes chains, so groupFacts does not report new and missing
// chains.
func groupFacts(a, b group, moded bool, listener string, inbound bool) (all []Fact) {
	area, subject := map[bool]Area{false: Listeners, true: Inbound}[inbound], b.subject
	aspects := map[string][]string{} // the keys of the chains with each difference
	var order []string
	for _, key := range bothKeys(a.chains, b.chains) {
		old, was := a.chains[key]
		now, is := b.chains[key]
		text := ""
		switch {
		case !was && moded || !is && moded:
		case !was:
			text = "new: " + now.to()
		case !is:
			text = "gone: " + old.to()
		default:
			var c change
			if moded {
				old.tls = now.tls
			}
			for _, f := range old.compare(&c, now) {
				f.Subject = subject
				if f.Area == Policies {
					f.Subject = policySubject(listener, inbound)
				}
				all = append(all, f)
			}
			text = c.String()
		}
		if text == "" {
			continue
		}
		if aspects[text] == nil {
			order = append(order, text)
		}
		aspects[text] = append(aspects[text], key)
	}
	for _, text := range order {
		f := Fact{Area: area, Subject: subject, Aspect: list(aspects[text]), Text: text}
		if len(aspects[text]) == len(b.chains) {
			f.Aspect = "" // all chains
		}
		all = append(all, f)
	}
	return all
}
