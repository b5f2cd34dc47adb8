package meaning

import routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

// Rule describes a route in words. Each text has at most maxText runes. The texts may contain any characters of object
// names, so printers must escape them.
type Rule struct {
	Name  string // of the route; may be empty
	Match string // the requests that it matches
	To    string // the destinations with their shares, or the answer of the proxy itself
	Also  string // rewrites, mirrors, hash policy, fault, timeout and retries; empty without these
}

// Rules describes the routes of a virtual host, in order; nil without routes. It does not change the virtual host.
func Rules(vh *routev3.VirtualHost) (all []Rule) {
	for _, r := range rulesOf(vh) {
		var c change
		for _, part := range [][2]string{{"rewrites", r.rewrite}, {"mirrors to", r.mirrors}, {"hash", r.hash}, {"fault", r.fault}} {
			if part[1] != "" {
				c = append(c, part[0]+" "+part[1])
			}
		}
		if r.action == "" && r.timeout != 0 {
			c = append(c, "timeout "+r.timeout.String())
		}
		if r.retries > 0 {
			c = append(c, plural(int(r.retries), "retry"))
		}
		all = append(all, Rule{Name: clip(r.name), Match: clip(r.match), To: clip(r.to()), Also: clip(c.String())})
	}
	return all
}
