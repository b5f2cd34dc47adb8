package normal

import (
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// fqdn resolves a host as written in an object of a namespace: a name without dots is a service of that namespace.
// https://istio.io/latest/docs/reference/config/networking/virtual-service/#VirtualService, hosts.
func (n *Normalizer) fqdn(host, namespace string) string {
	host = strings.ToLower(host)
	if host == "" || strings.ContainsAny(host, ".*:/") {
		return host
	}
	return host + "." + namespace + ".svc." + n.Domain
}

// exportTo resolves a list of namespaces: ["*"], ["~"], or namespace names in order. What is not stated is fallback (the
// mesh's default), and what that does not state is everybody.
func (r *report) exportTo(path string, stated, fallback []string, namespace string) []string {
	if len(stated) == 0 {
		stated, path = fallback, "meshConfig"
		r.mesh = true
	}
	if len(stated) == 0 {
		return []string{"*"}
	}
	var out []string
	for _, e := range stated {
		switch e = strings.TrimSpace(e); {
		case e == "*":
			return []string{"*"}
		case e == ".":
			out = append(out, namespace)
		case e == "~":
			if len(stated) > 1 {
				r.errorf(path, `"~" (nobody) stands alone`)
			}
			return []string{"~"}
		case len(validation.IsDNS1123Label(e)) > 0:
			r.errorf(path, "%q is no namespace: want a name, \".\", \"*\" or \"~\"", e)
		default:
			out = append(out, e)
		}
	}
	return sortedSet(out)
}

// gateway resolves the name of a Gateway as written in a VirtualService: mesh, or namespace/name. The dotted form is
// the one of old: name.namespace and what may follow.
func gateway(name, namespace string) string {
	if name == "mesh" || name == "" {
		return name
	}
	if ns, rest, ok := strings.Cut(name, "/"); ok {
		if ns == "." {
			ns = namespace
		}
		return ns + "/" + rest
	}
	if short, rest, ok := strings.Cut(name, "."); ok {
		ns, _, _ := strings.Cut(rest, ".")
		return ns + "/" + short
	}
	return namespace + "/" + name
}

// wildcardHost says what is wrong with a host that may start with a wildcard label; empty: nothing.
func wildcardHost(host string) string {
	if host == "*" {
		return ""
	}
	if rest, ok := strings.CutPrefix(host, "*"); ok {
		if dotted, ok := strings.CutPrefix(rest, "."); ok {
			return plainHost(dotted)
		}
		if dashed, ok := strings.CutPrefix(rest, "-"); ok {
			return plainHost(dashed)
		}
		return "a wildcard must be a whole label (*.example.com) or be followed by a dash"
	}
	return plainHost(host)
}

// plainHost says what is wrong with a host without wildcards; empty: nothing. IP addresses are hosts too.
func plainHost(host string) string {
	if host == "" {
		return "must not be empty"
	}
	if strings.Contains(host, "*") {
		return "a wildcard may only be its first label"
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return ""
	}
	if wrong := validation.IsDNS1123Subdomain(strings.ToLower(host)); len(wrong) > 0 {
		return "is no valid host name: " + wrong[0]
	}
	return ""
}

// addressOrPrefix says what is wrong with an IP address or CIDR; empty: nothing.
func addressOrPrefix(s string) string {
	if strings.Contains(s, "/") {
		if _, err := netip.ParsePrefix(s); err != nil {
			return "is no CIDR block"
		}
		return ""
	}
	if _, err := netip.ParseAddr(s); err != nil {
		return "is no IP address or CIDR block"
	}
	return ""
}

func isIP(s string) bool {
	_, err := netip.ParseAddr(s)
	return err == nil
}

// port reports a port outside 1-65535.
func (r *report) port(path string, number uint32) {
	if number < 1 || number > 65535 {
		r.errorf(path, "port %d is not in 1-65535", number)
	}
}

// labels reports labels that Kubernetes would not take.
func (r *report) labels(path string, labels map[string]string) {
	for _, key := range sortedKeys(labels) {
		if wrong := validation.IsQualifiedName(key); len(wrong) > 0 {
			r.errorf(path, "label key %q: %s", key, wrong[0])
		}
		if wrong := validation.IsValidLabelValue(labels[key]); len(wrong) > 0 {
			r.errorf(path, "label %s=%q: %s", key, labels[key], wrong[0])
		}
	}
}

func sortedSet(in []string) []string {
	if len(in) == 0 {
		return nil
	}
	out := slices.Clone(in)
	slices.Sort(out)
	return slices.Compact(out)
}
