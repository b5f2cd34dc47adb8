package meaning

import (
	"slices"
	"strings"

	"navarch.io/navarch/push/xds"
)

// assessListener adds the risks of a listener that is new or modified. For a new listener it checks only the Secrets.
func (a *assessment) assessListener(name string, existed bool, c *listenerChange) {
	a.refusedSecrets("listener "+short(name), xds.Listener, name, secretsOf(c.before), secretsOf(c.after))
	if !existed {
		return
	}
	if c.replaced {
		a.add(ListenerReplaced, Medium, xds.Listener, name, "listener "+short(name), nil,
			"it is replaced, and its connections drain: %s", c.head)
	}
	for _, subject := range bothKeys(c.old, c.new) {
		old, was := c.old[subject]
		new, is := c.new[subject]
		if was && is {
			a.chains(name, subject, c.inbound, old, new)
			a.access(name, c.inbound, old, new)
		}
	}
	if c.inbound {
		a.modes(name, c.old, c.new)
	}
	a.allow(name, c.inbound, c.before, c.after)
	a.closes(name, c.inbound, c.old, c.new)
}

// chains adds the risks of changed filter chains. For an inbound listener, the groups old and new contain all chains of
// one port. For any other listener, they contain all chains of the listener.
func (a *assessment) chains(name, subject string, inbound bool, old, new group) {
	if inbound {
		if b, c := protocolOf(old), protocolOf(new); b != c {
			a.add(ProtocolChanges, High, xds.Listener, name, subject, nil, "protocol %s -> %s", b, c)
		}
		if name != xds.VirtualInbound {
			return
		}
		if gone, added := onlyIn(old.chains, new.chains), onlyIn(new.chains, old.chains); len(gone)+len(added) > 0 {
			a.add(ChainMatchChanges, Medium, xds.Listener, name, subject, nil, "filter chains match other connections: %s -> %s",
				orNone(list(gone)), orNone(list(added)))
		}
		return
	}
	for _, key := range bothKeys(old.chains, nil) {
		b, c := old.chains[key], new.chains[key]
		if _, is := new.chains[key]; is && b.kind() != c.kind() && b.name != xds.PassthroughChain && c.name != xds.PassthroughChain {
			a.add(ProtocolChanges, High, xds.Listener, name, subject, nil, "%s: protocol %s -> %s", key, b.kind(), c.kind())
		}
	}
}

// protocolOf returns the protocol of an inbound port: "HTTP", "TCP" or "detected". It ignores chains that forward the
// applications' own TLS.
func protocolOf(g group) string {
	var http, tcp bool
	for _, c := range g.chains {
		passed := strings.HasPrefix(c.match, "TLS") && c.tls.mode == plainText
		http, tcp = http || c.http != nil, tcp || c.http == nil && !passed
	}
	switch {
	case http && tcp:
		return "detected"
	case http:
		return "HTTP"
	}
	return "TCP"
}

// onlyIn returns the keys of the first map that the second map lacks, sorted.
func onlyIn(a, b map[string]chain) (keys []string) {
	for key := range a {
		if _, is := b[key]; !is {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// strictness returns 0 for DISABLE, 1 for PERMISSIVE and 2 for STRICT. For the mode of a port with its own TLS
// settings, it returns -1.
func strictness(mode string) int { return slices.Index([]string{disabled, permissive, strict}, mode) }

// modes adds the risks of changed mTLS modes of inbound ports. A port that had no chains of its own before the change
// had the mode of the group "inbound, other ports".
func (a *assessment) modes(name string, old, new map[string]group) {
	var stricter, wider []string
	rest, hasRest := old["inbound, other ports"]
	for _, subject := range bothKeys(new, nil) {
		was, is := old[subject]
		if !is && hasRest {
			was, is = rest, true
		}
		if !is {
			continue
		}
		b, c := strictness(was.mode()), strictness(new[subject].mode())
		port := strings.TrimPrefix(strings.TrimPrefix(subject, "inbound "), "inbound, ")
		if b > 0 && c == 0 {
			a.nameless(name, true, new[subject])
		}
		switch {
		case b < 0 || c < 0 || b == c:
		case new[subject].mode() == strict:
			stricter = append(stricter, port)
		case c < b:
			wider = append(wider, port+" "+was.mode()+" -> "+new[subject].mode())
		}
	}
	if len(stricter) > 0 && len(a.PlainCallers) > 0 {
		callers := slices.Sorted(slices.Values(a.PlainCallers))
		a.add(PlainRefused, High, xds.Listener, name, "inbound", a.peers(name),
			"mTLS becomes STRICT for %s, and these workloads call in plain text: %s",
			list(stricter), list(callers))
	}
	if len(wider) > 0 {
		a.add(AccessWidens, Medium, xds.Listener, name, "inbound", a.peers(name),
			"callers without mTLS get access: mTLS of %s", list(wider))
	}
}

// peers returns the PeerAuthentications that may have caused a change of a listener's mTLS modes. If View.Objects is
// nil, the result is nil.
func (a *assessment) peers(listener string) (all []string) {
	if a.Objects == nil {
		return nil
	}
	for _, object := range a.Objects(xds.Listener, listener) {
		if strings.HasPrefix(object, peerAuthentication) {
			all = append(all, object)
		}
	}
	return a.edited(all, peerAuthentication)
}

// peerAuthentication is the prefix of a PeerAuthentication in the form "Kind namespace/name".
const peerAuthentication = "PeerAuthentication "

// policySubject returns the subject of facts and risks about a listener's policies.
func policySubject(name string, inbound bool) string {
	if inbound && name == xds.VirtualInbound {
		return "inbound"
	}
	return "listener " + short(name)
}

// allow adds a risk if a listener gets its first ALLOW filter. ALLOW filters that refuse traffic because a policy
// cannot be enforced do not count.
func (a *assessment) allow(name string, inbound bool, old, new []chain) {
	allows := func(all []chain) (rules []string, is bool) {
		for _, c := range all {
			for _, f := range c.filters {
				if f.policies.allows() && !f.policies.closes() {
					is, rules = true, append(rules, f.policies.rules()...)
				}
			}
		}
		return rules, is
	}
	if _, was := allows(old); was {
		return
	}
	if rules, is := allows(new); is {
		a.add(AllowAppears, High, xds.Listener, name, policySubject(name, inbound), policyObjects(rules),
			"an ALLOW policy appears where there was none: requests that no policy allows are denied (403)")
	}
}

// closes adds a risk for the first filter chain that refuses traffic only after the change, because a policy or a
// setting cannot be enforced. It ignores new filter chains.
func (a *assessment) closes(name string, inbound bool, old, new map[string]group) {
	closed := func(c chain) (rules []string, is bool) {
		for _, f := range c.filters {
			if f.policies.closes() {
				return f.policies.unenforced(), true
			}
		}
		return nil, len(c.shares.shares) == 1 && c.shares.shares[0].cluster == xds.BlackHole
	}
	for _, subject := range bothKeys(new, nil) {
		for _, key := range bothKeys(new[subject].chains, nil) {
			was, is := old[subject].chains[key]
			if _, before := closed(was); !is || before {
				continue
			}
			if rules, now := closed(new[subject].chains[key]); now {
				a.add(Unenforceable, High, xds.Listener, name, policySubject(name, inbound), policyObjects(rules),
					"traffic is refused, because a policy or a setting cannot be enforced")
				return
			}
		}
	}
}

// secretsOf returns the names of the Secrets that filter chains request.
func secretsOf(all []chain) (names []string) {
	for _, c := range all {
		names = append(names, c.tls.secrets...)
	}
	return names
}

// refusedSecrets adds a risk for each Secret that a resource requests only after the change, if View.Refused returns a
// reason for this Secret.
func (a *assessment) refusedSecrets(subject string, t xds.Type, resource string, old, new []string) {
	if a.Refused == nil {
		return
	}
	for _, secret := range slices.Compact(slices.Sorted(slices.Values(new))) { // a sorted copy, because other views share the list
		if slices.Contains(old, secret) {
			continue
		}
		if why := a.Refused(secret); why != "" {
			a.add(SecretRefused, High, t, resource, subject, nil, "Secret %s: %s", secret, why)
		}
	}
}
