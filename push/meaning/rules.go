package meaning

import routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

// Rule describes a route in words. Each text has at most 400 runes (maxText). The texts may contain arbitrary
// characters, so printers must escape them.
type Rule struct {
	Name  string // name of the route; may be empty
	Match string // the requests that the route matches, without credentials
	// To describes the answer of the proxy itself, or the destinations. If there are several destinations, each is
	// followed by its share in percent. Of more than six destinations, only five are named. To is empty if the
	// destination is unknown.
	To string
	// Also contains further settings: rewrites, mirrors, hash policy, fault, timeout and retries. For a route that
	// forwards requests and sets no timeout, it states Envoy's default of 15 s. It omits a timeout of 0, which means no
	// limit. Also is empty if there is nothing to state.
	Also string
}

// Rules describes the routes of a virtual host, in order. For nil, and for a virtual host without routes, the result is
// nil. Rules does not change the virtual host.
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
